"""The wrong formulas still fit the code; `python tests/wrong_formulas.py` runs the tests on each."""

import ast
from functools import cache

import pytest
from wrong_formulas import FORMULAS, ROOT, WrongFormula


@cache
def read(file: str) -> tuple[str, str]:
    """The text of a file, and what it means."""
    text = (ROOT / file).read_text()
    return text, ast.dump(ast.parse(text))


@pytest.mark.parametrize('formula', FORMULAS, ids=lambda formula: formula.name)
def test_a_formula_fits_its_file(formula):
    text, meaning = read(formula.file)
    assert ast.dump(ast.parse(formula.put_into(text))) != meaning
    assert all(old != new for old, new in zip(formula.texts[::2], formula.texts[1::2], strict=True))


def test_names_are_unique():
    assert len({formula.name for formula in FORMULAS}) == len(FORMULAS)


@pytest.mark.parametrize('text', ['x = 1\n', 'x = y + y\n'], ids=['missing', 'twice'])
def test_text_that_is_not_there_exactly_once_is_an_error(text):
    with pytest.raises(ValueError, match='times in some_file instead of once'):
        WrongFormula('name', 'some_file', ('y', 'z')).put_into(text)
