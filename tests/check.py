"""Run the fast tests of what has changed since a commit; `make check` calls it.

    python tests/check.py [COMMIT]

Changed are the files of the commits since COMMIT (by default since this branch left main), those that are not
committed, and those that git does not know. A changed test runs. A changed helper of the tests, module or script runs
the tests that import it, and a module or config also those of the folder and of the words of its name; what reads
files in the folders of models runs those of layouts and tables. Tests that `tests/slow.txt` lists are left out. The
tests closest to the change run first, until `LIMIT` seconds are over. `make mutants ARGS=--changed` shows what they
would notice.
"""

import ast
import os
import re
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 100
BY_FOLDER = {
    'configs': 'configs', 'studies': 'experiments', 'benchmarks': 'environment', 'bootstrap': 'environment',
    'tools': 'environment', 'docs': 'docs',
    'mmlape/commands': 'environment', 'mmlape/console': 'environment', 'mmlape/openmmlab': 'environment',
    'mmlape/lab/config': 'engine', 'mmlape/lab/training': 'engine', 'mmlape/lab/inference': 'analysis',
}  # fmt: skip
"""The folder of tests of what has none of its own name."""
OF_FILES = r'mmlape/(models|projects)/.*(checkpoint|layouts|transformers_files|big_vision|fitting|pos_embed)\.py'
"""What reads files, in the folders of the models."""
TESTS_OF_FILES = ('tests/checkpoint/test_layouts.py', 'tests/checkpoint/test_tables.py')


def changed_files(commit: str = '') -> list[str]:
    """Return the changed files, as paths from the root."""
    commit = commit or _git('merge-base', 'HEAD', _main())[0]
    return sorted({*_git('diff', '--name-only', commit), *_git('ls-files', '--others', '--exclude-standard')})


def changed_lines(commit: str = '') -> dict[str, set[int]]:
    """Return the numbers of the lines of each module of the package that are new since a commit."""
    commit = commit or _git('merge-base', 'HEAD', _main())[0]
    found, file = {}, ''
    for line in _git('diff', '-U0', commit, '--', 'mmlape/*.py'):
        if line.startswith('+++ '):
            file = line.removeprefix('+++ ').removeprefix('b/')
        elif (hunk := re.match(r'@@ \S+ \+(\d+)(?:,(\d+))? @@', line)) and file != '/dev/null':
            begin, count = int(hunk[1]), int(hunk[2] or 1)
            found.setdefault(file, set()).update(range(begin, begin + count))
    for file in _git('ls-files', '--others', '--exclude-standard', 'mmlape/*.py'):
        found[file] = set(range(1, len((ROOT / file).read_text().splitlines()) + 1))
    return {file: lines for file, lines in found.items() if lines}


def _main() -> str:
    names = _git('for-each-ref', '--format=%(refname:short)', 'refs/heads/main', 'refs/remotes/origin/main')
    return [*names, 'HEAD'][0]


def _git(*words: str) -> list[str]:
    done = subprocess.run(['git', *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.split('\n')[:-1]


def select(changed: list[str], root: Path = ROOT) -> list[str]:
    """Return the test files of changed files, those closest to the change first."""
    tests = {path.relative_to(root).as_posix(): path for path in sorted((root / 'tests').rglob('test_*.py'))}
    tests = {name: path for name, path in tests.items() if not name.startswith('tests/slurm/')}
    own = [name for name in changed if name in tests]
    modules = {_module(name) for name in changed if name.endswith('.py') and name not in tests}
    importing = [name for name, path in tests.items() if modules & _imported(path, root)]
    of_files = TESTS_OF_FILES if any(re.fullmatch(OF_FILES, name) for name in changed) else ()
    folders = {_folder(name) for name in changed if name not in tests}
    words = [_words(name) for name in changed if name not in tests]
    shared = {name: max((len(_words(name) & one) for one in words), default=0) for name in tests}
    near = [name for name in tests if name.split('/')[1] in folders or shared[name] > 1]
    closest = [*own, *importing, *(name for name in of_files if name in tests)]
    return list(dict.fromkeys([*closest, *sorted(near, key=lambda name: -shared[name])]))


def _module(name: str) -> str:
    for folder in ('tests/', 'examples/', 'docs/results/'):  # whose files are imported by their own names
        name = name.removeprefix(folder)
    return name.removesuffix('.py').removesuffix('/__init__').replace('/', '.')


def _folder(name: str) -> str:
    parts = name.split('/')
    above = next((folder for place, folder in BY_FOLDER.items() if name.startswith(f'{place}/')), '')
    if above or parts[0] != 'mmlape':
        return above
    folders = parts[1:-1]
    if folders[:1] == ['lab']:
        folders = folders[1:]
    return folders[0] if folders else 'environment'


def _words(name: str) -> set[str]:
    """Return the words of a path, without those of every path and without an s at their end."""
    words = re.split(r'[/_.-]', name.removesuffix('.py'))
    return {word.rstrip('s') for word in words} - {'mmlape', 'test', 'model', 'config', 'base', ''}


@cache
def _imported(path: Path, root: Path) -> frozenset[str]:
    """Return what a test imports, and what the helpers of the tests import that it imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f'{node.module}.{alias.name}' for alias in node.names)}
    helpers = [root / 'tests' / f'{name}.py' for name in found]
    return frozenset(found.union(*(_imported(helper, root) for helper in helpers if helper.is_file())))


class Deadline:
    """A pytest plugin that stops the run when its time is over, and counts the tests."""

    def __init__(self, seconds: float) -> None:
        self.end, self.collected, self.done, self.failed = time.monotonic() + seconds, 0, set(), False

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids):
        self.collected = len(ids)
        self.manager = node.config.pluginmanager.getplugin('dsession')

    def pytest_collectreport(self, report):
        self.failed |= report.failed

    def pytest_runtest_logreport(self, report):
        self.done.add(report.nodeid)
        self.failed |= report.failed
        if time.monotonic() > self.end:
            self.manager.shouldstop = f'{LIMIT} s are over'


def main(commit: str = '') -> int:
    changed = changed_files(commit)
    tests = select(changed)
    print(f'{len(changed)} changed files, {len(tests)} files of tests')
    if not tests:
        return 0
    for name in tests:
        print(f'  {name}')
    deadline = Deadline(LIMIT)
    # small portions, so that what is first in the list runs first
    workers = ['-n', os.environ.get('WORKERS', '2'), '--dist', 'load', '--maxschedchunk', '8']
    status = pytest.main([*workers, '-m', 'not slow', '--no-header', *tests], plugins=[deadline])
    ran, left = len(deadline.done), deadline.collected - len(deadline.done)
    print(f'fast tests that ran: {ran}; left out after {LIMIT} s: {left}; `make test` runs all')
    only_stopped = left > 0 and status == pytest.ExitCode.INTERRUPTED and not deadline.failed
    return 0 if only_stopped or status == pytest.ExitCode.NO_TESTS_COLLECTED else int(status)


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
