#!/usr/bin/env bash
# Train CONFIG in GPUS processes; without a GPU they run on the CPU.
#   tools/dist_train.sh CONFIG GPUS [options of tools/train.py]
# NNODES, NODE_RANK, MASTER_ADDR and PORT join several machines, which wait RDZV_TIMEOUT (900) seconds for each other:
#   NNODES=2 NODE_RANK=0 MASTER_ADDR=first-machine PORT=29500 tools/dist_train.sh CONFIG 4    # NODE_RANK=1 on the second
# On one machine torchrun chooses a free port.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/processes.sh"
if (($# < 2)); then
    echo 'usage: tools/dist_train.sh CONFIG GPUS [options of tools/train.py]' >&2
    exit 2
fi
launch train.py "$2" "$1" "${@:3}"
