"""Change one operator, number, name or argument of the package at random, and see whether a test fails.

    python tests/mutants.py --seed 1 [--count 120] [--minutes 60] [--record]
    python tests/mutants.py --changed

mutmut makes the changes in the functions of the package; a seed draws from all of them, from each folder in turn. Not
drawn is what changes only sentences: texts with a blank, help of options, and what is raised. Each mutant runs against
the fast tests that run its statement, those of its own folder first, until one fails. What a test runs is recorded
once, and again after a change of what it runs. The results are kept in build/mutants, where a call that was killed
continues. With ``--changed``, mutants are of the lines that differ from main, and tests those of `make check`.
"""

import argparse
import ast
import difflib
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date
from functools import cache
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

import check
from forked_pytest import ROOT, copy_package, import_libraries, start, wait

LEFT_OUT = ('docs', 'slurm', 'environment')
"""Folders of tests that run what is installed or written, not the package."""
OF_COMMANDS = ('told_commands', 'caches', 'cli', 'command_contract', 'doctor', 'hostile_files', 'shell_tools')
"""The tests of `tests/environment` that do run it."""
STATE = ROOT / 'build' / 'mutants'
RECORD = ROOT / 'docs' / 'results' / 'mutants.json'
TEXTS = {'help', 'description', 'epilog', 'metavar'}
SECONDS = 90
"""What a mutant's tests may take together, without it, on a quiet machine."""
AT_ONCE = 2
RESULTS = {0: 'survived', 1: 'killed', 2: 'killed'}
"""By pytest's status: all passed, one failed, or the tests could not even be imported."""
PLUGIN = ('-p', 'seen_lines', '-m', 'not slow', '--maxfail=9999')


class Mutant(NamedTuple):
    """A file of the package, the number of a change there, and the file's text with it."""

    file: str
    number: int
    text: str

    def line(self) -> int:
        return next(_changes(self))[0]

    def lines(self) -> list[int]:
        """Return the lines of the changed statement; of a function's own line those of its body."""
        return _statement(ast.parse((ROOT / self.file).read_text()), self.line())

    def __str__(self) -> str:
        number, old, new = next(_changes(self))
        return f'{self.file}:{number}: {old} -> {new}'


def _changes(mutant: Mutant) -> Iterator[tuple[int, str, str]]:
    old, new = (ROOT / mutant.file).read_text().splitlines(), mutant.text.splitlines()
    for kind, first, last, begin, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != 'equal':
            texts = (' '.join(line.strip() for line in part) for part in (old[first:last], new[begin:end]))
            yield (min(first + 1, len(old)), *texts)


def _statement(tree: ast.Module, line: int) -> list[int]:
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    inside = [node for node in statements if node.lineno <= line <= node.end_lineno]
    innermost = max(inside, key=lambda node: (node.lineno, -node.end_lineno))
    body = getattr(innermost, 'body', None)
    if not isinstance(body, list):
        return list(range(innermost.lineno, innermost.end_lineno + 1))
    if isinstance(innermost, ast.FunctionDef):
        return list(range(body[0].lineno, body[-1].end_lineno + 1))
    return list(range(innermost.lineno, max(body[0].lineno, innermost.lineno + 1)))


def files() -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / 'mmlape').rglob('*.py'))]


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


@cache
def population() -> list[tuple[str, int]]:
    """Return every change that mutmut makes, as file and number."""
    kept = STATE / f'population-{_tree()}.json'
    if not kept.is_file():
        print('asks mutmut for its mutants', flush=True)
        counts = {}
        for file in files():
            counts[file] = len(_changed_nodes(file)[1])
            _changed_nodes.cache_clear()
        kept.write_text(json.dumps(counts))
    return [(file, number) for file, count in json.loads(kept.read_text()).items() for number in range(count)]


def folder_of(file: str) -> str:
    """Return 'models' of mmlape/models/..., 'lab/runs' of mmlape/lab/runs/..., 'modules' of those beside them."""
    parts = file.split('/')[1:-1]
    return '/'.join(parts[: 2 if parts[:1] == ['lab'] else 1]) or 'modules'


def draw(seed: int, count: int) -> list[Mutant]:
    """Return the first mutants of a seed, of each folder in turn; they are kept for a call that continues."""
    kept = STATE / f'drawn-{seed}-{_tree()}.json'
    drawn = [Mutant(*one) for one in json.loads(kept.read_text())] if kept.is_file() else []
    if len(drawn) < count:
        order = list(population())
        random.Random(seed).shuffle(order)
        drawn = list(islice(filter(None, (mutant(*one) for one in in_turn(order))), count))
        kept.write_text(json.dumps(drawn))
    return drawn[:count]


