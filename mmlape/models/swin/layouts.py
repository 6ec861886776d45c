"""Layouts of a Swin Transformer in public files: how each names its tensors, in this package's (Microsoft's) names.

'swin' (Microsoft, also its detectors and segmentors, and this package), 'timm' (each merging belongs to the stage
after it), 'mmpretrain' (also mmdetection and mmsegmentation; the values to merge are in another order).
"""

import re

from torch import Tensor

from mmlape.checkpoint.key_maps import Layout, Tensors, rename_keys
from mmlape.models.grid import square_grid
from mmlape.models.position.relative_bias import INDEX, TABLE, offset_index

_MMPRETRAIN_NAMES = (
    (r'^patch_embed\.projection\.', 'patch_embed.proj.'),
    (r'^stages\.(\d+)\.blocks\.(\d+)\.attn\.w_msa\.', r'layers.\1.blocks.\2.attn.'),
    (r'^stages\.(\d+)\.blocks\.(\d+)\.ffn\.layers\.0\.0\.', r'layers.\1.blocks.\2.mlp.fc1.'),
    (r'^stages\.(\d+)\.blocks\.(\d+)\.ffn\.layers\.1\.', r'layers.\1.blocks.\2.mlp.fc2.'),
    (r'^stages\.', 'layers.'),
)
_TO_MMPRETRAIN_NAMES = (
    (r'^patch_embed\.proj\.', 'backbone.patch_embed.projection.'),
    (r'^layers\.(\d+)\.blocks\.(\d+)\.attn\.', r'backbone.stages.\1.blocks.\2.attn.w_msa.'),
    (r'^layers\.(\d+)\.blocks\.(\d+)\.mlp\.fc1\.', r'backbone.stages.\1.blocks.\2.ffn.layers.0.0.'),
    (r'^layers\.(\d+)\.blocks\.(\d+)\.mlp\.fc2\.', r'backbone.stages.\1.blocks.\2.ffn.layers.1.'),
    (r'^layers\.', 'backbone.stages.'),
    (r'^head\.(?=weight|bias)', 'head.fc.'),
    (r'^(?!head\.)', 'backbone.'),
)
_MERGED = r'\.downsample\.(norm|pe_norm|reduction)\.'
_CELLS = (0, 2, 1, 3)
"""The cells by row of mmpretrain, in Microsoft's order: by column; and the reverse."""


def num_stages(tensors: Tensors) -> int:
    """Return the number of stages."""
    return 1 + max(int(found[1]) for name in tensors if (found := re.match(r'layers\.(\d+)\.blocks\.', name)))


def _by_cell(value: Tensor) -> Tensor:
    """Reorder the last axis, 4C values of merged cells, from mmpretrain's (channel, cell) to (cell, channel)."""
    return value.unflatten(-1, (-1, 4)).movedim(-1, -2)[..., _CELLS, :].flatten(-2)


def _by_channel(value: Tensor) -> Tensor:
    """Reverse ``_by_cell``."""
    return value.unflatten(-1, (4, -1))[..., _CELLS, :].movedim(-2, -1).flatten(-2)


def _from_swin(tensors: Tensors) -> Tensors:
    """Rename the classifier's norm, which is that of the last stage's output; masks depend on the size alone."""
    tensors = {name: value for name, value in tensors.items() if not name.endswith('.attn_mask')}
    return rename_keys(tensors, [(r'^norm\.', f'norm{num_stages(tensors) - 1}.')])


def _from_timm(tensors: Tensors) -> Tensors:
    stages = range(1, num_stages(tensors))
    return _from_swin(
        rename_keys(tensors, [(rf'^layers\.{i}\.downsample\.', f'layers.{i - 1}.downsample.') for i in stages])
    )


def _from_mmpretrain(tensors: Tensors) -> Tensors:
    tensors = _from_swin(rename_keys(tensors, _MMPRETRAIN_NAMES))
    return {name: _by_cell(value) if re.search(_MERGED, name) else value for name, value in tensors.items()}


def to_swin(tensors: Tensors) -> Tensors:
    """Give the norm behind a classifier's last stage its name, if it is the only one; complete the indices."""
    last = num_stages(tensors) - 1
    alone = not any(re.match(rf'norm[0-{max(last - 1, 0)}]\.', name) for name in tensors) or last == 0
    names = [(rf'^norm{last}\.', 'norm.')] if alone else []
    return rename_keys(_with_indices(tensors), [*names, (r'^head\.fc\.', 'head.')])


def to_timm(tensors: Tensors) -> Tensors:
    """Move each merging to the stage after it; timm computes indices itself."""
    tensors = {name: value for name, value in to_swin(tensors).items() if not name.endswith(INDEX)}
    stages = range(num_stages(tensors) - 1)
    names = [(rf'^layers\.{i}\.downsample\.', f'layers.{i + 1}.downsample.') for i in stages]
    return rename_keys(tensors, [*names, (r'^head\.(?=weight|bias)', 'head.fc.')])


def to_mmpretrain(tensors: Tensors) -> Tensors:
    """Rename and reorder for a classifier of MMPretrain, or the backbone of MMDetection and MMSegmentation."""
    out = {name: _by_channel(v) if re.search(_MERGED, name) else v for name, v in _with_indices(tensors).items()}
    return rename_keys(out, _TO_MMPRETRAIN_NAMES)


def _with_indices(tensors: Tensors) -> Tensors:
    """Add the index that belongs to each bias table, which not every layout stores."""
    out = dict(tensors)
    for name, table in tensors.items():
        span = square_grid(len(table)) if name.endswith(TABLE) else None
        if span:
            out[name.removesuffix(TABLE) + INDEX] = offset_index(tuple((side + 1) // 2 for side in span))
    return out


_V2 = 'its attention (cosines, a network for the bias) and its norms are not those of mmlape.SwinTransformer'
_BLOCK = r'layers\.0\.blocks\.0\.attn\.qkv\.'
LAYOUTS = (
    Layout('Swin V2', (r'(layers|stages)\.0\.blocks\.0\.attn\.(w_msa\.)?cpb_mlp\.',), refused=_V2),
    Layout(
        'timm',
        (_BLOCK, r'layers\.[1-9]\d*\.downsample\.reduction\.', r'patch_embed\.proj\.'),
        _from_timm,
        absent=r'layers\.0\.downsample\.',
    ),
    Layout('swin', (_BLOCK, r'patch_embed\.proj\.'), _from_swin),
    Layout(
        'mmpretrain', (r'stages\.0\.blocks\.0\.attn\.w_msa\.qkv\.', r'patch_embed\.projection\.'), _from_mmpretrain
    ),
)
