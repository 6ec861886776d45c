#!/usr/bin/env bash
# Train CONFIG as a Slurm job, one task a GPU (or a CPU process, with GPUS_PER_NODE=0).
#   tools/slurm_train.sh PARTITION JOB_NAME CONFIG [GPUS] [WORK_DIR] [options of tools/train.py]
# Environment: GPUS (tasks in all, 4), GPUS_PER_NODE (4, at most GPUS), CPUS_PER_TASK (5), SRUN_ARGS, GRACE (120: seconds
# before the time limit at which the run saves and ends).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/slurm.sh"
if (($# < 3)); then
    echo 'usage: tools/slurm_train.sh PARTITION JOB_NAME CONFIG [GPUS] [WORK_DIR] [options of tools/train.py]' >&2
    exit 2
fi
submit train.py 1 "$@"
