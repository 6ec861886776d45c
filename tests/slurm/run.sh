#!/usr/bin/env bash
# The tests of everything that goes through Slurm, on a controller of their own (see controller.sh for what it needs).
#   tests/slurm/run.sh [options of pytest]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-$(cd "$here/../.." && pwd)/.venv/bin/python}
dir=$(mktemp -d)
trap '"$here/controller.sh" stop "$dir"; rm -rf "$dir"' EXIT
"$here/controller.sh" start "$dir"
SLURM_CONF=$dir/slurm.conf MMLAPE_SLURM=1 "$python" -m pytest "$here" "$@"
