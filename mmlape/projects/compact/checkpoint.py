"""What ViT-Lite, CVT and CCT say about their checkpoints: the public layout, and what a file tells of a model."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from mmlape.checkpoint.key_maps import Layout, Tensors, Weights, rename_keys
from mmlape.checkpoint.targets import Target
from mmlape.models.base.checkpoint import ShapesAdapter
from mmlape.models.base.tensor_names import Description, TensorNames
from mmlape.models.position import AbsolutePosition
from mmlape.projects.compact.layers import patch_side

CLASS_TOKEN, POOL = 'class_emb', 'attention_pool.'
NAMES = TensorNames('positional_emb', attn='self_attn.')


def _from_public(tensors: Tensors) -> Tensors:
    return rename_keys(tensors, [(r'^classifier\.fc\.', 'head.fc.'), (r'^classifier\.', '')])


def _to_public(tensors: Tensors) -> Tensors:
    return rename_keys(tensors, [(r'^head\.(fc\.)?', 'classifier.fc.'), (r'^(?!tokenizer\.)', 'classifier.')])


LAYOUTS = (
    Layout(
        'compact-transformers', (r'classifier\.blocks\.0\.self_attn\.qkv\.', r'tokenizer\.conv_layers\.'), _from_public
    ),
    Layout('compact', (r'blocks\.0\.self_attn\.qkv\.', r'tokenizer\.conv_layers\.')),
)


def _other_pooling(weights: Weights) -> list[str]:
    """Return what pools the tokens otherwise than by the class token or by sequence pooling."""
    if CLASS_TOKEN not in weights.tensors and not weights.has(POOL):
        return ['a model without pooling']
    pooled = weights.recorded.get('out_type', 'cls_token')
    other = weights.head_tensors and pooled not in ('cls_token', 'sequence_pool')
    return [f'a head on out_type={pooled!r}'] if other else []


PUBLIC = Target(
    _to_public,
    names=r'tokenizer\.conv_layers\.\d+\.0\.\w+|positional_emb|class_emb|(attention_pool|norm)\.\w+'
    r'|blocks\.\d+\.(pre_norm|norm1|linear[12]|self_attn\.(qkv|proj))\.\w+',
    encodings=((AbsolutePosition,), ()),
    arguments={'pe_joining': ['default'], 'patch_norm': ['none'], 'out_type': None},
    clashes=_other_pooling,
)


class CompactCheckpointAdapter(ShapesAdapter):
    """The public code's names, with ``classifier.`` and without."""

    public_layouts = LAYOUTS
    public_targets: ClassVar[Mapping[str, Target]] = {'compact-transformers': PUBLIC}
    names = NAMES
    class_token = CLASS_TOKEN

    def __init__(self):
        super().__init__(
            signs=(),
            stem='tokenizer',
            widths=dict(embed_dims='norm.weight', feedforward_channels='blocks.0.linear1.weight'),
            channels=lambda tensors: tensors['tokenizer.conv_layers.0.0.weight'].shape[1],
        )

    def infer_shape(self, weights: Weights) -> dict[str, Any]:
        """Return widths, depth, tokenizer and pooling."""
        stems = [name for name in weights.tensors if re.fullmatch(r'tokenizer\.conv_layers\.\d+\.0\.weight', name)]
        side = weights.tensors[stems[0]].shape[-1]
        # only the convolution of patches has a bias
        patches = 'tokenizer.conv_layers.0.0.bias' in weights.tensors
        tokenizer = dict(patch_size=side) if patches else dict(kernel_size=side, num_convs=len(stems))
        return dict(
            super().infer_shape(weights),
            tokenizer=dict(type='patch' if patches else 'conv', **tokenizer),
            pooling='cls_token' if CLASS_TOKEN in weights.tensors else 'sequence_pool',
        )

    def infer_patch_size(self, kind: type, shape: dict[str, Any]) -> int:
        """Return the side in pixels that a token stands for."""
        return patch_side(shape['tokenizer'])

    def infer(self, kind: type, weights: Weights) -> Description:
        """Infer what ``ShapesAdapter`` does, and a model without pooling."""
        rows, config, notes = super().infer(kind, weights)
        if CLASS_TOKEN not in weights.tensors and not weights.has(POOL):
            config['out_type'] = 'featmap'
        if weights.normalisation is None:
            notes.append("images: the public weights want their dataset's mean and std")
        return Description(rows, config, notes)
