"""Export of a backbone to ONNX.

A graph has one input, ``image`` (B, C, H, W): float32, normalised as the configuration's data
preprocessor does it. Its outputs, ``feature_0`` and so on, are what the backbone returns.
"""

import copy
from pathlib import Path

from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from mmlape.checkpoint import load_backbone
from mmlape.errors import CheckpointError, ConfigError
from mmlape.lab.export.model import names_of
from mmlape.lab.export.writing import Form, Written, export_graph
from mmlape.models.base.backbone import BaseBackbone


def export_backbone_of(cfg: Config, checkpoint: str | None, form: Form, out: str | Path) -> Written:
    """Write the graph of the backbone of a configuration's model, see `export_backbone`.

    Args:
        cfg: Of the model.
        checkpoint: Its weights, or the backbone's; None for the initial ones.
        form: Of the graph.
        out: The file.
    """
    preprocessor = cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor') or {}
    used = ('mean', 'std', 'bgr_to_rgb', 'to_rgb')
    notes = names_of(cfg, checkpoint)
    notes |= {key: str(preprocessor[key]) for key in used if key in preprocessor}
    return export_backbone(build_backbone(cfg, checkpoint), form, out, notes)


def build_backbone(cfg: Config, checkpoint: str | None) -> BaseBackbone:
    """Build the backbone of a configuration's model, with the weights of a checkpoint of either or the initial ones.

    Raises:
        ConfigError: If it is no backbone of this package.
        CheckpointError: If the checkpoint does not fit, or leaves parts of the backbone at their
            initial values.
    """
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    backbone_cfg = (cfg.get('model') or {}).get('backbone')
    backbone = MODELS.build(dict(backbone_cfg, init_cfg=None)) if backbone_cfg else None
    if not isinstance(backbone, BaseBackbone):
        raise ConfigError(f'{cfg.filename}: its model has no backbone of mmlape, but {type(backbone).__name__}')
    if checkpoint is not None:
        report = load_backbone(backbone, checkpoint)
        if report.new:
            raise CheckpointError(
                f'checkpoint {checkpoint}: lacks {len(report.new)} tensors of the backbone, such '
                f'as {report.new[0]}: give the checkpoint of a trained model'
            )
    return backbone


def export_backbone(backbone: nn.Module, form: Form, out: str | Path, notes: dict[str, str] | None = None) -> Written:
    """Write the graph with notes in its metadata, unless its numbers differ from PyTorch's by more than the tolerance.

    Raises:
        ExportError: If torch cannot export it, a difference exceeds the tolerance, or ``out`` is a
            folder; nothing is written then.
        StackError: If a package is missing.
    """
    model = copy.deepcopy(backbone).cpu().float().eval()
    return export_graph(model, form, out, notes)
