"""Pages, README and docstrings name every kind of position encoding and every joining; what is missing says where."""

import inspect
import re
import sys
from pathlib import Path

import pytest

import mmlape
from mmlape.models import SwinTransformer, VisionTransformer
from mmlape.models.position import (
    AbsolutePosition,
    AttentionPosition,
    Joining,
    LayerPosition,
    joining,
    joinings,
    kinds,
)

ROOT = Path(__file__).parents[2]
REFERENCE = 'docs/reference/position.md'
SECTIONS = {'Absolute': AbsolutePosition, 'Inside attention': AttentionPosition, 'Between layers': LayerPosition}


def read(file: str) -> str:
    return (ROOT / file).read_text()


def argument(kind: type, name: str) -> str:
    """Return what a docstring says of an argument, in one line."""
    text = re.split(rf'\n +{name}: ', inspect.getdoc(kind))[1]
    return ' '.join(re.split(r'\n    \w+: |\n\S', text)[0].split())


def part(file: str, pattern: str) -> str:
    """Return the part of a file that names the joinings."""
    found = re.search(pattern, read(file), re.DOTALL)
    assert found, f'{file} has no {pattern!r} any more: say here where it names the joinings'
    return found[0]


# a place that names the joinings: its text, how a name stands there, and what it does not have
JOINED = {
    "docs/reference/position.md, the sentence 'Joinings are ...'": (
        lambda: part(REFERENCE, r'Joinings are .*?;'), '`{}`', lambda one: False
    ),
    "README.md, the comment beside pe_joining='lape'": (
        lambda: part('README.md', r'how the PE meets the tokens: .*?\n'), ' {}', lambda one: False
    ),
    'mmlape/models/position/joining.py, the equations of its first docstring': (
        lambda: joining.__doc__, '\n    {} ', lambda one: False
    ),
    'the docstring of mmlape.VisionTransformer, pe_joining': (
        lambda: argument(VisionTransformer, 'pe_joining'), "'{}'", lambda one: False
    ),
    'the docstring of mmlape.SwinTransformer, pe_joining': (
        lambda: argument(SwinTransformer, 'pe_joining'), "'{}'", lambda one: one.table_per_layer
    ),
    'the docstring of mmlape.add_lape, joining': (
        lambda: argument(mmlape.add_lape, 'joining'), "'{}'",
        lambda one: not one.travels or type(one).join is not Joining.join,
    ),
}  # fmt: skip


@pytest.mark.parametrize('place', JOINED)
def test_every_joining_is_named(place):
    read_part, form, is_left_out = JOINED[place]
    named = read_part()
    for name, one in joinings().items():
        there = re.search(re.escape(form.format(name)) + '(?![a-z-])', named)
        assert there or is_left_out(one), f'{name!r} is missing; name it in {place}'


def test_every_joining_is_explained_on_the_page_of_lape():
    page = read('docs/understand/lape.md')
    for name, one in joinings().items():
        code = type(one).__name__
        told = re.search(rf'pyobject: {code}\b', page)
        assert told, f'docs/understand/lape.md: explain {name!r}, and include the code of {code}'


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
