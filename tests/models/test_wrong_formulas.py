"""The wrong formulas still fit the code; `python tests/wrong_formulas.py` runs the tests on each."""

import ast
from collections import Counter
from functools import cache
from itertools import accumulate

import pytest
from wrong_formulas import FORMULAS, OWN_TESTS, ROOT, WrongFormula


@cache
def read(file):
    """Return the text of a file, and where its statements begin in it, decorators included."""
    text = (ROOT / file).read_text()
    ends = list(accumulate(map(len, text.splitlines(keepends=True)), initial=0))
    parts = [(node, *getattr(node, 'decorator_list', ())) for node in ast.parse(text).body]
    return text, [ends[min(part.lineno for part in each) - 1] for each in parts[1:]]


def statements(formula):
    """Return the part of its file, in complete statements, that a formula changes: parsing all takes long."""
    text, begins = read(formula.file)
    formula.put_into(text)  # raises if it does not fit
    places = [(text.index(old), text.index(old) + len(old)) for old in formula.texts[::2] if old in text]
    first, last = min(begin for begin, _ in places), max(end for _, end in places)
    begin = max((place for place in begins if place <= first), default=0)
    return text[begin : min((place for place in begins if place >= last), default=len(text))]


def misfits(formulas):
    """Yield a line for each formula that does not fit its file, and for each name that several have."""
    for name, count in Counter(formula.name for formula in formulas).items():
        if count > 1:
            yield f'{name}: the name of {count} formulas'
    for formula in formulas:
        try:
            ast.parse(formula.put_into(statements(formula)))
        except (OSError, SyntaxError, ValueError) as error:
            yield f'{formula.name}: {error}'
            continue
        for old, new in zip(formula.texts[::2], formula.texts[1::2]):
            if old.split() == new.split():
                yield f'{formula.name}: {old!r} is replaced by itself'


def test_the_formulas_fit_their_files():
    tests = {word.partition('::')[0] for words in OWN_TESTS.values() for word in words if word.startswith('tests/')}
    assert not [name for name in {*OWN_TESTS, *tests} if not (ROOT / name).exists()]
    found = list(misfits(FORMULAS))
    assert not found, f'{len(found)} do not fit:\n' + '\n'.join(found)


@pytest.mark.parametrize(
    ('texts', 'words'),
    [
        (('nowhere', '1'), "0 times in mmlape/errors.py instead of once: 'nowhere'"),
        (('class', '1'), "times in mmlape/errors.py instead of once: 'class'"),
        (('class ConfigError(', 'class  ConfigError('), 'is replaced by itself'),
        (('class ConfigError(', 'class Other(', 'class DataError(', 'class DataError('), 'is replaced by itself'),
        (('class ConfigError(', 'class ('), 'invalid syntax'),
        (('class ConfigError(', 'class Other(', 'odd'), 'zip()'),
    ],
    ids=['missing', 'twice', 'same', 'one of two', 'no Python', 'without its other'],
)
def test_each_formula_that_does_not_fit_is_told(texts, words):
    formula = WrongFormula('a name', 'mmlape/errors.py', texts)
    (line,) = misfits([formula])
    assert line.startswith('a name: ') and words in line
    twice = WrongFormula('a name', 'no_such_file.py', ('y', 'z'))
    assert len(list(misfits([formula, twice, FORMULAS[0]]))) == 3
