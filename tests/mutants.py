"""Change one operator, number, name or argument of the package at random, and see whether a test fails.

    python tests/mutants.py --seed 1 [--count 100] [--minutes 60] [--record]

mutmut makes the changes in the functions of `FOLDERS`; a seed draws from all of them. Not drawn is what changes only
sentences: texts with a blank, help of options, and what is raised. Each mutant runs against the fast tests that run its
statement, those of its own folder first, until one fails. What a test runs is recorded once, and again after a change
of what it runs. The results are kept in build/mutants: a call that was killed continues.
"""

import argparse
import ast
import difflib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import NamedTuple

import check
from forked_pytest import ROOT, copy_package, import_libraries, start, wait

FOLDERS = ('commands', 'engine', 'experiments', 'analysis', 'datasets', 'checkpoint', 'runs', 'evaluation')
TESTED_BY = (*FOLDERS, 'environment')
STATE = ROOT / 'build' / 'mutants'
RECORD = ROOT / 'docs' / 'results' / 'mutants.json'
TEXTS = {'help', 'description', 'epilog', 'metavar'}
SECONDS = 90
"""What a mutant's tests may have taken together, without it, when their lines were recorded."""
AT_ONCE = 2
ENDLESS = signal.SIGXCPU


class Mutant(NamedTuple):
    """A file of the package, the number of a change there, and the file's text with it."""

    file: str
    number: int
    text: str

    def lines(self) -> list[int]:
        """Return the lines of the changed statement; of a function's own line those of its body."""
        old = (ROOT / self.file).read_text()
        return _statement(ast.parse(old), self.line())

    def line(self) -> int:
        return next(_changes(self))[0]

    def __str__(self) -> str:
        number, old, new = next(_changes(self))
        return f'{self.file}:{number}: {old} -> {new}'


def _changes(mutant: Mutant) -> Iterator[tuple[int, str, str]]:
    old, new = (ROOT / mutant.file).read_text().splitlines(), mutant.text.splitlines()
    for kind, first, last, start_, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != 'equal':
            texts = (' '.join(line.strip() for line in part) for part in (old[first:last], new[start_:end]))
            yield (min(first + 1, len(old)), *texts)


def _statement(tree: ast.Module, line: int) -> list[int]:
    inside = [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= node.end_lineno
    ]
    innermost = max(inside, key=lambda node: (node.lineno, -node.end_lineno))
    body = getattr(innermost, 'body', None)
    if not isinstance(body, list):
        return list(range(innermost.lineno, innermost.end_lineno + 1))
    if isinstance(innermost, ast.FunctionDef):
        return list(range(body[0].lineno, body[-1].end_lineno + 1))
    return list(range(innermost.lineno, max(body[0].lineno, innermost.lineno + 1)))


def files() -> list[str]:
    found = (path for folder in FOLDERS for path in sorted((ROOT / 'mmlape' / folder).rglob('*.py')))
    return [path.relative_to(ROOT).as_posix() for path in found]


@cache
def _changed_nodes(file: str) -> tuple:
    os.chdir(ROOT)  # mutmut reads pyproject.toml in the folder
    from mutmut.mutation.file_mutation import create_mutations

    module, found, *_ = create_mutations(file, (ROOT / file).read_text())
    return module, [change for change in found if change.contained_by_top_level_function]


def mutant(file: str, number: int) -> Mutant | None:
    """Return a mutant, or None where it changes no more than sentences."""
    module, found = _changed_nodes(file)
    change = found[number]
    text = module.deep_replace(change.original_node, change.mutated_node).code
    try:
        same = _without_sentences(module.code) == _without_sentences(text)
    except SyntaxError:
        return None
    return None if same else Mutant(file, number, text)


def _without_sentences(code: str) -> str:
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and ' ' in node.value:
            node.value = ''
        elif isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in TEXTS]
        elif isinstance(node, ast.Raise):
            node.exc = None
    return ast.dump(tree)


