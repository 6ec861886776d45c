"""The model of a checkpoint with the names of the files that its parts were started from."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from mmlape.checkpoint import gate
from mmlape.checkpoint.opening import OpenedFile
from mmlape.checkpoint.plain_config import read_plain
from mmlape.lab.config.stored_config import config_of_checkpoint
from mmlape.lab.training.frozen.shared import outermost_frozen
from mmlape.lab.training.optim import build_model

NAMING = ('init_cfg', 'pretrained', 'checkpoint')
"""Keys of a config that name a file of weights, which the gate leaves out."""


def started_model(file: OpenedFile) -> tuple[nn.Module, list[str]]:
    """Build the model of a checkpoint's config, without weights; return it with the names of its frozen parts.

    Raises:
        ConfigError: The file holds no config.
        CheckpointError: The config is more than plain values, or builds no model.
    """
    cfg = config_of_checkpoint(file)
    _name_files(cfg.model, read_plain(file.meta['cfg'], file.path)['model'])
    with gate.building(file.path, file.tensors):
        model = build_model(cfg).train()
    return model, list(outermost_frozen(model))


def _name_files(admitted: dict, stored: Mapping[str, Any]) -> None:
    for key, value in stored.items():
        if key in NAMING:
            admitted[key] = value
        elif isinstance(value, Mapping):
            _name_files(admitted[key], value)
