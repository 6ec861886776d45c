"""Make the virtual environment: `python3 bootstrap .venv`. Standard library only; `make setup` calls it."""

import os
import sys
import time
from pathlib import Path

from advice import advise, error_lines, tail
from checks import check_disk, provide_packages
from live import StepFailed, minutes
from steps import Setup, jobs


def main() -> int:
    """Run the steps; the first that fails stops the set-up with its reason and the fix."""
    venv = Path(sys.argv[1] if len(sys.argv) > 1 else '.venv').absolute()
    for name in ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV'):
        os.environ.pop(name, None)  # packages from elsewhere must not pass for installed ones
    setup = Setup(venv)
    start = time.monotonic()
    print(f'set-up: {venv} with Python {sys.version.split()[0]}', flush=True)
    provide_packages()
    if setup.answers('import torch, mmcv._ext') is None:
        print(
            'set-up: downloads 3 GB (about 3 minutes), then compiles the ops of mmcv, '
            f'{jobs()} files at a time: about 10 minutes on 2 idle cores.\n'
            'set-up: a later environment for the same Python takes the compiled mmcv from the cache of pip.',
            flush=True,
        )
        if setup.answers('import torch') is None:
            check_disk(venv)
    try:
        setup.make_venv()
        setup.install_pins()
        setup.install_mmcv()
        setup.install_package()
    except StepFailed as failure:
        return report(failure)
    except KeyboardInterrupt:
        print('\nset-up: interrupted; call it again: finished steps are skipped.', file=sys.stderr)
        return 130
    print(f'set-up: ready in {minutes(time.monotonic() - start)}', flush=True)
    return 0


def report(failure: StepFailed) -> int:
    """Print what failed, the end of its log and what to do."""
    errors = [line for line in error_lines(failure.log) if line not in tail(failure.log)]
    print(f'\nset-up: FAILED: {failure.title}. The end of {failure.log}:', file=sys.stderr)
    for line in [*errors, *tail(failure.log)]:
        print(f'    {line}', file=sys.stderr)
    print(f'set-up: what to do: {advise(failure.log)}', file=sys.stderr)
    return 1


if __name__ == '__main__':
    sys.exit(main())
