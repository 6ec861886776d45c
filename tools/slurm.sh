# Shared by slurm_train.sh and slurm_test.sh: run a tool under srun, one task a GPU.

tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$tools/python.sh"

# submit TOOL FILES PARTITION JOB_NAME [ARGUMENTS]: the first FILES arguments are files; a number after them is GPUS, and
# another word the work dir, as in MMDetection
submit() {
    local tool=$1 partition=$3 job=$4 files=("${@:5:$2}")
    shift $((4 + $2))
    local tasks=${GPUS:-4}
    if [[ ${1:-} =~ ^[1-9][0-9]*$ ]]; then
        tasks=$1
        shift
    fi
    [[ -z ${1:-} || $1 == -* ]] || set -- --work-dir "$@"
    # without GPUs all tasks share a machine
    local gpus=${GPUS_PER_NODE:-4} per_node
    per_node=$((gpus > 0 && gpus < tasks ? gpus : tasks))
    local request=(--partition "$partition" --job-name "$job" --ntasks "$tasks" --ntasks-per-node "$per_node"
        --cpus-per-task "${CPUS_PER_TASK:-5}" --kill-on-bad-exit=1)
    ((gpus == 0)) || request+=(--gres "gpu:$per_node")
    # a training run saves when it is told that its time limit comes
    [[ $tool != train.py ]] || request+=(--signal "TERM@${GRACE:-120}")
    # shellcheck disable=SC2206  # several options in one variable are meant to be split
    local more=(${SRUN_ARGS:-})
    PYTHONPATH="$(dirname "$tools")${PYTHONPATH:+:$PYTHONPATH}" exec srun "${request[@]}" "${more[@]}" \
        "$python" -u "$tools/$tool" "${files[@]}" "$@" --launcher slurm
}
