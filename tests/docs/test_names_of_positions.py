"""The reference names every kind of position encoding with its arguments; reports have a name for each."""

import inspect
import re
import sys
from pathlib import Path

import pytest

from mmlape.models.position import AbsolutePosition, AttentionPosition, LayerPosition, joinings, kinds

ROOT = Path(__file__).parents[2]
REFERENCE = 'docs/reference/position.md'
SECTIONS = {'Absolute': AbsolutePosition, 'Inside attention': AttentionPosition, 'Between layers': LayerPosition}


def read(file: str) -> str:
    return (ROOT / file).read_text()


@pytest.mark.parametrize('title', SECTIONS)
def test_every_kind_has_a_row_with_its_arguments(title):
    section = re.search(rf'^## {title}$(.*?)^## ', read(REFERENCE), re.DOTALL | re.MULTILINE)[1]
    rows = dict(re.findall(r'^\| `([a-z0-9-]+)` (\|.*)$', section, re.MULTILINE))
    found = {kind.name: kind for kind in kinds(SECTIONS[title])}
    where = f"{REFERENCE}, section '{title}'"
    assert not set(rows) - set(found), f'{where}: no such kind is registered'
    for name, kind in found.items():
        assert name in rows, f'{where}: write a row | `{name}` | what it is | its arguments | its source |'
        for option in inspect.signature(type(kind)).parameters:
            assert re.search(rf'\b{option}\b', rows[name]), f'{where}: the row of `{name}` does not name {option}'


def test_reports_have_a_name_for_each():
    for one in (*kinds(object), *joinings().values()):
        file = Path(sys.modules[type(one).__module__].__file__).name
        assert 'paper_name' in vars(type(one)), f"mmlape/models/position/{file}: give {one.name} a paper_name = '...'"
