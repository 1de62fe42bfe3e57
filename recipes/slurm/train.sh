#!/usr/bin/env bash
#SBATCH --job-name=fairseq-depthwise
#SBATCH --nodes=4 --ntasks-per-node=1 --gpus-per-node=8 --cpus-per-task=64
#SBATCH --time=1-00:00:00
#SBATCH --requeue --no-kill --open-mode=append --signal=USR1@300
# Trains a system of a recipe on nodes that may be taken away, as often as it takes:
#   sbatch recipes/slurm/train.sh RECIPE SYSTEM [options of fairseq-train]
# Options of sbatch before the script's name come before those above. What the environment decides: recipes/README.md;
# what happens when a process, a node or the time is gone: docs/many_machines.md.
set -uo pipefail

export MAX_RESTARTS=${MAX_RESTARTS:-10} NNODES=${NNODES:-1:${SLURM_NNODES:-1}}

# The end of one node is not that of the others. bash waits for srun before it hears a signal.
trap : USR1 TERM
srun --no-kill --kill-on-bad-exit=0 bash recipes/train.sh "$@"
status=$?

# 138: all processes have saved, because the time is over (SIGUSR1); 75: the node of the rendezvous is gone. A job that
# somebody ends, or that SLURM preempts, gets SIGTERM (143): SLURM itself puts that back into the queue, or does not.
case $status in
  138 | 75)
    if [ "${SLURM_RESTART_COUNT:-0}" -lt 100 ]; then
      echo "train: back into the queue, after status $status" >&2
      scontrol requeue "$SLURM_JOB_ID"
    fi
    ;;
esac
exit "$status"
