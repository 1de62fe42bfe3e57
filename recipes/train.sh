#!/usr/bin/env bash
# Trains a system of a recipe:
#   bash recipes/train.sh RECIPE SYSTEM [options of fairseq-train]
#   bash recipes/train.sh RECIPE --list            all its systems
#   bash recipes/train.sh RECIPE SYSTEM --print    the command for the machine that the environment names
#   bash recipes/train.sh RECIPE --commands        those of all its systems
# Several nodes, SLURM, and what else the environment decides: recipes/README.md.
# shellcheck source-path=SCRIPTDIR
RECIPE=${1:-}
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
# SLURM starts this script once on each node; the first of them is where the processes meet.
if [ -n "${SLURM_JOB_NODELIST:-}" ] && [ -z "${MASTER_ADDR:-}" ] && command -v scontrol >/dev/null; then
  MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
  export MASTER_ADDR
fi
exec "$PYTHON" "$LIB/train_system.py" "$@"
