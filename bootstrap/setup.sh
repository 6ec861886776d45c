#!/bin/sh
# Make the virtual environment: `sh bootstrap/setup.sh .venv`. `make setup` calls it.
# uv chooses the interpreter and installs what mmlape/requirements.txt locks; its cache lets an interrupted set-up
# continue. PYTHON=3.11 or a path selects another interpreter, OPS=compiled compiles mmcv's ops.
set -u
venv=${1:-.venv}
root=$(cd "$(dirname "$0")/.." && pwd)
uv_version=0.13.9
started=$(date +%s)
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV # packages from elsewhere must not pass for installed ones
unset PYTHONDONTWRITEBYTECODE           # without compiled modules each process takes 5 s longer to import the stack
export UV_PYTHON_DOWNLOADS=never UV_LINK_MODE="${UV_LINK_MODE:-hardlink}"

say() { echo "set-up: $*"; }
stop() {
    echo "set-up: FAILED: $1" >&2
    exit 1
}
trap 'echo "set-up: interrupted; call it again: what is downloaded is kept" >&2; exit 130' INT

mkdir -p "$venv" || stop "$venv cannot be made; elsewhere: make setup VENV=/roomy/place"
venv=$(cd "$venv" && pwd)
free=$(df -Pk "$venv" | awk 'END { print int($4 / 1e6) }')
[ -d "$venv/lib" ] || [ "$free" -ge 8 ] ||
    stop "$venv has $free GB free, and the environment needs 8 GB: make room, or make setup VENV=/roomy/place"

# uv, in an environment of its own
for dir in "$HOME"/.pyenv/versions/*/bin; do PATH=$PATH:$dir; done
uv=$venv/uv/bin/uv
if ! [ "$("$uv" --version 2>/dev/null | cut -d' ' -f2)" = "$uv_version" ]; then
    first=
    for python in "${PYTHON:-python3}" python3 python3.12 python3.13 python3.11 python3.10; do
        if "$python" -c 'import ensurepip, venv, sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
            first=$python
            break
        fi
    done
    [ "$first" ] || stop 'no Python with its venv module was found; on Debian: apt-get install -y python3 python3-venv'
    "$first" -m venv "$venv/uv" && "$venv/uv/bin/python" -m pip install -q "uv==$uv_version" ||
        stop "uv $uv_version cannot be installed by pip (see above): check the network and the room on the disk"
fi

# the interpreter: deformops (deformable attention without a compiler) has releases for 3.12 and 3.13
for wanted in ${PYTHON:-3.12 3.13 3.11 3.10}; do
    python=$("$uv" python find --no-project --system "$wanted" 2>/dev/null) && break
    python=
done
[ "$python" ] || stop "no Python ${PYTHON:-from 3.10 to 3.13} was found; name one: make setup PYTHON=/path/to/python3.12"
"$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' ||
    stop "PYTHON=$python is not one of Python 3.10 to 3.13"
say "$venv with $("$python" -V); downloads 3 GB where uv has not kept them"
"$venv/bin/python" -c "import sys; sys.exit(sys.base_prefix != '$("$python" -c 'import sys; print(sys.base_prefix)')')" \
    2>/dev/null || "$uv" venv -q --no-project --allow-existing --python "$python" "$venv" || stop "$venv cannot be made"

# the locked packages, this one, and the ops
export VIRTUAL_ENV="$venv"
cd "$root" || exit 1
"$uv" pip install --compile-bytecode --require-hashes -r mmlape/requirements.txt ||
    stop 'the packages cannot be installed (see above): check the network and the room on the disk, then call it again'
"$uv" pip install -q --no-deps --no-build-isolation --no-config -e . || stop 'mmlape itself cannot be installed (see above)'
if [ "${OPS:-wheels}" = compiled ]; then
    if ! "$venv/bin/python" -c 'import torch, mmcv._ext as ext; assert not hasattr(ext, "FROM_WHEELS")' 2>/dev/null; then
        say 'compiles the ops of mmcv: about 10 minutes on 2 idle cores'
        mmcv=$(sed -n 's/^\(onedl-mmcv==[^ ]*\).*/\1/p' mmlape/requirements.txt)
        "$uv" pip install -q ninja psutil 'setuptools<80' &&
            MMCV_WITH_OPS=1 CFLAGS='-g0 -O2 -w' "$uv" pip install --no-deps --no-build-isolation --no-cache --reinstall \
                --no-binary onedl-mmcv "$mmcv" || stop 'mmcv cannot be compiled (see above); it needs g++ and python3-dev'
    fi
else
    "$venv/bin/mmlape" install-ops >/dev/null || stop 'the ops cannot be written into the folder of mmcv (see above)'
fi
"$venv/bin/python" -W ignore -c 'import timm, mmcv.ops, mmdet.apis, mmseg.apis, mmpretrain.apis, mmlape' >/dev/null ||
    stop 'the packages are installed but do not import (see above); from nothing: make setup VENV=/another/folder'
say "ready in $(($(date +%s) - started)) s"
