# Shared by processes.sh and slurm.sh: $python is PYTHON, that of the active environment, the checkout's .venv, or the
# system's.

python=${PYTHON:-}
if [[ -z $python && -z ${VIRTUAL_ENV:-}${CONDA_PREFIX:-} && -x $tools/../.venv/bin/python ]]; then
    python=$(cd "$tools/../.venv/bin" && pwd)/python
fi
python=${python:-$(command -v python || command -v python3)}
