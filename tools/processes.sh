# Shared by dist_train.sh and dist_test.sh: run a tool in several processes, one a GPU, or over gloo without GPUs.

tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$tools/python.sh"

# launch TOOL GPUS [ARGUMENTS]: GPUS processes on this machine, NNODES machines in all, which meet at MASTER_ADDR:PORT
launch() {
    local tool=$1 processes=$2
    shift 2
    if ! [[ $processes =~ ^[1-9][0-9]*$ ]]; then
        echo "mmlape: error: GPUS must be a positive number, not '$processes'" >&2
        exit 2
    fi
    local found
    if ! found=$("$python" -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null); then
        local reason
        reason=$("$python" -c 'import torch' 2>&1 | tail -n 1) || true
        echo "mmlape: error: $python cannot import torch ($reason): activate the environment, or set PYTHON" >&2
        exit 1
    fi
    if ((found > 0 && processes > found)); then
        echo "mmlape: error: $processes GPUs asked for, $found visible: ask for fewer," \
            "or make more visible (CUDA_VISIBLE_DEVICES)" >&2
        exit 1
    fi
    if ((found == 0)); then
        echo "no GPU here: $processes processes on the CPU, over gloo"
        local cores
        cores=$(nproc)
        export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > processes ? cores / processes : 1))}
    fi
    # without PORT torchrun chooses a free one
    local meeting=(--standalone)
    if ((${NNODES:-1} > 1)) || [[ -n ${PORT:-} ]]; then
        export NNODES=${NNODES:-1} MASTER_ADDR=${MASTER_ADDR:-127.0.0.1} PORT=${PORT:-29500}
        local wait=${RDZV_TIMEOUT:-900}
        meeting=(--nnodes "$NNODES" --rdzv_backend c10d --rdzv_endpoint "$MASTER_ADDR:$PORT"
            --rdzv_id "${RDZV_ID:-mmlape}"
            --rdzv_conf "is_host=$((${NODE_RANK:-0} == 0)),join_timeout=$wait,read_timeout=$wait")
        ((NNODES == 1)) || echo "machine ${NODE_RANK:-0} of $NNODES: waiting for the others at" \
            "$MASTER_ADDR:$PORT, up to $wait s (RDZV_TIMEOUT)"
    fi
    PYTHONPATH="$(dirname "$tools")${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -m mmlape.lab.engine.distributed.launch \
        "${meeting[@]}" --nproc_per_node "$processes" "$tools/$tool" "$@" --launcher pytorch
}
