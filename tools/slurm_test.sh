#!/usr/bin/env bash
# Evaluate CHECKPOINT as a Slurm job, one task a GPU (or a CPU process, with GPUS_PER_NODE=0).
#   tools/slurm_test.sh PARTITION JOB_NAME CONFIG CHECKPOINT [GPUS] [options of tools/test.py]
# Environment: GPUS (tasks in all, 4), GPUS_PER_NODE (4, at most GPUS), CPUS_PER_TASK (5), SRUN_ARGS.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/slurm.sh"
if (($# < 4)); then
    echo 'usage: tools/slurm_test.sh PARTITION JOB_NAME CONFIG CHECKPOINT [GPUS] [options of tools/test.py]' >&2
    exit 2
fi
submit test.py 2 "$@"
