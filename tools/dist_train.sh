#!/usr/bin/env bash
# Trains CONFIG in GPUS processes; without a GPU they run on the CPU.
#   tools/dist_train.sh CONFIG GPUS [options of tools/train.py]
# NNODES, NODE_RANK, MASTER_ADDR and PORT join several machines; without PORT a free one is taken.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/processes.sh"
if (($# < 2)); then
    echo 'usage: tools/dist_train.sh CONFIG GPUS [options of tools/train.py]' >&2
    exit 2
fi
launch train.py "$2" "$1" "${@:3}"
