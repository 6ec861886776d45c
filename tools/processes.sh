# Shared by dist_train.sh and dist_test.sh: run a tool by torchrun, one process a GPU, or over gloo without GPUs.

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
    # on one machine torchrun chooses a free port, so that several runs do not meet
    local meeting=(--standalone)
    if ((${NNODES:-1} > 1)); then
        local place="${MASTER_ADDR:-127.0.0.1}:${PORT:-29500}" wait=${RDZV_TIMEOUT:-900}
        meeting=(--nnodes "$NNODES" --rdzv-backend c10d --rdzv-endpoint "$place" --rdzv-id "${RDZV_ID:-mmlape}"
            --rdzv-conf "is_host=$((${NODE_RANK:-0} == 0)),join_timeout=$wait,read_timeout=$wait")
        echo "machine ${NODE_RANK:-0} of $NNODES: waiting for the others at $place, up to $wait s (RDZV_TIMEOUT)"
    fi
    # Slurm's --signal=USR1 reaches torchrun, too: it passes it on, as SIGTERM, or, an older one, at least survives it
    trap '' USR1
    export PET_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1
    # seconds in which processes save before torchrun kills them; older versions have 30
    export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-60}
    PYTHONPATH="$(dirname "$tools")${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -m torch.distributed.run \
        "${meeting[@]}" --nproc-per-node "$processes" "$tools/$tool" "$@" --launcher pytorch
}
