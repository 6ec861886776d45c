"""What a user's file with a position encoding must do, checked before any training.

The file registers one kind (docs/reference/extending.md). It is imported, built into the study's
model, run forward and backward on the grids of the study, and its weights are written and read.
"""

import importlib
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from mmlape.checkpoint import load_backbone
from mmlape.errors import ConfigError, MMLaPEError, shown
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.lab.engine.optim import quiet_logger
from mmlape.models.grid import Grid
from mmlape.models.position import AbsolutePosition, AttentionPosition
from mmlape.models.position.base import LayerPosition
from mmlape.models.vit.model import VisionTransformer

CONTRACTS = (AbsolutePosition, AttentionPosition, LayerPosition)
ACTS = ('rotate', 'logits', 'values')
"""What a kind inside attention can do, of which it must do something."""
ARCH = dict(embed_dims=128, num_layers=2, num_heads=4, feedforward_channels=256)
"""Narrow enough for a check of seconds, with the width and the heads of the study."""
PATCH, GRIDS = 8, ((8, 8), (12, 12), (16, 16), (8, 12))


def import_kind(file: str, name: str | None = None) -> str:
    """Import a user's file, and return the name of the kind that it registers.

    The file's folder becomes a part of Python's path, here and in processes that are started.

    Args:
        file: The file.
        name: Of the kind, where a file registers several.

    Raises:
        ConfigError: If the file cannot be imported, or registers none, or none of that name.
    """
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f'{file}: no such file')
    if path.suffix != '.py' or not path.stem.isidentifier():
        raise ConfigError(f'{file} cannot be imported: name it as a module, such as my_position.py')
    POSITION_ENCODINGS.import_from_location()
    before = dict(POSITION_ENCODINGS.module_dict)
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    others = os.environ.get('PYTHONPATH')
    os.environ['PYTHONPATH'] = os.pathsep.join([folder, *([others] if others else [])])
    try:
        module = importlib.import_module(path.stem)
    except Exception as error:
        raise ConfigError(f'{_place(file, error)}: {shown(error)}') from error
    origin = getattr(module, '__file__', None)
    if origin is None or Path(origin).resolve() != path.resolve():
        raise ConfigError(
            f'{file}: its name clashes with the module {path.stem!r} ({origin or "built in"}): rename the file'
        )
    kinds = [key for key, kind in POSITION_ENCODINGS.module_dict.items() if before.get(key) is not kind]
    kinds = kinds or [key for key, kind in before.items() if kind.__module__ == module.__name__]
    return _chosen(file, kinds, name)


def _chosen(file: str, kinds: list[str], name: str | None) -> str:
    if not kinds:
        raise ConfigError(
            f'{file} registers no position encoding: decorate its class with '
            "@POSITION_ENCODINGS.register_module('NAME'), of mmlape.kinds"
        )
    if name is not None and name not in kinds:
        raise ConfigError(f'--name {name}: {file} registers {", ".join(kinds)}')
    if name is None and len(kinds) > 1:
        raise ConfigError(f'{file} registers {", ".join(kinds)}: choose one by --name')
    return name or kinds[0]


def _place(file: str, error: BaseException) -> str:
    """Return the file with the last line of it in a traceback."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f'{file}, line {error.lineno}'
    name = Path(file).resolve()
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).resolve() == name
    ]
    return f'{file}, line {lines[-1]}' if lines else file


def check_kind(file: str, name: str) -> None:
    """Check that a kind does what the study asks of it.

    Raises:
        ConfigError: If it does not; the line names what was asked.
    """
    kind = POSITION_ENCODINGS.module_dict[name]
    if not issubclass(kind, CONTRACTS):
        raise ConfigError(
            f'{file}: {name!r} derives from none of {", ".join(one.__name__ for one in CONTRACTS)}, '
            'of mmlape.models.position'
        )
    if issubclass(kind, AttentionPosition) and all(
        getattr(kind, method) is getattr(AttentionPosition, method) for method in ACTS
    ):
        raise ConfigError(f'{file}: {name!r} defines none of {", ".join(ACTS)}, so it does nothing')
    with _asked(file, name, 'to be built'):
        model = _build(name)
    for grid in GRIDS:
        _check_forward(file, name, model, grid)
    with (
        _asked(file, name, 'to be written and read'),
        quiet_logger(logging.ERROR),
        tempfile.TemporaryDirectory() as folder,
    ):
        path = Path(folder) / 'weights.pth'
        torch.save({'state_dict': model.state_dict()}, path)
        load_backbone(_build(name), path)


def _build(name: str) -> VisionTransformer:
    return VisionTransformer(
        ARCH, PATCH * GRIDS[0][0], PATCH, out_type='featmap', with_cls_token=False, pe_type=name
    ).eval()


@contextmanager
def _asked(file: str, name: str, what: str) -> Iterator[None]:
    """Turn whatever a user's class raises into one line."""
    try:
        yield
    except MMLaPEError as error:
        raise ConfigError(f'{file}: {name!r} is asked {what}: {error}') from error
    except Exception as error:
        raise ConfigError(f'{_place(file, error)}: {name!r} is asked {what}: {shown(error)}') from error


def _check_forward(file: str, name: str, model: VisionTransformer, grid: Grid) -> None:
    asked = f'for a forward and a backward of {grid[0]} x {grid[1]} patches'
    image = torch.rand(2, 3, grid[0] * PATCH, grid[1] * PATCH, generator=torch.Generator().manual_seed(0))
    model.zero_grad()
    with _asked(file, name, asked):
        (out,) = model(image)
        out.square().mean().backward()
    values = [out, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]
    if not all(value.isfinite().all() for value in values):
        raise ConfigError(
            f'{file}: with {name!r} features or gradients of {grid[0]} x {grid[1]} patches are NaN or infinite'
        )
