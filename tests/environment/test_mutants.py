"""What draws mutants and counts them: the lines of tests, the statements of changes, the interval."""

import json
import subprocess
import sys

import mutants
import pytest
import tiny
from mutants import Mutant, Tests
from scipy.stats import binomtest

FILE = 'mmlape/lab/runs/locks.py'


def test_folders_are_drawn_in_turn_and_weigh_by_their_size():
    changes = [('mmlape/models/a.py', number) for number in range(5)] + [('mmlape/lab/runs/b.py', 0)]
    changes += [('mmlape/files.py', 0)]
    drawn = list(mutants.in_turn(changes))
    assert [mutants.folder_of(file) for file, _ in drawn[:4]] == ['lab/runs', 'models', 'modules', 'models']
    assert sorted(drawn) == sorted(changes)
    middle, low, high = mutants.share({'a': (5, 10, 900), 'b': (10, 10, 100)})
    assert middle == pytest.approx(0.55) and low < 0.35 and 0.75 < high <= 1
    alone = mutants.share({'a': (75, 100, 1)})
    expected = binomtest(75, 100).proportion_ci(method='wilson')
    assert alone[1:] == pytest.approx((expected.low, expected.high), abs=0.02)


def test_the_tests_of_a_mutant_are_those_that_run_its_statement():
    source = (tiny.ROOT / FILE).read_text().splitlines()
    number, line = next((n, line) for n, line in enumerate(source, 1) if line.startswith('    return '))
    mutant = Mutant(FILE, 0, '\n'.join([*source[: number - 1], '    return None', *source[number:]]))
    assert mutant.line() == number and number in mutant.lines()
    assert str(mutant) == f'{FILE}:{number}: {line.strip()} -> return None'
    ran = dict(seconds=1.0, lines={FILE: f'{1 << number:x}'})
    other = dict(seconds=1.0, lines={FILE: f'{1 << len(source) + 1:x}'})
    near, far = 'tests/runs/test_run_rules.py::test_a', 'tests/models/test_vit.py::test_b'
    found = {far: ran, near: ran, 'tests/runs/test_x.py::test_c': other}
    assert Tests(found).of(mutant) == [near, far]
    assert Tests({near: dict(ran, seconds=1000.0), far: ran}).of(mutant) == [near], 'there is a limit, but one runs'


TESTS = """
import subprocess, sys
from mmlape.files import write_json

def test_itself(tmp_path):
    write_json(tmp_path / 'a.json', {})

def test_a_fork(tmp_path):
    code = f"from mmlape.files import write_json; write_json({str(tmp_path / 'a.json')!r}, {{}})"
    subprocess.run([sys.executable, '-c', code], check=True)

def test_neither():
    pass

def test_that_fails():
    write_json(None, {})
"""


@pytest.mark.release
@pytest.mark.skipif(sys.version_info < (3, 12), reason='Python has sys.monitoring since 3.12')
def test_lines_of_a_test_are_its_own_and_those_of_its_forks(tmp_path):
    (tmp_path / 'test_a.py').write_text(TESTS)
    (tmp_path / 'conftest.py').write_text('import sys, forking_python\nsys.executable = forking_python.executable()\n')
    lines = tmp_path / 'lines.json'
    words = ('-p', 'seen_lines', '--lines-to', lines, '-p', 'no:cacheprovider', '--rootdir', tmp_path)
    environment = tiny.environment(PYTHONPATH=f'{tiny.ROOT}:{tiny.ROOT / "tests"}', **tiny.REAL)
    command = [sys.executable, '-m', 'pytest', '-q', '-c', '/dev/null', *words, tmp_path]
    done = subprocess.run(list(map(str, command)), env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    found = {name.partition('::')[2]: one['lines'] for name, one in json.loads(lines.read_text()).items()}
    assert set(found) == {'test_itself', 'test_a_fork', 'test_neither'}
    file = 'mmlape/files.py'
    own = int(found['test_itself'][file], 16)
    assert own and int(found['test_a_fork'][file], 16) & own == own and file not in found['test_neither']
