"""Backbones to look into, from what a user names.

A config, a checkpoint, both, or the folder of a run.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmlape.checkpoint import load_backbone
from mmlape.checkpoint.key_maps import recognise_backbone
from mmlape.errors import CheckpointError, ConfigError
from mmlape.lab.engine.config import load_config
from mmlape.lab.engine.optim import quiet_logger
from mmlape.lab.engine.stored_config import config_of_run
from mmlape.lab.runs.record import checkpoints
from mmlape.lab.studies.study_file import is_study
from mmlape.mim import PREFIX
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.grid import Grid
from mmlape.weights.gate import building
from mmlape.weights.reading import read_checkpoint, state_dict_of

CONFIGS = ('.py', '.json', '.yaml', '.yml')
SHOWN = ('pos_embed', '.norm1.', '.pe_norm.', '.attn.relative_position')
"""Parts of names that a figure shows, so a checkpoint must fill them."""


def open_models(texts: Sequence[str], **options) -> dict[str, BaseBackbone]:
    """Return the backbones of `open_model` by name; of one name, each has its argument in brackets.

    Raises:
        ConfigError: If an argument is given twice.
    """
    twice = next((text for text in texts if list(texts).count(text) > 1), None)
    if twice:
        raise ConfigError(f'{twice} is given twice: give each model once')
    opened = [open_model(text, **options) for text in texts]
    names = [name for name, _ in opened]
    return {
        f'{name} ({text})' if names.count(name) > 1 else name: model
        for text, (name, model) in zip(texts, opened)
    }


def open_model(
    text: str,
    cfg_options: Sequence[str] | None = None,
    untrained: bool = False,
    grid: Grid | None = None,
) -> tuple[str, BaseBackbone]:
    """Build the backbone that an argument of the command line means, in evaluation mode.

    Return its name with it. The name is the config's and the checkpoint's,
    'deit-tiny_4xb256-300e_in1k, epoch_5', or 'untrained' for that.

    Args:
        text: ``CONFIG``, ``CHECKPOINT``, ``CONFIG@CHECKPOINT``, or the folder of a run.
        cfg_options: Changes of the config.
        untrained: Whether a config keeps its initial weights, without the checkpoint that it names.
        grid: (rows, columns) of the PE in a checkpoint, where that is no square.

    Raises:
        ConfigError: If the config has no backbone of mmlape.
        CheckpointError: If a file is missing, unreadable or of another model, or does not say
            enough.
    """
    is_config = Path(text).suffix in CONFIGS or text.startswith(PREFIX) or is_study(text)
    config, checkpoint = (text, None) if is_config else (None, text)
    if Path(text).is_dir():
        config, checkpoint = files_of_run(Path(text))
    elif '@' in text and not Path(text).exists():
        config, _, checkpoint = text.partition('@')
    beside = sorted(Path(checkpoint).parent.glob('*.py')) if checkpoint else []
    named = config or (str(beside[0]) if len(beside) == 1 else None)
    with quiet_logger():
        if config is None:
            model = _from_checkpoint(checkpoint, grid)
        elif Path(text).is_dir():
            cfg = config_of_run(config, cfg_options)
            with building(checkpoint, state_dict_of(read_checkpoint(checkpoint), checkpoint)):
                model = _from_config(cfg, config, checkpoint, untrained, grid)
        else:
            cfg = load_config(config, list(cfg_options or ()))
            model = _from_config(cfg, config, checkpoint, untrained, grid)
    parts = [re.split(r'/|::', named)[-1].removesuffix('.py')] if named else []
    if checkpoint:
        parts.append(Path(checkpoint).stem)
    elif model.load_report is None:
        parts.append('untrained')
    return ', '.join(parts), model.eval()


def files_of_run(folder: Path) -> tuple[str, str]:
    """Return the config of a run and its last checkpoint."""
    files, configs = checkpoints(folder), sorted(folder.glob('*.py'))
    if not files or len(configs) != 1:
        raise CheckpointError(
            f'{folder} holds {len(files)} checkpoints and {len(configs)} configs, so it is not the '
            'folder of a run: name a file, or CONFIG@CHECKPOINT'
        )
    return str(configs[0]), str(files[0])


def _from_config(
    cfg: Config,
    path: str,
    checkpoint: str | None,
    untrained: bool,
    grid: Grid | None,
) -> BaseBackbone:
    backbone = (cfg.get('model') or {}).get('backbone') or {}
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    model = MODELS.build(backbone) if backbone else None
    if not isinstance(model, BaseBackbone):
        raise ConfigError(f'{path}: its backbone is {backbone.get("type")}, not one of mmlape')
    if checkpoint is not None:
        load_backbone(model, checkpoint, grid=grid)
    elif not untrained:
        try:
            model.init_weights()
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}; name another as {path}@FILE, or pass --untrained for the config's "
                'initial weights'
            ) from error
    return model


def _from_checkpoint(path: str, grid: Grid | None) -> BaseBackbone:
    """Build the model that a file records, or whose names and shapes it has."""
    backbone, weights = recognise_backbone(read_checkpoint(path), path)
    config = backbone.checkpoint_adapter.view(backbone, weights, grid, path)
    with building(f'checkpoint {path}', weights.tensors):
        model = MODELS.build(config)
    report = load_backbone(model, path, grid=grid, strict=False)
    left = [
        name
        for name in model.state_dict()
        if name not in report.loaded and any(part in name for part in SHOWN)
    ]
    if left:
        raise CheckpointError(
            f'checkpoint {path} does not say how its position encoding is used ({left[0]} does not '
            f'fit): name its config too, CONFIG@{path}'
        )
    return model
