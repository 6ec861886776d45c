"""The wrong formulas still fit the code; `python tests/wrong_formulas.py` runs the tests on each."""

import ast

import pytest
from wrong_formulas import FORMULAS, ROOT, WrongFormula


@pytest.mark.parametrize('formula', FORMULAS, ids=lambda formula: formula.name)
def test_a_formula_fits_its_file(formula):
    text = (ROOT / formula.file).read_text()
    wrong = formula.put_into(text)
    assert ast.dump(ast.parse(wrong)) != ast.dump(ast.parse(text))
    assert all(old != new for old, new in zip(formula.texts[::2], formula.texts[1::2], strict=True))


def test_names_are_unique():
    assert len({formula.name for formula in FORMULAS}) == len(FORMULAS)


@pytest.mark.parametrize('text', ['x = 1\n', 'x = y + y\n'], ids=['missing', 'twice'])
def test_text_that_is_not_there_exactly_once_is_an_error(text):
    with pytest.raises(ValueError, match='times in some_file instead of once'):
        WrongFormula('name', 'some_file', ('y', 'z')).put_into(text)
