"""Files of what was trained alone: they say which file the frozen tensors are of, and their digest.

    {'backbone': {'digest': 'b1946ac9...', 'init_cfg': {'checkpoint': 'vit.safetensors'}}}

stands as JSON in the metadata of a safetensors file. The key is the name of a part of the model, ``init_cfg`` how it
was started: by an address, or by a file whose folder is not told.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmlape.checkpoint.fetching import cached_path, hub_file, is_address, is_on_hub
from mmlape.checkpoint.opening import OpenedFile, open_file
from mmlape.errors import CheckpointError

KEY = 'mmlape_frozen'
OPTIONS = ('checkpoint', 'grid', 'strict', 'allow_joining_mismatch', 'adapt_channels')
"""Keys of an ``init_cfg`` that are recorded."""


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


def record(init_cfg: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FrozenPart:
    """Return what a file without these tensors says of them."""
    options = {key: init_cfg[key] for key in OPTIONS if key in init_cfg}
    if not is_on_hub(options['checkpoint']) and not is_address(options['checkpoint']):
        options['checkpoint'] = Path(options['checkpoint']).name
    return FrozenPart(digest_of_tensors(tensors), options)


def frozen_parts(file: OpenedFile) -> dict[str, FrozenPart]:
    """Return what a file says of tensors that it lacks, by the name of their part.

    Raises:
        CheckpointError: It is none of `record`.
    """
    try:
        parts = {name: FrozenPart(**part) for name, part in json.loads(file.meta.get(KEY, '{}')).items()}
        if all(set(part.init_cfg) <= {*OPTIONS} and Path(part.init_cfg['checkpoint']) for part in parts.values()):
            return parts
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise CheckpointError(f'checkpoint {file.path}: what it says of its frozen part cannot be read')


def find(checkpoint: str, beside: str) -> Path | None:
    """Return the file of a frozen part: of the hub, beside another file, or in torch.hub's folder; None if not there.

    Of an address that a file names, and no user, no more is taken than what was downloaded before.
    """
    if is_on_hub(checkpoint):
        with contextlib.suppress(CheckpointError):
            return hub_file(checkpoint, cached_only=True)
        return None
    name = cached_path(checkpoint).name if is_address(checkpoint) else Path(checkpoint).name
    places = Path(beside).with_name(name), Path(torch.hub.get_dir(), 'checkpoints', name)
    return next((place for place in places if place.is_file()), None)


def frozen_tensors(file: OpenedFile) -> dict[str, Tensor]:
    """Return all tensors of the files of the frozen parts, as they are there, of those files that are found."""
    found = [find(part.init_cfg['checkpoint'], file.path) for part in frozen_parts(file).values()]
    return {name: value for path in found if path for name, value in open_file(path, mmap=True).tensors.items()}
