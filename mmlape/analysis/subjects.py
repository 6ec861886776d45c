"""ViTs to look into, from what a user names: a config, a checkpoint of any layout, both, or the folder of a run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from mmengine.registry import MODELS, init_default_scope

from mmlape.checkpoint import load_backbone, read_checkpoint, state_dict_of
from mmlape.checkpoint.describing import arch_of, position_of
from mmlape.checkpoint.key_maps import Weights, translate
from mmlape.checkpoint.reading import SUFFIXES
from mmlape.engine.config import load_config
from mmlape.engine.optim import quiet_logger
from mmlape.errors import CheckpointError, ConfigError
from mmlape.models import VisionTransformer
from mmlape.models.position.kinds import Grid
from mmlape.runs.record import checkpoints

SEEN = ('pos_embed', '.norm1.', '.pe_norm.', '.relative_position_bias_table')  # what must not be left as it began


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
class Subject:
    """A ViT in evaluation mode, and what to call it in figures."""

    name: str
    model: VisionTransformer


def open_models(texts: Sequence[str], options: OpenOptions) -> list[Subject]:
    """As `open_model`, with names that differ."""
    subjects = [open_model(text, options) for text in texts]
    names = [subject.name for subject in subjects]
    return [
        Subject(f'{subject.name} ({number})' if names.count(subject.name) > 1 else subject.name, subject.model)
        for number, subject in enumerate(subjects, 1)
    ]


def open_model(text: str, options: OpenOptions) -> Subject:
    """Builds the ViT that a word of the command line means.

    Args:
        text: ``CONFIG``, ``CHECKPOINT``, ``CONFIG@CHECKPOINT``, or the folder of a run.

    Raises:
        ConfigError: The config has no ViT of mmlape.
        CheckpointError: A file is missing, unreadable or of another model, or does not say enough.
    """
    with quiet_logger():
        if Path(text).is_dir():
            subject = _from_run(Path(text), options)
        elif '@' in text and not Path(text).exists():
            config, _, checkpoint = text.partition('@')
            subject = Subject(Path(checkpoint).stem, _from_config(config, checkpoint, options))
        elif Path(text).suffix in SUFFIXES:
            subject = Subject(Path(text).stem, _from_checkpoint(text, options.grid))
        else:
            subject = Subject(Path(text).stem, _from_config(text, None, options))
    subject.model.eval()
    return subject


def _from_run(folder: Path, options: OpenOptions) -> Subject:
    files, configs = checkpoints(folder), sorted(folder.glob('*.py'))
    if not files or len(configs) != 1:
        raise CheckpointError(
            f'{folder} holds {len(files)} checkpoints and {len(configs)} configs, so it is not the folder of a run: '
            'name a file, or CONFIG@CHECKPOINT'
        )
    folder = folder.resolve()
    name = f'{folder.parent.name}/{folder.name}' if folder.name.startswith('seed_') else folder.name
    return Subject(name, _from_config(str(configs[0]), str(files[0]), options))


def _from_config(path: str, checkpoint: str | None, options: OpenOptions) -> VisionTransformer:
    cfg = load_config(path, options.cfg_options)
    backbone = (cfg.get('model') or {}).get('backbone') or {}
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    model = MODELS.build(backbone) if backbone else None
    if not isinstance(model, VisionTransformer):
        raise ConfigError(f'{path}: its backbone is {backbone.get("type")}, not a ViT of mmlape')
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


def _from_checkpoint(path: str, grid: Grid | None) -> VisionTransformer:
    """A plain ViT with the file's stem, norms and PE; an adapter's own parts are left out."""
    weights = translate(state_dict_of(read_checkpoint(path), path), path)
    arch, (pe_type, _) = arch_of(weights), position_of(weights)
    side = arch.pop('patch_size')
    del arch['name']
    table = weights.tensors.get('blocks.0.attn.relative_position_bias_table')
    grid = grid or _square_grid(weights, table, path)
    model = VisionTransformer(
        dict(arch, num_heads=1 if table is None else table.shape[1]),
        img_size=(grid[0] * side, grid[1] * side),
        patch_size=side,
        in_channels=weights.tensors['patch_embed.proj.weight'].shape[1],
        out_type='raw',
        with_cls_token=bool(weights.prefix_tokens),
        pe_type=pe_type,
        pe_joining=weights.joining if pe_type != 'none' else 'default',
        patch_norm=weights.patch_norm,
        norm_cfg=dict(type='LN', eps=1e-5 if weights.layout == 'mmseg' else 1e-6),
    )
    report = load_backbone(model, path, grid=grid, strict=False)
    left = [name for name in model.state_dict() if name not in report.loaded and any(part in name for part in SEEN)]
    if left:
        raise CheckpointError(
            f'checkpoint {path} does not say how its position embedding is used ({left[0]} does not fit): '
            f'name its config too, CONFIG@{path}'
        )
    return model


def _square_grid(weights: Weights, bias_table: torch.Tensor | None, path: str) -> Grid:
    """The grid of the stored PE, if it is a square; (1, 1) without a PE."""
    if bias_table is not None:
        side = (math.isqrt(bias_table.shape[0]) + 1) // 2
        square = (2 * side - 1) ** 2 == bias_table.shape[0]
    elif weights.pe_names:
        rows = weights.tensors[weights.pe_names[0]].shape[-2]
        cells = rows - (len(weights.prefix_tokens) or int(weights.layout == 'vit-adapter'))
        side = math.isqrt(cells)
        square = side * side == cells
    else:
        side, square = 1, True
    if not square:
        raise CheckpointError(
            f'checkpoint {path}: its position embedding is of no square grid, pass --grid ROWS COLUMNS'
        )
    return side, side
