"""The messages of 'When something goes wrong' are what the libraries print."""

import ast
import functools
import importlib.util
import re
from pathlib import Path

import pytest
from doc_blocks import ROOT

PAGE = ROOT / 'docs' / 'how-to' / 'errors.md'
BLOCK = re.compile(r'^```\{code-block\} text\n:class: message\n:caption: (?P<who>.+)\n(?P<text>(?s:.*?))^```$', re.M)
SOURCES = {
    'MMEngine': ('mmengine/registry', 'mmengine/config', 'mmengine/runner'),
    'PyTorch': (
        'torch/serialization.py', 'torch/nn/modules/module.py', 'torch/nn/modules/batchnorm.py',
        'torch/distributed/distributed_c10d.py',
    ),
    'timm': ('timm/layers/patch_embed.py',),
    'huggingface_hub': ('huggingface_hub/utils/_http.py',),
}  # fmt: skip
"""Where the texts of each program are; those of Python itself, compiled ones and old releases cannot be read."""
FOREIGN = ('compiled', 'Python', 'NumPy', 'MMDetection 3.3', 'MMSegmentation', 'mmcv')
FEWEST = 11  # characters of a text that are no values
SHARE = 0.15  # of a message, which one or two texts of a program are; the rest are values


def template(node: ast.expr) -> str:
    """Return a regular expression for the strings that an expression gives; any text stands for a value."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    known = [isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts]
    texts = [re.sub(r'\s+', ' ', part.value) if text else '' for part, text in zip(parts, known)]
    texts = [texts[0].lstrip(), *texts[1:-1], *(text.rstrip() for text in texts[1:][-1:])]
    return ''.join(re.escape(text) if is_text else '.*' for text, is_text in zip(texts, known))


@functools.cache
def templates(who: str) -> list[re.Pattern]:
    """Return the texts in the sources of a program; compiled here, as `re` keeps 512 of these thousands."""
    found = []
    for name in SOURCES[who]:
        package, _, inner = name.partition('/')
        source = Path(importlib.util.find_spec(package).origin).parent / inner
        for file in [source] if source.is_file() else source.rglob('*.py'):
            nodes = ast.walk(ast.parse(file.read_text(encoding='utf-8')))
            found += [template(node) for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr)]
    return [re.compile(text) for text in set(found) if length(text) >= FEWEST]


def length(text: str) -> int:
    return len(re.sub(r'\.\*|\\', '', text))


MESSAGES = [(match['who'], match['text']) for match in BLOCK.finditer(PAGE.read_text())]


def test_every_program_is_known():
    text = PAGE.read_text()
    assert len(MESSAGES) == text.count(':class: message') == text.count('{code-block}')
    unknown = {who for who, _ in MESSAGES if not who.startswith((*SOURCES, *FOREIGN))}
    assert not unknown


@pytest.mark.parametrize(
    ('who', 'text'),
    [(who, text) for who, text in MESSAGES if not any(word in who for word in FOREIGN)],
    ids=lambda value: ' '.join(value.split()[:5]),
)
def test_a_message_is_printed_as_it_stands(who, text):
    name = next(name for name in SOURCES if who.startswith(name))
    message = ' '.join(text.split())
    found = sorted((one.pattern for one in templates(name) if one.search(message)), key=length)[-2:]
    assert sum(map(length, found)) >= SHARE * len(message), (message, found)
