# The end of every recipe's train.sh: sourced after recipe.sh, with the script's arguments.
# shellcheck shell=bash
# SLURM starts this script once on each node; the first of them is where the processes meet.
if [ -n "${SLURM_JOB_NODELIST:-}" ] && [ -z "${MASTER_ADDR:-}" ] && command -v scontrol >/dev/null; then
  MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
  export MASTER_ADDR
fi
exec "$PYTHON" "$LIB/train.py" "$RECIPE" "$@"
