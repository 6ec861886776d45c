# What tests/floors.sh and tests/newest.sh share, for an environment in $venv and the command in $command.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV
export UV_LINK_MODE="${UV_LINK_MODE:-hardlink}" UV_PYTHON_DOWNLOADS=never

TESTS="tests/check_recipes.py tests/runs/test_resume.py
    tests/engine/test_train_test.py::test_a_nan_stops_the_run_and_nothing_is_lost
    tests/models/test_golden.py tests/models/test_vit.py tests/models/test_vit_adapter.py tests/models/test_deform_attn.py
    tests/checkpoint/test_layouts.py tests/checkpoint/test_checkpoint.py tests/checkpoint/test_checkpoint_files.py
    tests/checkpoint/test_safe_checkpoints.py"

make_environment() { # PYTHON
    [ -x "$venv/bin/python" ] || "$1" -m venv "$venv"
    version=$(sed -n 's/^uv_version=//p' bootstrap/setup.sh)
    [ "$("$venv/bin/uv" --version 2>/dev/null | cut -d' ' -f2)" = "$version" ] ||
        "$venv/bin/python" -m pip install --disable-pip-version-check -q "uv==$version"
}

install() { "$venv/bin/uv" pip install -q --python "$venv/bin/python" "$@"; }

run_tests() { # TITLE PYTEST_ARGUMENTS
    title=$1
    shift
    "$venv/bin/python" -m mmlape doctor
    status=0
    "$venv/bin/python" -m pytest --junitxml build/stack.xml "$@" || status=$?
    "$venv/bin/python" -m benchmarks submit build/stack.xml --title "$title" --command "$command" || exit 1
    [ "$status" = 0 ] || exit "$status"
}
