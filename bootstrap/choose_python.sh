#!/bin/sh
# Print the interpreter that makes the virtual environment: $PYTHON if given, an existing environment's own, or the
# first that runs. 3.12 comes first, because deformops (deformable attention without a compiler) needs 3.12 or 3.13.
# A name that exists may still fail to run (pyenv leaves such shims), so each one is tried.
venv=${1:-.venv}

works() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

if [ -n "$PYTHON" ]; then
    if works "$PYTHON"; then echo "$PYTHON"; exit 0; fi
    echo "set-up: PYTHON=$PYTHON does not run, or is older than Python 3.10:" >&2
    "$PYTHON" -V >&2
    exit 1
fi

for candidate in "$venv/bin/python" python3.12 "$HOME"/.pyenv/versions/3.12.*/bin/python python3.13 python3 \
        python3.11 python3.10 "$HOME"/.pyenv/versions/3.1[013].*/bin/python; do
    if works "$candidate"; then echo "$candidate"; exit 0; fi
done

echo 'set-up: no Python >= 3.10 was found.' >&2
if command -v python3 >/dev/null 2>&1; then echo "set-up: python3 is $(python3 -V 2>&1)." >&2; fi
echo 'set-up: on Debian: apt-get install -y python3 python3-venv python3-dev' >&2
echo 'set-up: or name one: make setup PYTHON=/path/to/python3.12' >&2
exit 1