def population() -> list[tuple[str, int]]:
    """Return every change that mutmut makes, as file and number."""
    key = hashlib.sha256(''.join((ROOT / file).read_text() for file in files()).encode()).hexdigest()[:12]
    kept = STATE / f'population-{key}.json'
    if not kept.is_file():
        print('asks mutmut for its mutants', flush=True)
        counts = {}
        for file in files():
            counts[file] = len(_changed_nodes(file)[1])
            _changed_nodes.cache_clear()
        kept.write_text(json.dumps(counts))
    return [(file, number) for file, count in json.loads(kept.read_text()).items() for number in range(count)]


def draw(seed: int) -> Iterator[Mutant]:
    """Yield the mutants in the order of a seed."""
    order = population()
    random.Random(seed).shuffle(order)
    yield from filter(None, (mutant(*one) for one in order))


class Tests:
    """Which tests run which lines."""

    def __init__(self, temp: str) -> None:
        self.temp, self.found = temp, {}
        (STATE / 'lines').mkdir(parents=True, exist_ok=True)

    def record(self) -> None:
        """Run every test file whose lines are not known, and say how far it is."""
        names = [
            path.relative_to(ROOT).as_posix()
            for folder in TESTED_BY
            for path in sorted((ROOT / 'tests' / folder).glob('test_*.py'))
        ]
        missing = [name for name in names if not self._known(name)]
        begin, waiting, folders, started = time.monotonic(), list(missing), {}, {}
        for done in range(1, len(missing) + 1):
            while waiting and len(folders) < AT_ONCE:
                name, folder = waiting.pop(0), copy_package(self.temp)
                _hash(name)  # as it is now
                child = start(folder, name, *PLUGIN, '--lines-to', str(self._file(name, '.new')))
                folders[child], started[child] = folder, name
            child, status, text = wait(folders)
            self._keep(started[child])
            minutes = (time.monotonic() - begin) / done * (len(missing) - done) / 60
            print(f'[{done}/{len(missing)}, {minutes:.0f} min left] {started[child]}: {status} {text}', flush=True)
        for name in names:
            if self._file(name).is_file():
                self.found |= json.loads(self._file(name).read_text())['tests']

    def _file(self, name: str, ending: str = '.json') -> Path:
        return STATE / 'lines' / f'{name.replace("/", "-").removesuffix(".py")}{ending}'

    def _keep(self, name: str) -> None:
        new = self._file(name, '.new')
        tests = json.loads(new.read_text()) if new.is_file() else {}
        new.unlink(missing_ok=True)
        seen = {name, *(file for found in tests.values() for file in found['lines'])}
        self._file(name).write_text(json.dumps({'of': {file: _hash(file) for file in seen}, 'tests': tests}))

    def _known(self, name: str) -> bool:
        kept = self._file(name)
        return kept.is_file() and all(
            _hash(file) == of for file, of in json.loads(kept.read_text())['of'].items()
        )

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run a mutant's statement, those of its own folder first."""
        wanted = sum(1 << line for line in mutant.lines())
        names = [name for name, found in self.found.items() if int(found['lines'].get(mutant.file, '0'), 16) & wanted]
        near = {name: number for number, name in enumerate(check.select([mutant.file]))}

        def order(name: str) -> tuple:
            file = name.partition('::')[0]
            return near.get(file, len(near)), file, self.found[name]['seconds']

        chosen, seconds = [], 0.0
        for name in sorted(names, key=order):
            seconds += self.found[name]['seconds']
            if seconds < SECONDS or not chosen:
                chosen.append(name)
        return chosen


@cache
def _hash(file: str) -> str:
    path = ROOT / file
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else ''


PLUGIN = ('-p', 'seen_lines', '-m', 'not slow', '--maxfail=9999')


class Results:
    """What became of each mutant, in a file with a line for each."""

    def __init__(self, file: Path) -> None:
        self.file = file
        lines = file.read_text().splitlines() if file.is_file() else []
        self.done = {(one['file'], one['number']): one for one in map(json.loads, lines)}

    def add(self, mutant: Mutant, result: str, text: str, tests: int) -> None:
        one = dict(file=mutant.file, number=mutant.number, change=str(mutant), result=result, test=text, tests=tests)
        self.done[mutant.file, mutant.number] = one
        with self.file.open('a') as out:
            out.write(json.dumps(one) + '\n')

    def killed(self) -> int:
        return sum(one['result'] == 'killed' for one in self.done.values())


