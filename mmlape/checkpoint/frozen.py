"""Take the frozen tensors out of a checkpoint; `mmlape.checkpoint.trained_alone` says what the file tells of them."""

import os
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mmlape.checkpoint.key_maps import Tensors
from mmlape.checkpoint.loading import load_pretrained, named_checkpoint
from mmlape.checkpoint.metadata import parts_with_adapter
from mmlape.checkpoint.trained_alone import FrozenPart, record
from mmlape.errors import CheckpointError


def take_frozen(
    model: nn.Module, frozen: Sequence[str], tensors: Tensors, path: str | os.PathLike
) -> dict[str, FrozenPart]:
    """Take those tensors of a file out that are still, to the bit, what its frozen backbones were started from.

    A table that was resized stays.

    Args:
        model: The file's model; each ``init_cfg`` names what a backbone was started from.
        frozen: Names of its frozen parts.
        tensors: Of the file; loses some.
        path: Of the file, for messages.

    Returns:
        What the file is to say of them, see `mmlape.checkpoint.trained_alone`.

    Raises:
        CheckpointError: There are none.
    """
    recorded = {}
    for name, backbone in parts_with_adapter(model).items():
        inside = [one for one in frozen if one == name or one.startswith(f'{name}.')]
        if not inside or not named_checkpoint(backbone):
            continue
        load_pretrained(backbone)
        same = {
            key: value
            for key, value in backbone.state_dict().items()
            if f'{name}.{key}'.startswith(tuple(f'{one}.' for one in inside))
            and key not in backbone.load_report.resized
            and _equal(value, tensors.get(f'{name}.{key}'))
        }
        if same:
            recorded[name] = record(backbone.init_cfg, same)
        for key in same:
            del tensors[f'{name}.{key}']
    if not recorded:
        raise CheckpointError(
            f'{path}: no backbone of its model is frozen, with a file that its init_cfg names and whose tensors it '
            'still has: publish it without --trained-only'
        )
    return recorded


def _equal(one: Tensor, other: Tensor | None) -> bool:
    return other is not None and one.dtype == other.dtype and torch.equal(one, other)
