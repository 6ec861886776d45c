#!/bin/sh
# Test with the original MM packages, at their oldest supported versions (`oldest` in mmlape/lab/environment.py)
# together with the oldest torch and timm, then at their last releases:
#     PYTHON=python3.10 tests/floors.sh [VENV [PYTEST_ARGUMENTS]]
# By default the tests of models, checkpoints and training. docs/contribute/testing.md has the result.
# A second call skips what is installed. Without a GPU,
# TORCH_INDEX=https://download.pytorch.org/whl/cpu takes torch's smaller wheels.
set -eu
cd "$(dirname "$0")/.."
venv=${1:-.floors}
[ $# -eq 0 ] || shift
command="tests/floors.sh${*:+ VENV $*}"
. tests/stack_functions.sh

locked() { # the locked libraries, but for the stack itself, of which the oldest versions are tested
    "$venv/bin/python" - <<'PY'
import re
text = open('mmlape/requirements.txt').read().replace('\\\n', ' ')
lines = [line.partition('--hash')[0] for line in text.splitlines() if re.match(r'\w', line)]
ours = ('torch', 'timm', 'onedl-', 'deformops', 'nvidia-', 'cuda-', 'triton', 'sympy', 'setuptools')
print('\n'.join(line for line in lines if not line.startswith(ours)))
PY
}

oldest() {
    "$venv/bin/python" - "$@" <<'PY'
import sys
from mmlape.lab.environment import PACKAGES

for package in map(PACKAGES.get, sys.argv[1:]):
    name = 'mmcv-lite' if package.module == 'mmcv' else package.distributions[:2][-1]
    print(f'{name}=={package.oldest}')
PY
}

make_environment "${PYTHON:-python3.10}"
list=$(mktemp)
trap 'rm -f "$list"' EXIT
install 'setuptools>=77,<80' wheel
oldest torch torchvision >"$list"
install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -r "$list"
locked >"$list"
install --no-deps -r "$list"
install --no-deps --no-build-isolation -e .

[ $# -gt 0 ] || set -- $TESTS
oldest timm mmengine mmcv mmdet mmseg mmpretrain >"$list" # mmcv without its ops, which come from torchvision
install --no-deps -r "$list"
"$venv/bin/python" -m mmlape install-ops
run_tests oldest "$@"
install --no-deps mmengine==0.10.7 mmdet==3.3.0 mmsegmentation==1.2.2 mmpretrain==1.2.0
run_tests 'last originals' "$@"
