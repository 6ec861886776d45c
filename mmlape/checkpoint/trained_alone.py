"""Files of what was trained alone: they say which file the frozen tensors are of, and their digest.

    {'backbone': {'digest': 'b1946ac9...', 'init_cfg': {'checkpoint': 'vit.safetensors'}}}

stands as JSON in the metadata of a safetensors file. The key is the name of a part of the model, ``init_cfg`` how it
was started: by an address, or by a file whose folder is not told.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mmlape.checkpoint.fetching import cached_path, hub_file, is_address, is_on_hub
from mmlape.checkpoint.opening import OpenedFile, open_file
from mmlape.errors import CheckpointError

KEY = 'mmlape_frozen'
OPTIONS = ('checkpoint', 'grid', 'strict', 'allow_joining_mismatch', 'adapt_channels')
"""Keys of an ``init_cfg`` of a backbone, beside its type."""


def digest_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors with their names, shapes and types."""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(f'{name} {tuple(tensor.shape)} {tensor.dtype}'.encode())
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return total.hexdigest()


class FrozenPart(NamedTuple):
    """What a file says of the tensors of a part that it lacks."""

    digest: str
    init_cfg: dict[str, Any]  # how the part was started


def take_frozen(
    model: nn.Module, frozen: Sequence[str], tensors: dict[str, Tensor], path: str | os.PathLike
) -> dict[str, FrozenPart]:
    """Take those tensors of a file out that are still, to the bit, what its frozen backbones were started from.

    A table that was resized stays.

    Args:
        model: The file's model, as it is started.
        frozen: Names of its frozen parts.
        tensors: Of the file; loses some.
        path: Of the file, for messages.

    Returns:
        What the file is to say of them, by the name of the backbone.

    Raises:
        CheckpointError: There are none.
    """
    parts = {}
    for name, backbone in model.named_modules():
        inside = tuple(f'{one}.' for one in frozen if f'{one}.'.startswith(f'{name}.'))
        report = getattr(backbone, 'load_report', None)  # of the file that its init_cfg names
        if not inside or not report:
            continue
        same = {
            key: value
            for key, value in backbone.state_dict().items()
            if f'{name}.{key}'.startswith(inside)
            and key not in report.resized
            and _equal(value, tensors.get(f'{name}.{key}'))
        }
        if same:
            (cfg,) = [backbone.init_cfg] if isinstance(backbone.init_cfg, Mapping) else backbone.init_cfg
            options = {key: cfg[key] for key in OPTIONS if key in cfg}
            if not is_on_hub(cfg['checkpoint']) and not is_address(cfg['checkpoint']):
                options['checkpoint'] = Path(cfg['checkpoint']).name
            parts[name] = FrozenPart(digest_of_tensors(same), options)
        for key in same:
            del tensors[f'{name}.{key}']
    if not parts:
        raise CheckpointError(
            f'{path}: no backbone of its model is frozen, with a file that its init_cfg names and whose tensors it '
            'still has: publish it without --trained-only'
        )
    return parts


def _equal(one: Tensor, other: Tensor | None) -> bool:
    return other is not None and one.dtype == other.dtype and torch.equal(one, other)


def frozen_parts(file: OpenedFile) -> dict[str, FrozenPart]:
    """Return what a file says of tensors that it lacks, by the name of their part.

    Raises:
        CheckpointError: It is none of `take_frozen`.
    """
    try:
        parts = {name: FrozenPart(**part) for name, part in json.loads(file.meta.get(KEY, '{}')).items()}
        if all(name and _is_valid(part) for name, part in parts.items()):
            return parts
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise CheckpointError(f'checkpoint {file.path}: what it says of its frozen part cannot be read')


def _is_valid(part: FrozenPart) -> bool:
    checkpoint, grid, *flags = (part.init_cfg.get(key) for key in OPTIONS)
    sides = grid if isinstance(grid, list) else [grid or 1]
    return (
        set(part.init_cfg) <= {*OPTIONS}
        and isinstance(part.digest, str)
        and 0 < len(os.fsencode(_name_of(checkpoint))) < 200
        and all(isinstance(side, int) for side in sides)
        and all(isinstance(flag, bool | None) for flag in flags)
    )


def _name_of(checkpoint: str) -> str:
    return cached_path(checkpoint).name if is_address(checkpoint) else Path(checkpoint).name


def find(checkpoint: str, beside: str) -> Path | None:
    """Return the file of a frozen part: of the hub, beside another file, or in torch.hub's folder; None if not there.

    Of an address that a file names, and no user, no more is taken than what was downloaded before.
    """
    if is_on_hub(checkpoint):
        with contextlib.suppress(CheckpointError):
            return hub_file(checkpoint, cached_only=True)
        return None
    name = _name_of(checkpoint)
    places = Path(beside).with_name(name), Path(torch.hub.get_dir(), 'checkpoints', name)
    return next((place for place in places if place.is_file()), None)


def frozen_tensors(file: OpenedFile) -> dict[str, Tensor]:
    """Return all tensors of the files of the frozen parts, as they are there, of those files that are found."""
    found = [find(part.init_cfg['checkpoint'], file.path) for part in frozen_parts(file).values()]
    return {name: value for path in found if path for name, value in open_file(path, mmap=True).tensors.items()}