def run(mutants: list[Mutant], tests: Tests, results: Results, temp: str, end: float) -> None:
    """Run the tests of each mutant that has no result, until a time."""
    waiting = [one for one in mutants if (one.file, one.number) not in results.done]
    begin, count, folders, started = time.monotonic(), len(waiting), {}, {}
    while waiting or folders:
        while waiting and len(folders) < AT_ONCE and time.monotonic() < end:
            mutant = waiting.pop(0)
            chosen = tests.of(mutant)
            if not chosen:
                results.add(mutant, 'not reached', '', 0)
                _tell(mutant, results, len(mutants), begin, count - len(waiting), count)
                continue
            folder = copy_package(temp)
            (folder / mutant.file).write_text(mutant.text)
            list_of = folder / 'chosen.json'
            list_of.write_text(json.dumps(chosen))
            files_of = sorted({name.partition('::')[0] for name in chosen})
            child = start(folder, *files_of, '-p', 'seen_lines', '--chosen', str(list_of))
            folders[child], started[child] = folder, (mutant, len(chosen))
        if not folders:
            return
        child, status, text = wait(folders)
        mutant, number = started.pop(child)
        result = {0: 'survived', 1: 'killed', 2: 'killed', -ENDLESS: 'killed'}.get(status, f'no result ({status})')
        results.add(mutant, result, text, number)
        _tell(mutant, results, len(mutants), begin, count - len(waiting) - len(folders), count)


def _tell(mutant: Mutant, results: Results, wanted: int, begin: float, done: int, count: int) -> None:
    minutes = (time.monotonic() - begin) / done * (count - done) / 60
    one = results.done[mutant.file, mutant.number]
    share = results.killed() / len(results.done)
    print(
        f'[{len(results.done)}/{wanted}, {minutes:.0f} min left, {share:.0%} killed] '
        f'{one["result"].upper() if one["result"] != "killed" else "killed"}: {one["change"][:160]} | {one["test"][:120]}',
        flush=True,
    )


def interval(killed: int, drawn: int) -> tuple[float, float]:
    """Return Wilson's interval of 95 % for a share."""
    z, share = 1.959964, killed / drawn
    middle = (share + z**2 / (2 * drawn)) / (1 + z**2 / drawn)
    half = z / (1 + z**2 / drawn) * (share * (1 - share) / drawn + z**2 / (4 * drawn**2)) ** 0.5
    return middle - half, middle + half


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seed', type=int, default=random.SystemRandom().randrange(10**6), help='default: any')
    parser.add_argument('--count', type=int, default=100, help='mutants to draw (default: 100)')
    parser.add_argument('--minutes', type=float, default=float('inf'), help='starts no more after them (default: no end)')
    parser.add_argument('--record', action='store_true', help=f'write {RECORD.relative_to(ROOT)}, which the docs show')
    parser.add_argument('--lines-only', action='store_true', help='record the lines of the tests, and end')
    args = parser.parse_args()
    STATE.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * args.minutes
    print(f'seed {args.seed}')
    import_libraries()
    with tempfile.TemporaryDirectory(prefix='mutants-') as temp:
        tests = Tests(temp)
        tests.record()
        if args.lines_only:
            return 0
        drawn = [one for one, _ in zip(draw(args.seed), range(args.count))]
        results = Results(STATE / f'seed-{args.seed}-{_tree()}.jsonl')
        run(drawn, tests, results, temp, end)
    print(f'{results.killed()} of {len(results.done)} killed')
    return 0


def _tree() -> str:
    """Return a short name of the package's text, to which results belong."""
    return hashlib.sha256(''.join(_hash(file) for file in files()).encode()).hexdigest()[:8]


if __name__ == '__main__':
    sys.exit(main())
