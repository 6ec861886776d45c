"""The model of a checkpoint as its training started: with the files of weights that its config names."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from mmlape.checkpoint import gate
from mmlape.checkpoint.opening import OpenedFile
from mmlape.checkpoint.plain_config import read_plain
from mmlape.lab.config.stored_config import config_of_checkpoint
from mmlape.lab.training.frozen.shared import outermost_frozen
from mmlape.lab.training.optim import build_model, quiet_logger


def started_model(file: OpenedFile) -> tuple[nn.Module, list[str]]:
    """Build the model of a checkpoint's config, and start it; return it with the names of its frozen parts.

    Nothing is downloaded.

    Raises:
        ConfigError: The file holds no config.
        CheckpointError: The config is more than plain values, or builds no model; or a file that it names is missing.
    """
    cfg = config_of_checkpoint(file)
    _name_files(cfg.model, read_plain(file.meta['cfg'], file.path)['model'])
    with gate.building(file.path, file.tensors), quiet_logger():
        model = build_model(cfg).train()
        model.init_weights()
    return model, list(outermost_frozen(model))


def _name_files(admitted: dict, stored: Mapping[str, Any]) -> None:
    """Restore what the gate leaves out of a config: how models are started."""
    for key, value in stored.items():
        if key == 'init_cfg':
            admitted[key] = value
        elif isinstance(value, Mapping):
            _name_files(admitted[key], value)
