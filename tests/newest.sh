#!/bin/sh
# Test with the newest release of everything that pyproject.toml asks for, also where it pins a version:
#     PYTHON=python3.13 tests/newest.sh [VENV [PYTEST_ARGUMENTS]]
# By default the tests of tests/floors.sh, and several processes and mmcv's ops. Upper bounds stay. It writes a record into
# work_dirs/records.
set -eu
cd "$(dirname "$0")/.."
venv=${1:-.newest}
[ $# -eq 0 ] || shift
command="tests/newest.sh${*:+ VENV $*}"
. tests/stack_functions.sh

newest() {
    "$venv/bin/python" - <<'PY'
import re, tomllib
project = tomllib.load(open('pyproject.toml', 'rb'))['project']
extras = project['optional-dependencies']
lines = [*project['dependencies'], *extras['experiments'], *extras['stack'], *extras['dev']]
print('\n'.join(re.sub('==[^;]*', '', line) for line in lines if not line.startswith('mmlape')))
PY
}

make_environment "${PYTHON:-python3.13}"
list=$(mktemp)
trap 'rm -f "$list"' EXIT
newest >"$list"
install --upgrade -r "$list"
install --no-deps --no-build-isolation -e .
"$venv/bin/python" -m mmlape install-ops

[ $# -gt 0 ] || set -- $TESTS tests/engine/test_distributed.py tests/environment/test_mmcv_ops.py
run_tests newest "$@"
