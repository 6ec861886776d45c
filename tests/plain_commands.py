"""Run by test_plain_openmmlab.py where no module of the papers can be imported: calls of the command line, in forks.

`python plain_commands.py CALLS.json`: a list of [words, status, variables]; prints what each call prints.
"""

import gc
import json
import os
import sys
from importlib import import_module

import pytest
from forking_python import IMPORTED


def call(words: list[str], variables: dict[str, str]) -> int:
    """Run the command line in a fork; return its status, negative for a signal."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.environ.update(variables)
        os.dup2(1, 2)
        from mmlape.cli import main

        status = 1
        try:
            status = main(words) or 0
        except SystemExit as end:
            status = end.code or 0
        finally:
            sys.stdout.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(calls: list[tuple[list[str], int, dict[str, str]]]) -> None:
    """Run calls one after another; the first of another status than expected ends that."""
    with pytest.raises(ImportError, match='hidden'):
        import_module('mmlape.models')
    for name in IMPORTED:  # once, and not in each fork
        if not name.startswith('mmlape'):
            import_module(name)
    import mmlape.lab.experiments.report
    import mmlape.lab.training.trainer  # noqa: F401
    from mmlape.lab.runs.code import imported

    imported({})  # the hashes of code that each run records
    gc.freeze()
    for words, expected, variables in calls:
        print(f'\n$ {" ".join(words)}', flush=True)
        status = call(words, variables)
        if status != expected:
            sys.exit(f'status {status}')


if __name__ == '__main__':
    with open(sys.argv[1], encoding='utf-8') as file:
        run(json.load(file))
