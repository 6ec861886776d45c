#!/usr/bin/env bash
# Evaluate CHECKPOINT in GPUS processes; without a GPU they run on the CPU.
#   tools/dist_test.sh CONFIG CHECKPOINT GPUS [options of tools/test.py]
# NNODES, NODE_RANK, MASTER_ADDR and PORT join several machines.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/processes.sh"
if (($# < 3)); then
    echo 'usage: tools/dist_test.sh CONFIG CHECKPOINT GPUS [options of tools/test.py]' >&2
    exit 2
fi
launch test.py "$3" "$1" "$2" "${@:4}"
