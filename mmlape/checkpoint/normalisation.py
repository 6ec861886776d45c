"""How images are normalised, (image - mean) / std: what a file's weights want, and what a model does.

Values are of pixels from 0 to 255, in the order of the stem's channels.
"""

import ast
import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from mmlape.checkpoint.download import local_path

HUB_NAMES = ('model.safetensors', 'pytorch_model.bin')
"""Names of weights on the Hugging Face hub, beside which timm keeps its ``config.json``."""
TOLERANCE = 0.5
"""Means and deviations that differ by less are the same ones, rounded."""


@dataclass(frozen=True)
class Normalisation:
    """A mean and a standard deviation for each channel.

    Attributes:
        mean: The means.
        std: The standard deviations.
        source: How it is known.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    source: str = field(default='', compare=False)

    def __str__(self) -> str:
        return f'mean={list(self.mean)}, std={list(self.std)}'

    def is_near(self, other: 'Normalisation') -> bool:
        """Check whether both are the same, up to rounding."""
        pairs = list(zip(self.mean + self.std, other.mean + other.std))
        return len(self.mean) == len(other.mean) and all(abs(a - b) < TOLERANCE for a, b in pairs)


IMAGENET = Normalisation((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
HALF = Normalisation((127.5,) * 3, (127.5,) * 3)


def normalisation_of(model: nn.Module) -> Normalisation | None:
    """Return what a model's data preprocessor does; None if it does not normalise."""
    preprocessor = getattr(model, 'data_preprocessor', None)
    mean, std = (getattr(preprocessor, name, None) for name in ('mean', 'std'))
    if mean is None or std is None or mean.is_meta:
        return None
    return Normalisation(*(tuple(round(v, 4) for v in part.flatten().tolist()) for part in (mean, std)))


def stored_normalisation(content: Mapping, recorded: Mapping, path: str | Path) -> Normalisation | None:
    """Return what the weights in a file want, as far as it says so.

    Args:
        content: As ``read_checkpoint`` returns it.
        recorded: This package's own record in it.
        path: The file, or the address that it was read from.
    """
    meta, args = content.get('meta'), content.get('args')
    meta = meta if isinstance(meta, Mapping) else {}
    args = vars(args) if isinstance(args, Namespace) else {}
    sources = [
        _make(recorded, 1, 'recorded'),
        _make(_preprocessor(meta.get('cfg')), 1, 'data_preprocessor of the stored config'),
        _make(_pretrained_cfg(meta, local_path(path)), 255, "timm's pretrained_cfg"),
        _make(args, 255, "timm's training arguments"),
        _named(IMAGENET, "DeiT's training arguments") if 'data_set' in args else None,
    ]
    return next(filter(None, sources), None)


def _named(known: Normalisation, source: str) -> Normalisation:
    return Normalisation(known.mean, known.std, source)


def _make(values: Mapping, scale: int, source: str) -> Normalisation | None:
    """Return ``mean`` and ``std`` of a mapping, times ``scale``; None if they are not there."""
    parts = [values.get(name) for name in ('mean', 'std')]
    for part in parts:
        if not isinstance(part, Sequence) or not part or not all(isinstance(v, int | float) for v in part):
            return None
    return Normalisation(*(tuple(round(v * scale, 4) for v in part) for part in parts), source)


def _pretrained_cfg(metadata: Mapping, path: Path) -> Mapping:
    """Return timm's description of weights, from a file's metadata or from the file beside it."""
    texts = [metadata.get('pretrained_cfg')]
    if path.name in HUB_NAMES and path.with_name('config.json').is_file():
        texts.append(path.with_name('config.json').read_text(encoding='utf-8', errors='replace'))
    for text in texts:
        try:
            values = json.loads(text) if isinstance(text, str) else text
        except ValueError:
            continue
        if isinstance(values, Mapping):
            inner = values.get('pretrained_cfg')
            return inner if isinstance(inner, Mapping) else values
    return {}


def _preprocessor(text: object) -> Mapping:
    """Return the literal values of the data preprocessor in the text of a configuration, which is parsed, not run."""
    try:
        tree = ast.parse(text) if isinstance(text, str) else ast.Module([], [])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.keyword | ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        name = node.arg if isinstance(node, ast.keyword) else getattr(node.targets[0], 'id', '')
        if name == 'data_preprocessor':
            return {entry.arg: _literal(entry.value) for entry in node.value.keywords}
    return {}


def _literal(node: ast.AST) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
