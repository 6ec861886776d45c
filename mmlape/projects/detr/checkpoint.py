"""DETR's checkpoints: mmdetection's names, and those of the original code, which iRPE's files have too.

The original class head has a row for each COCO category id from 0 to 90 and one for no object; mmdetection's has one
for each of the 80 categories and one for no object.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmlape.checkpoint.heads import UNUSED_IDS
from mmlape.checkpoint.key_maps import Layout, Target, Tensors, Weights, rename_keys
from mmlape.checkpoint.loading import LoadOptions, LoadReport
from mmlape.errors import CheckpointError
from mmlape.models.base.checkpoint import CheckpointAdapter, Size
from mmlape.models.base.fitting import TensorNames
from mmlape.models.grid import Grid
from mmlape.models.position import joinings

ROWS = 92
CLASS_HEAD = ('bbox_head.fc_cls.weight', 'bbox_head.fc_cls.bias')
BY_ID = f'{ROWS} rows by COCO category id'
NAMES = TensorNames(table='pos_embed', layer='encoder.layers.0.', attn='self_attn.')

_PARTS = (
    (r'^backbone\.0\.body\.', 'backbone.'),
    (r'^input_proj\.', 'neck.convs.0.conv.'),
    (r'^query_embed\.', 'query_embedding.'),
    (r'^class_embed\.', 'bbox_head.fc_cls.'),
    (r'^bbox_embed\.layers\.0\.', 'bbox_head.reg_ffn.layers.0.0.'),
    (r'^bbox_embed\.layers\.1\.', 'bbox_head.reg_ffn.layers.1.'),
    (r'^bbox_embed\.layers\.2\.', 'bbox_head.fc_reg.'),
    (r'^transformer\.decoder\.norm\.', 'decoder.post_norm.'),
    (r'^transformer\.', ''),
)
_IN_LAYER = r'^((?:en|de)coder\.layers\.\d+\.)'
_LAYERS = (
    (rf'{_IN_LAYER}self_attn\.(in_proj|out_proj)', r'\1self_attn.attn.\2'),
    (rf'{_IN_LAYER}multihead_attn\.', r'\1cross_attn.attn.'),
    (rf'{_IN_LAYER}linear1\.', r'\1ffn.layers.0.0.'),
    (rf'{_IN_LAYER}linear2\.', r'\1ffn.layers.1.'),
    *((rf'{_IN_LAYER}norm{number}\.', rf'\1norms.{number - 1}.') for number in (1, 2, 3)),
)


def from_original(tensors: Tensors) -> Tensors:
    """Return tensors of the original code under mmdetection's names; the class head keeps its rows."""
    return rename_keys(rename_keys(tensors, _PARTS), _LAYERS)


def contiguous_classes(tensors: Tensors) -> Tensors:
    """Return the tensors with a class head of ``ROWS`` rows by category id reduced to the categories and no object."""
    used = torch.tensor([row for row in range(ROWS) if row not in UNUSED_IDS])
    return {
        name: value[used.to(value.device)] if name in CLASS_HEAD and len(value) == ROWS else value
        for name, value in tensors.items()
    }


ORIGINAL = Layout(
    'original DETR',
    (r'transformer\.encoder\.layers\.0\.self_attn\.in_proj_weight', r'query_embed\.weight', r'class_embed\.weight'),
    from_original,
    complete=True,
)
MMDET = Layout(
    'mmdetection DETR',
    (r'encoder\.layers\.0\.self_attn\.attn\.in_proj_weight', r'decoder\.layers\.0\.cross_attn\.attn\.in_proj_weight'),
    complete=True,
)


class DETRCheckpointAdapter(CheckpointAdapter):
    """The files of the complete model; it needs no mmdetection."""

    public_layouts = (ORIGINAL, MMDET)
    public_targets: ClassVar[Mapping[str, Target]] = {'mmlape': Target(contiguous_classes, wrapper='state_dict')}
    names = NAMES
    config_key: ClassVar[str] = 'model'

    def size(self, weights: Weights) -> Size:
        """Return the width, and the number of layers of the encoder."""
        return weights.tensors['query_embedding.weight'].shape[1], len(NAMES.layers(weights))

    def rows(self, weights: Weights) -> dict[str, Any]:
        """Return what a file tells, its queries and its class head among it."""
        queries, classes = (len(weights.tensors['query_embedding.weight']), len(weights.tensors[CLASS_HEAD[0]]))
        head = BY_ID if classes == ROWS else f'{classes - 1} classes, no object'
        return {**super().rows(weights), 'queries': queries, 'class head': head}

    def view(self, model_class: type, weights: Weights, grid: Grid | None, path: str) -> dict:
        """Refuse, since only backbones are drawn."""
        raise CheckpointError(
            f'checkpoint {path}: of a complete DETR, and only position encodings of backbones are drawn'
        )

    def fit(self, model: nn.Module, weights: Weights, options: LoadOptions, report: LoadReport) -> dict[str, Tensor]:
        """Return a file's tensors as a model takes them, of COCO's class head the rows that it has."""
        tensors, state = super().fit(model, weights, options, report), model.state_dict()
        reduced = contiguous_classes(tensors)
        for name in CLASS_HEAD:
            if name in tensors and tensors[name].shape != state[name].shape == reduced[name].shape:
                tensors[name] = reduced[name]
                report.resized[name] = f'{BY_ID} -> {len(reduced[name])}, by class and for no object'
        return tensors

    def may_be_new(self, model: nn.Module, name: str, weights: Weights, options: LoadOptions) -> bool:
        """Check whether a tensor may keep its initial value; the original's frozen batch norms have no counters."""
        return name.endswith('.num_batches_tracked') or super().may_be_new(model, name, weights, options)

    def ambiguous_options(self, model: nn.Module) -> dict[str, list[str]]:
        """Return the arguments whose value no key tells, with the values that leave the keys of this model's."""
        options = super().ambiguous_options(model)
        if 'pe_joining' in options:
            options['pe_joining'] = [name for name in options['pe_joining'] if name in fitting_joinings()]
        return options


def fitting_joinings() -> list[str]:
    """Return the joinings that DETR takes: its own as 'default', and those that join a normed PE in layers alone."""
    return [
        name
        for name, joining in joinings().items()
        if joining.name == 'default' or (joining.with_norm and not joining.at_input)
    ]
