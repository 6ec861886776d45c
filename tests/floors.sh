#!/bin/sh
# Test with the oldest supported versions (`oldest` in mmlape/environment/packages.py) of the original MM packages:
#     PYTHON=python3.10 tests/floors.sh [VENV [PYTEST_ARGUMENTS]]
# By default the tests of models, checkpoints, sharding and training. docs/contribute/testing.md has the result.
# A second call skips what is installed. Without a GPU,
# TORCH_INDEX=https://download.pytorch.org/whl/cpu takes torch's smaller wheels.
set -eu
cd "$(dirname "$0")/.."
venv=${1:-.floors}
[ $# -eq 0 ] || shift
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV

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
import runpy, sys
packages = runpy.run_path('mmlape/environment/packages.py')['PACKAGES']
print('\n'.join(f'{packages[name].distributions[:2][-1]}=={packages[name].oldest}' for name in sys.argv[1:]))
PY
}

install() { "$venv/bin/python" -m pip install --disable-pip-version-check -q "$@"; }

[ -x "$venv/bin/python" ] || "${PYTHON:-python3.10}" -m venv "$venv"
list=$(mktemp)
trap 'rm -f "$list"' EXIT
install 'setuptools<80' wheel
oldest torch torchvision >"$list"
install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -r "$list"
locked >"$list"
install --no-deps -r "$list"
oldest timm mmengine mmdet mmseg mmpretrain >"$list"
install --no-deps -r "$list"
# without its ops, which come from torchvision
"$venv/bin/python" -c 'import mmcv' 2>/dev/null ||
    MMCV_WITH_OPS=0 install --no-deps --no-build-isolation --no-cache-dir "$(oldest mmcv)"
install --no-deps --no-build-isolation -e .

"$venv/bin/python" -m mmlape doctor
[ $# -gt 0 ] || set -- tests/models/test_golden.py tests/models/test_vit.py tests/models/test_vit_adapter.py tests/models/test_deform_attn.py \
    tests/checkpoint/test_checkpoint.py tests/checkpoint/test_checkpoint_files.py tests/checkpoint/test_safe_checkpoints.py tests/engine/test_sharding.py \
    tests/runs/test_resume.py tests/engine/test_train_test.py::test_a_killed_run_resumes_as_if_it_had_not_been # both with workers
# the original mmengine does not run the code in the text that this test shows to be dangerous
exec "$venv/bin/python" -m pytest --deselect \
    tests/checkpoint/test_safe_checkpoints.py::test_text_stored_as_a_configuration_is_never_run "$@"
