"""What draws mutants and counts them: the lines of tests, the statements of changes, the interval."""

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
