"""What ViT-Lite, CVT and CCT say about their checkpoints: the public layout, and what a file tells of a model."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from mmlape.checkpoint.key_maps import Layout, Tensors, Weights, rename_keys
from mmlape.checkpoint.targets import Target
from mmlape.models.base.checkpoint import CheckpointAdapter, Description
from mmlape.models.base.tensor_names import InferredPosition, TensorNames
from mmlape.models.compact.options import ARCHS, patch_side
from mmlape.models.position import AbsolutePosition

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
    other = weights.heads and pooled not in ('cls_token', 'sequence_pool')
    return [f'a head on out_type={pooled!r}'] if other else []


PUBLIC = Target(
    _to_public,
    names=r'tokenizer\.conv_layers\.\d+\.0\.\w+|positional_emb|class_emb|(attention_pool|norm)\.\w+'
    r'|blocks\.\d+\.(pre_norm|norm1|linear[12]|self_attn\.(qkv|proj))\.\w+',
    encodings=((AbsolutePosition,), ()),
    arguments={'pe_joining': ['default'], 'patch_norm': ['none'], 'out_type': None},
    clashes=_other_pooling,
)


def arch_of(weights: Weights) -> tuple[str | None, dict]:
    """Return the name of an arch, or None, and its values apart from the heads."""
    tensors = weights.tensors
    stems = [name for name in tensors if re.fullmatch(r'tokenizer\.conv_layers\.\d+\.0\.weight', name)]
    side = tensors[stems[0]].shape[-1]
    patches = 'tokenizer.conv_layers.0.0.bias' in tensors
    hidden, dims = tensors['blocks.0.linear1.weight'].shape
    arch = dict(
        embed_dims=dims,
        num_layers=1 + max(int(m[1]) for name in tensors if (m := re.match(r'blocks\.(\d+)\.', name))),
        feedforward_channels=hidden,
        tokenizer=dict(type='patch', patch_size=side)
        if patches
        else dict(type='conv', kernel_size=side, num_convs=len(stems)),
        pooling='cls_token' if CLASS_TOKEN in tensors else 'sequence_pool',
    )
    heads = NAMES.infer_heads(weights)
    fitting = (name for name, known in ARCHS.items() if dict(arch, num_heads=heads or known['num_heads']) == known)
    return next(fitting, None), arch


class CompactCheckpointAdapter(CheckpointAdapter):
    """The public code's names, with ``classifier.`` and without."""

    names = NAMES
    assumed_arguments: ClassVar[Mapping[str, Any]] = {'patch_norm': 'none'}

    def layouts(self, kind: type) -> tuple[Layout, ...]:
        """Return the public code's layout and ours."""
        return LAYOUTS

    def targets(self) -> dict[str, Target]:
        """Return this package's layout, and that of the public code."""
        return {**super().targets(), 'compact-transformers': PUBLIC}

    def infer_position(self, weights: Weights) -> InferredPosition:
        """Return a file's position encodings."""
        return NAMES.infer_position(weights, prefix=int(CLASS_TOKEN in weights.tensors))

    def infer(self, kind: type, weights: Weights) -> Description:
        """Infer arch, position encodings and stem."""
        name, shape = arch_of(weights)
        position, patch_norm = self.infer_position(weights), NAMES.infer_patch_norm(weights, 'tokenizer')
        rows = {'arch': name or 'custom', **shape, **NAMES.rows(weights, position), 'patch_norm': patch_norm}
        arch, notes = NAMES.infer_arch(weights, name, shape)
        channels = weights.tensors['tokenizer.conv_layers.0.0.weight'].shape[1]
        config: dict[str, Any] = dict(arch=arch)
        if position.grid:
            config |= position.img_size(patch_side(shape['tokenizer']), default=0)
        if channels != 3:
            config['in_channels'] = channels
        if CLASS_TOKEN not in weights.tensors and not weights.has(POOL):
            config['out_type'] = 'featmap'
        config |= dict(NAMES.options(weights, position), patch_norm=patch_norm)
        notes += NAMES.notes(weights, position)
        if weights.normalisation is None:
            notes.append("images: the public weights want their dataset's mean and std")
        return Description(rows, config, notes)
