"""Configs and YAML of strangers: what is more than plain values is neither read nor run."""

import ast
import io
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mmengine.config import Config

from mmlape.checkpoint.plain_config import docstring, read_plain, write_plain
from mmlape.errors import CheckpointError, MMLaPEError
from mmlape.lab.config.config_file import load_config


@pytest.fixture
def canary(tmp_path):
    """A folder that a payload makes."""
    return tmp_path / 'canary'


@pytest.mark.filterwarnings('ignore::SyntaxWarning')
@pytest.mark.parametrize(
    'text',
    [
        'import os',
        'a = open("b")',
        'a = dict(b=[c for c in ()])',
        "_base_ = 'other.py'",
        "_base_ = ['mmdet::_base_/default_runtime.py']",
        'a = dict.__class__',
        'a = b = 1',
        'a.b = 1',
        'a, b = 1, 2',
        'a += 1',
        "a = f'{1}'",
        'a = 1 + 1',
        "model = dict([('type', 'os.system')], command='x')",
        "model = dict(**{'type': 'os.system'})",
        "model = {**{'type': 'os.system'}}",
        'a = ...',
        "a = b'bytes'",
        'a = 1j',
        'a = 1e999',
        "a = -'b'",
        f'a = {10**30}',
        'a = 9' + 5000 * '9',
        'a = ' + 300 * '[' + 300 * ']',
        'a = ' + 200 * '-' + '1',
        "a = '\udcff'",  # no UTF-8
        'a = (',
        'a = 1  #' + 10_000_000 * ' ',
    ],
    ids=range(27),
)
def test_a_config_that_is_more_than_plain_values_is_refused(text):
    content = text.encode(errors='surrogateescape')
    with pytest.raises(CheckpointError, match='^x: (refused|no config)'):
        read_plain(content, 'x')


def test_yaml_builds_plain_values_only(tmp_path, canary, capsys):
    """As MMEngine reads annotations, a config, and the base of a study, with its own loader."""
    import mmengine

    evil = tmp_path / 'evil.yml'
    evil.write_text(f'model: !!python/object/apply:os.mkdir [{str(canary)!r}]\n')
    (tmp_path / 'study.yml').write_text(f'title: x\nseeds: [1]\nbase: {evil}\narms:\n  a: {{overrides: {{x: 1}}}}\n')
    with pytest.raises(yaml.constructor.ConstructorError):
        mmengine.load(evil)
    with pytest.raises(yaml.constructor.ConstructorError):
        mmengine.load(io.StringIO(evil.read_text()), file_format='yaml')
    with pytest.raises(yaml.constructor.ConstructorError):
        Config.fromfile(evil)
    for config in (evil, f'{tmp_path}/study.yml:a'):
        if config != evil:
            with pytest.raises(MMLaPEError, match='study.yml: arm a: base: '):
                load_config(config)
    assert not canary.exists()
    good = tmp_path / 'good.yml'
    mmengine.dump(plain := dict(a=[1, 2.5, None, True], b=(1, ('x', 2))), good)
    assert mmengine.load(good) == plain
    yaml.load(evil.read_text(), yaml.UnsafeLoader)
    assert canary.exists(), 'the loader of before would have run it'


PIECES = ('{', '{{', '}}', '$HOME:', '{{ fileDirname }}', '{{_base_.model}}', "'", '"', '"""', '\\', '\n', '\r', 'x7b')
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=6).map(''.join)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 2**63, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(TEXTS.filter(lambda key: not key.startswith('_')) | st.integers(0, 99), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=200)
@given(values=PLAIN, head=TEXTS)
@example(values=['{{{{$HOME:a}}}}', {'{{': {'{': 'ﬁ'}, 'ﬁ': 1}], head='"{{$HOME:a}}"""')
def test_what_is_written_is_read_back_whatever_its_texts(values, head):
    """By the reader of files of others, and by MMEngine, which replaces what stands in two braces."""
    text = docstring(head) + write_plain({'a': values})
    assert ast.get_docstring(ast.parse(text), clean=False) == head
    assert repr(read_plain(write_plain({'a': values}), 'x')) == repr({'a': values})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, 'written.py')
        file.write_text(text, encoding='utf-8')
        assert repr(Config.fromfile(file).to_dict()) == repr({'a': values})
