"""Backbones to look into, from what a user names: a config, a checkpoint, both, or the folder of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mmengine.registry import MODELS, init_default_scope

from mmlape.checkpoint import load_backbone, read_checkpoint
from mmlape.checkpoint.key_maps import recognise_backbone
from mmlape.engine.config import load_config
from mmlape.engine.optim import quiet_logger
from mmlape.errors import CheckpointError, ConfigError
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.grid import Grid
from mmlape.runs.record import checkpoints

CONFIGS = ('.py', '.json', '.yaml', '.yml')
SHOWN = ('pos_embed', '.norm1.', '.pe_norm.', '.attn.relative_position')
"""Parts of names that a figure shows, so a checkpoint must fill them."""


@dataclass(frozen=True)
class OpenOptions:
    """How `open_model` reads what it is given.

    Args:
        cfg_options: Changes of the configs.
        untrained: Whether configs keep their initial weights, without the checkpoint that they name.
        grid: (rows, columns) of the PE in a checkpoint, where that is no square.
    """

    cfg_options: Sequence[str] | None = None
    untrained: bool = False
    grid: Grid | None = None


@dataclass(frozen=True)
class NamedBackbone:
    """A backbone in evaluation mode, and its name in figures."""

    name: str
    model: BaseBackbone


def open_models(texts: Sequence[str], options: OpenOptions) -> list[NamedBackbone]:
    """Call `open_model` for each; names are made to differ."""
    backbones = [open_model(text, options) for text in texts]
    names = [backbone.name for backbone in backbones]
    return [
        NamedBackbone(
            f'{backbone.name} ({number})' if names.count(backbone.name) > 1 else backbone.name, backbone.model
        )
        for number, backbone in enumerate(backbones, 1)
    ]


def open_model(text: str, options: OpenOptions) -> NamedBackbone:
    """Build the backbone that an argument of the command line means.

    Args:
        text: ``CONFIG``, ``CHECKPOINT``, ``CONFIG@CHECKPOINT``, or the folder of a run.
        options: How files are read.

    Raises:
        ConfigError: If the config has no backbone of mmlape.
        CheckpointError: If a file is missing, unreadable or of another model, or does not say enough.
    """
    with quiet_logger():
        if Path(text).is_dir():
            backbone = _from_run(Path(text), options)
        elif '@' in text and not Path(text).exists():
            config, _, checkpoint = text.partition('@')
            backbone = NamedBackbone(Path(checkpoint).stem, _from_config(config, checkpoint, options))
        elif Path(text).suffix in CONFIGS:
            backbone = NamedBackbone(Path(text).stem, _from_config(text, None, options))
        else:
            backbone = NamedBackbone(Path(text).stem, _from_checkpoint(text, options.grid))
    backbone.model.eval()
    return backbone


def _from_run(folder: Path, options: OpenOptions) -> NamedBackbone:
    files, configs = checkpoints(folder), sorted(folder.glob('*.py'))
    if not files or len(configs) != 1:
        raise CheckpointError(
            f'{folder} holds {len(files)} checkpoints and {len(configs)} configs, so it is not the folder of a run: '
            'name a file, or CONFIG@CHECKPOINT'
        )
    folder = folder.resolve()
    name = f'{folder.parent.name}/{folder.name}' if folder.name.startswith('seed_') else folder.name
    return NamedBackbone(name, _from_config(str(configs[0]), str(files[0]), options))


def _from_config(path: str, checkpoint: str | None, options: OpenOptions) -> BaseBackbone:
    cfg = load_config(path, list(options.cfg_options or ()))
    backbone = (cfg.get('model') or {}).get('backbone') or {}
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    model = MODELS.build(backbone) if backbone else None
    if not isinstance(model, BaseBackbone):
        raise ConfigError(f'{path}: its backbone is {backbone.get("type")}, not one of mmlape')
    if checkpoint is not None:
        load_backbone(model, checkpoint, grid=options.grid)
    elif not options.untrained:
        try:
            model.init_weights()
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}; name another as {path}@FILE, or pass --untrained for the config's initial weights"
            ) from error
    return model


def _from_checkpoint(path: str, grid: Grid | None) -> BaseBackbone:
    """Build a plain ViT with the file's stem, norms and PE; an adapter's own parts are left out."""
    backbone, weights = recognise_backbone(read_checkpoint(path), path)
    config = backbone.checkpoint_adapter.view(backbone, weights, grid, path)
    if '?' in str(config):
        raise CheckpointError(f'checkpoint {path} does not say all of its model: name its config too, CONFIG@{path}')
    model = MODELS.build(config)
    report = load_backbone(model, path, grid=grid, strict=False)
    left = [name for name in model.state_dict() if name not in report.loaded and any(part in name for part in SHOWN)]
    if left:
        raise CheckpointError(
            f'checkpoint {path} does not say how its position encoding is used ({left[0]} does not fit): '
            f'name its config too, CONFIG@{path}'
        )
    return model