def in_turn(changes: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield the first change of each folder, then the second of each, as far as they go."""
    by_folder = {}
    for change in changes:
        by_folder.setdefault(folder_of(change[0]), []).append(change)
    for row in zip_longest(*(by_folder[name] for name in sorted(by_folder))):
        yield from filter(None, row)


def of_lines(changed: dict[str, set[int]]) -> list[Mutant]:
    """Return the mutants of changed lines, in an order that is the same for the same change."""
    found = [
        one
        for file, lines in changed.items()
        for number in range(len(_changed_nodes(file)[1]))
        if (one := mutant(file, number)) and one.line() in lines
    ]
    random.Random(0).shuffle(found)
    return found


class Tests:
    """Which tests run which lines, as `seen_lines` writes it."""

    def __init__(self, found: dict[str, dict]) -> None:
        self.found = found

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


class Recording:
    """Runs every test file whose lines are not known, and keeps what it found."""

    def __init__(self, temp: str) -> None:
        self.temp = temp
        (STATE / 'lines').mkdir(parents=True, exist_ok=True)

    def tests(self, of_change: bool) -> Tests:
        """Record what is missing of the tests, or of those of what has changed, and return them."""
        paths = [ROOT / f'tests/environment/test_{name}.py' for name in OF_COMMANDS]
        paths += [path for path in sorted(ROOT.glob('tests/*/test_*.py')) if path.parent.name not in LEFT_OUT]
        names = [path.relative_to(ROOT).as_posix() for path in paths]
        if of_change:
            names = [name for name in check.select(check.changed_files()) if name in names]
        missing = [name for name in names if not self._known(name)]
        begin, waiting, folders, started = time.monotonic(), list(missing), {}, {}
        for done in range(1, len(missing) + 1):
            while waiting and len(folders) < AT_ONCE:
                name = waiting.pop(0)
                _hash(name)  # as it is now
                folder = copy_package(self.temp)
                child = start(folder, name, *PLUGIN, '--lines-to', str(self._file(name, '.new')))
                folders[child], started[child] = folder, name
            child, status, text = wait(folders)
            self._keep(started[child])
            minutes = (time.monotonic() - begin) / done * (len(missing) - done) / 60
            print(f'[{done}/{len(missing)}, {minutes:.0f} min left] {started[child]}: {status} {text}', flush=True)
        found = {}
        for name in names:
            if self._file(name).is_file():
                found |= json.loads(self._file(name).read_text())['tests']
        return Tests(found)

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
        return kept.is_file() and all(_hash(file) == of for file, of in json.loads(kept.read_text())['of'].items())


@cache
def _hash(file: str) -> str:
    path = ROOT / file
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else ''


def _tree() -> str:
    """Return a short name of the package's text, to which results belong."""
    return hashlib.sha256(''.join(_hash(file) for file in files()).encode()).hexdigest()[:8]


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

    def line(self, mutant: Mutant) -> str:
        one = self.done[mutant.file, mutant.number]
        result = one['result'] if one['result'] == 'killed' else one['result'].upper()
        share = f'{self.killed()} of {len(self.done)} killed'
        return f'{share}; {result}: {one["change"][:160]} | {one["test"][:120]}'

    def killed(self) -> int:
        return sum(one['result'] == 'killed' for one in self.done.values())


def run(mutants: list[Mutant], tests: Tests, results: Results, temp: str, end: float) -> None:
    """Run the tests of each mutant that has no result, and start none after a time."""
    waiting = [one for one in mutants if (one.file, one.number) not in results.done]
    begin, count, folders, started = time.monotonic(), len(waiting), {}, {}

    def tell(mutant: Mutant) -> None:
        done = count - len(waiting) - len(folders)
        minutes = (time.monotonic() - begin) / done * (count - done) / 60
        print(f'[{len(results.done)}/{len(mutants)}, {minutes:.0f} min left] {results.line(mutant)}', flush=True)

    while waiting or folders:
        while waiting and len(folders) < AT_ONCE and time.monotonic() < end:
            mutant = waiting.pop(0)
            chosen = tests.of(mutant)
            if chosen:
                child, folder = _start(mutant, chosen, temp)
                folders[child], started[child] = folder, (mutant, len(chosen))
            else:
                results.add(mutant, 'not reached', '', 0)
                tell(mutant)
        if not folders:
            return
        child, status, text = wait(folders)
        mutant, number = started.pop(child)
        results.add(mutant, RESULTS.get(status, f'no result ({status})'), text, number)
        tell(mutant)


def _start(mutant: Mutant, chosen: list[str], temp: str) -> tuple[int, Path]:
    folder = copy_package(temp)
    (folder / mutant.file).write_text(mutant.text)
    return _start_chosen(folder, chosen), folder


def _start_chosen(folder: Path, chosen: list[str]) -> int:
    list_of = folder / 'chosen.json'
    list_of.write_text(json.dumps(chosen))
    names = sorted({name.partition('::')[0] for name in chosen})
    return start(folder, *names, '-p', 'seen_lines', '--chosen', str(list_of))


def confirm(results: Results, temp: str) -> None:
    """Run the tests that failed once more without a mutant: one that fails here, too, has killed nothing."""
    names = sorted({one['test'].partition(': ')[0] for one in results.done.values() if one['result'] == 'killed'})
    names = [name for name in names if '::' in name]
    while names:
        folder = copy_package(temp)
        _, status, text = wait({_start_chosen(folder, names): folder})
        if status == 0:
            return
        print(f'fails without a mutant: {text}')
        name = text.partition(': ')[0]
        for one in results.done.values():
            if one['test'].startswith(name):
                one['result'] = 'no result'
        if name not in names:
            return
        names.remove(name)


def share(folders: dict[str, tuple[int, int, int]]) -> tuple[float, float, float]:
    """Return the share that died, with an interval of 95 %, of all changes: folders weigh as many as they have.

    Args:
        folders: How many died, were drawn, and can be drawn, by folder.
    """
    everything = sum(changes for *_, changes in folders.values())
    middle = variance = 0.0
    for killed, drawn, changes in folders.values():
        middle += changes / everything * killed / drawn
        near = (killed + 1) / (drawn + 2)  # so that a folder of which all died is not certain
        variance += (changes / everything) ** 2 * near * (1 - near) / drawn
    half = 1.96 * variance**0.5
    return middle, max(middle - half, 0.0), min(middle + half, 1.0)


def summary(done: list[dict], seed: int) -> dict:
    """Return what the docs show of a run: a mutant without a result counts as alive."""
    drawn = Counter(folder_of(one['file']) for one in done)
    killed = Counter(folder_of(one['file']) for one in done if one['result'] == 'killed')
    changes = Counter(folder_of(file) for file, _ in population())
    folders = {name: (killed[name], count, changes[name]) for name, count in sorted(drawn.items())}
    middle, low, high = share(folders)
    commit = subprocess.run(['git', 'rev-parse', 'HEAD'], cwd=ROOT, capture_output=True, text=True).stdout[:12]
    return dict(
        date=str(date.today()), seed=seed, commit=commit, population=len(population()), drawn=len(done),
        killed=killed.total(), share=round(middle, 3), low=round(low, 3), high=round(high, 3),
        not_reached=sum(one['result'] == 'not reached' for one in done), folders=folders,
        alive=[one['change'] for one in done if one['result'] != 'killed'],
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add('--seed', type=int, default=random.SystemRandom().randrange(10**6), help='default: any')
    add('--count', type=int, default=120, help='mutants to draw (default: 120)')
    add('--minutes', type=float, default=float('inf'), help='start no more after them (default: no end)')
    add('--record', action='store_true', help=f'write {RECORD.relative_to(ROOT)}, which the docs show')
    add('--changed', action='store_true', help='mutants of the lines that have changed since main')
    args = parser.parse_args()
    STATE.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * args.minutes
    print(f'seed {args.seed}')
    import_libraries()
    with tempfile.TemporaryDirectory(prefix='mutants-') as temp:
        tests = Recording(temp).tests(args.changed)
        drawn = of_lines(check.changed_lines())[: args.count] if args.changed else draw(args.seed, args.count)
        results = Results(STATE / f'{"changed" if args.changed else f"seed-{args.seed}"}-{_tree()}.jsonl')
        run(drawn, tests, results, temp, end)
        confirm(results, temp)
    if args.changed:
        print(f'{results.killed()} of {len(results.done)} killed, of {len(drawn)} mutants of the changed lines')
        return 0
    found = summary(
        [one for one in map(results.done.get, ((one.file, one.number) for one in drawn)) if one], args.seed
    )
    print(f'{found["killed"]} of {found["drawn"]} killed, {found["share"]:.0%} of all changes by the folders\' sizes '
          f'({found["low"]:.0%} to {found["high"]:.0%})')  # fmt: skip
    for name, (killed, drawn, _) in found['folders'].items():
        print(f'  {name}: {killed} of {drawn}')
    if args.record:
        RECORD.write_text(json.dumps(found, indent=2) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
