"""The backbone in a config, a checkpoint or the folder of a run: opened to look into it, or written as an ONNX graph.

A graph has one input, ``image`` (B, C, H, W): float32, normalised as the configuration's data
preprocessor does it. Its outputs, ``feature_0`` and so on, are what the backbone returns.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmlape.checkpoint import load_backbone
from mmlape.checkpoint.fetching import is_on_hub
from mmlape.checkpoint.gate import building
from mmlape.checkpoint.key_maps import recognise_backbone
from mmlape.checkpoint.opening import OpenedFile, open_file
from mmlape.errors import CheckpointError, ConfigError
from mmlape.lab.config.config_file import config_name, load_config
from mmlape.lab.config.stored_config import preprocessor_of
from mmlape.lab.export.writing import Form, export_graph, names_of
from mmlape.lab.inference.trained_model import Trained, is_config, open_trained
from mmlape.lab.training.optim import quiet_logger
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.grid import Grid

SHOWN = ('pos_embed', '.norm1.', '.pe_norm.', '.attn.relative_position')
"""Parts of names that a figure shows, so a checkpoint must fill them."""


class Opened(NamedTuple):
    """The backbone that an argument means."""

    name: str
    model: BaseBackbone  # in evaluation mode
    config: Config | None  # None for a checkpoint alone


def open_models(texts: Sequence[str], **options) -> dict[str, BaseBackbone]:
    """Return the backbones of `open_model` by name; of one name, each has its argument in brackets.

    Raises:
        ConfigError: If an argument is given twice.
    """
    twice = [text for text in texts if list(texts).count(text) > 1]
    if twice:
        raise ConfigError(f'{twice[0]} is given twice: give each model once')
    opened = [open_model(text, **options) for text in texts]
    names = [backbone.name for backbone in opened]
    return {
        f'{backbone.name} ({text})' if names.count(backbone.name) > 1 else backbone.name: backbone.model
        for text, backbone in zip(texts, opened)
    }


def open_model(
    text: str, cfg_options: list[str] | None = None, untrained: bool = False, grid: Grid | None = None
) -> Opened:
    """Build the backbone that an argument of the command line means, in evaluation mode.

    Return its name with it, and its config if there is one. The name is the config's and the checkpoint's,
    'deit-tiny_4xb256-300e_in1k, epoch_5', 'untrained' for initial values, and the config's alone for weights that it
    names.

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
    named = [text] if Path(text).is_dir() else []
    if '@' in text and not Path(text).exists() and not is_on_hub(text):
        named = text.split('@', 1)
    with quiet_logger():
        if not named and not is_config(text):
            beside = sorted(Path(text).parent.glob('*.py'))
            names = [*([beside[0].stem] if len(beside) == 1 else []), Path(text).stem]
            return Opened(', '.join(names), _from_checkpoint(text, grid).eval(), None)
        trained = open_trained(named, cfg_options) if named else Trained(load_config(text, cfg_options), None)
        trained.say_chosen()
        with trained.building():
            model = _from_config(trained.config, text, trained.file or trained.checkpoint, untrained, grid)
    is_loaded = trained.checkpoint is None and model.load_report is not None  # what the config names
    return Opened(config_name(trained.config) if is_loaded else trained.name, model.eval(), trained.config)


def _backbone(cfg: Config, path: str, **changes) -> BaseBackbone:
    """Build the backbone of a configuration's model, without its initial weights."""
    backbone = (cfg.get('model') or {}).get('backbone') or {}
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    model = MODELS.build(dict(backbone, **changes)) if backbone else None
    if not isinstance(model, BaseBackbone):
        raise ConfigError(f'{path}: its backbone is {backbone.get("type")}, not one of mmlape')
    return model


def _from_config(
    cfg: Config, path: str, checkpoint: OpenedFile | str | None, untrained: bool, grid: Grid | None
) -> BaseBackbone:
    model = _backbone(cfg, path)
    if checkpoint is not None:
        load_backbone(model, checkpoint, grid=grid)
    elif not untrained:
        try:
            model.init_weights()
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}; name another as {path}@FILE, or pass --untrained for the config's initial weights"
            ) from error
    return model


def _from_checkpoint(path: str, grid: Grid | None) -> BaseBackbone:
    """Build the model that a file records, or whose names and shapes it has."""
    file = open_file(path)
    backbone, weights = recognise_backbone(file)
    config = backbone.checkpoint_adapter.view(backbone, weights, grid, path)
    with building(f'checkpoint {path}', weights.tensors):
        model = MODELS.build(config)
    report = model.load_report = load_backbone(model, file, grid=grid, strict=False)
    left = [name for name in model.state_dict() if name not in report.loaded and any(part in name for part in SHOWN)]
    if left:
        raise CheckpointError(
            f'checkpoint {path} does not say how its position encoding is used ({left[0]} does not '
            f'fit): name its config too, CONFIG@{path}'
        )
    return model


def export_backbone(trained: Trained, form: Form, out: str | Path) -> float:
    """Write the graph of the backbone of a configuration's model, and return how far its numbers are from PyTorch's.

    Raises:
        ExportError: If torch cannot export it, a difference exceeds the tolerance, or ``out`` is a
            folder; nothing is written then.
        StackError: If a package is missing.
    """
    cfg, checkpoint = trained.config, trained.checkpoint
    preprocessor = preprocessor_of(cfg)
    used = ('mean', 'std', 'bgr_to_rgb', 'to_rgb')
    notes = names_of(cfg, checkpoint)
    notes |= {key: str(preprocessor[key]) for key in used if key in preprocessor}
    with trained.building():
        backbone = build_backbone(cfg, trained.file or checkpoint)
    return export_graph(backbone.float().eval(), form, out, notes)


def build_backbone(cfg: Config, checkpoint: OpenedFile | str | None) -> BaseBackbone:
    """Build the backbone of a configuration's model, with the weights of a checkpoint of either or the initial ones.

    Raises:
        ConfigError: If it is no backbone of this package.
        CheckpointError: If the checkpoint does not fit, or leaves parts of the backbone at their
            initial values.
    """
    backbone = _backbone(cfg, cfg.filename, init_cfg=None)
    if checkpoint is not None:
        report = load_backbone(backbone, checkpoint)
        if report.new:
            raise CheckpointError(
                f'checkpoint {report.path}: lacks {len(report.new)} tensors of the backbone, such '
                f'as {report.new[0]}: give the checkpoint of a trained model'
            )
    return backbone
