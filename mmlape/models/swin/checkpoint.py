"""The checkpoint files of a Swin Transformer: how public ones name its tensors, and how they fit a model.

Layouts are 'swin' (Microsoft, also its detectors and segmentors, and this package), 'timm' (each merging belongs to
the stage after it), 'mmpretrain' (also mmdetection and mmsegmentation; the values to merge are in another order), and
'transformers-swin' (queries, keys and values apart).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from mmlape.checkpoint.key_maps import Layout, NameTable, Target, Tensors, Weights, rename_keys
from mmlape.checkpoint.loading import LoadOptions, LoadReport
from mmlape.models.base.checkpoint import CheckpointAdapter
from mmlape.models.base.fitting import TensorNames
from mmlape.models.base.transformers_files import LAYER, NEWER, STEM, layers, read, writer
from mmlape.models.position import AbsolutePosition, AttentionPosition, kinds
from mmlape.models.position.relative_bias import INDEX, TABLE, grid_of_offsets, offset_index
from mmlape.models.swin.layers import table_windows

_MMPRETRAIN = NameTable(
    {
        'patch_embed.projection.': 'patch_embed.proj.',
        'stages.#.blocks.#.attn.w_msa.': 'layers.#.blocks.#.attn.',
        'stages.#.blocks.#.ffn.layers.0.0.': 'layers.#.blocks.#.mlp.fc1.',
        'stages.#.blocks.#.ffn.layers.1.': 'layers.#.blocks.#.mlp.fc2.',
        'stages.': 'layers.',
    }
)
_OLDER = {
    f'attention.self.{TABLE}': f'attn.{TABLE}',
    **{name.replace('attention.attention.', 'attention.self.'): ours for name, ours in LAYER.items()},
}
_TRANSFORMERS = NameTable(
    {
        'embeddings.norm.': 'patch_embed.norm.',
        'embeddings.position_embeddings': 'absolute_pos_embed',
        'embeddings.patch_embeddings.projection.': 'patch_embed.proj.',
        **layers('encoder.layers.#.blocks.#.', _OLDER, 'layers.#.blocks.#.'),
        **layers(
            'encoder.layers.#.blocks.#.',
            {**NEWER, f'attention.relative_position_bias.{TABLE}': f'attn.{TABLE}'},
            'layers.#.blocks.#.',
        ),
        'encoder.layers.': 'layers.',
        'layernorm.': 'norm.',
    }
)
_MERGED = r'\.downsample\.(norm|pe_norm|reduction)\.'
_CELLS = (0, 2, 1, 3)
"""The cells by row of mmpretrain, in Microsoft's order: by column; and the reverse."""


def num_stages(tensors: Tensors) -> int:
    """Return the number of stages."""
    return 1 + max(int(stage[1]) for name in tensors if (stage := re.match(r'layers\.(\d+)\.blocks\.', name)))


def _by_cell(value: Tensor) -> Tensor:
    """Reorder the last axis, 4C values of merged cells, from mmpretrain's (channel, cell) to (cell, channel)."""
    return value.unflatten(-1, (-1, 4)).movedim(-1, -2)[..., _CELLS, :].flatten(-2)


def _by_channel(value: Tensor) -> Tensor:
    """Reverse ``_by_cell``."""
    return value.unflatten(-1, (4, -1))[..., _CELLS, :].movedim(-2, -1).flatten(-2)


def _last_norm(tensors: Tensors) -> NameTable:
    """Return a classifier's name of the norm behind its last stage, and ours."""
    return NameTable({'norm.': f'norm{num_stages(tensors) - 1}.'})


def _merging_of_timm(tensors: Tensors) -> NameTable:
    """Return timm's names of each merging, which belongs to the stage after it, and ours."""
    stages = range(num_stages(tensors) - 1)
    return NameTable({f'layers.{stage + 1}.downsample.': f'layers.{stage}.downsample.' for stage in stages})


def _from_swin(tensors: Tensors) -> Tensors:
    """Rename the classifier's norm, which is that of the last stage's output; masks depend on the size alone."""
    tensors = {name: value for name, value in tensors.items() if not name.endswith('.attn_mask')}
    return _last_norm(tensors).read(tensors)


def _from_timm(tensors: Tensors) -> Tensors:
    return _from_swin(_merging_of_timm(tensors).read(tensors))


def _from_mmpretrain(tensors: Tensors) -> Tensors:
    tensors = _from_swin(_MMPRETRAIN.read(tensors))
    return {name: _by_cell(value) if re.search(_MERGED, name) else value for name, value in tensors.items()}


def to_swin(tensors: Tensors) -> Tensors:
    """Give the norm behind a classifier's last stage its name, if it is the only one; complete the indices."""
    last = num_stages(tensors) - 1
    alone = not any(f'norm{stage}.weight' in tensors for stage in range(last))
    out = _with_indices(tensors)
    out = _last_norm(out).write(out) if alone else out
    return rename_keys(out, [(r'^head\.fc\.', 'head.')])


def to_timm(tensors: Tensors) -> Tensors:
    """Move each merging to the stage after it; timm computes indices itself."""
    tensors = {name: value for name, value in to_swin(tensors).items() if not name.endswith(INDEX)}
    return rename_keys(_merging_of_timm(tensors).write(tensors), [(r'^head\.(?=weight|bias)', 'head.fc.')])


def to_mmpretrain(tensors: Tensors) -> Tensors:
    """Rename and reorder for a classifier of MMPretrain, or the backbone of MMDetection and MMSegmentation."""
    out = {name: _by_channel(v) if re.search(_MERGED, name) else v for name, v in _with_indices(tensors).items()}
    parts = [(r'^head\.(?=weight|bias)', 'head.fc.'), (r'^(?!head\.)', 'backbone.')]
    return rename_keys(_MMPRETRAIN.write(out), parts)


def _from_transformers(tensors: Tensors) -> Tensors:
    """Translate; behind a backbone's norms of stages, its last norm reads nothing that is returned."""
    out = read(tensors, _TRANSFORMERS)
    out = rename_keys(out, [(r'^/?hidden_states_norms\.stage', '/hidden_states_norms.stage')])
    staged = any(name.startswith('/hidden_states_norms.') for name in out)
    if staged:
        out = rename_keys(out, [(r'^(swin\.layer)?norm\.', '/norm.')])
    out = {
        re.sub(r'^/hidden_states_norms\.stage(\d+)', lambda k: f'norm{int(k[1]) - 1}', name): value
        for name, value in out.items()
    }
    return _last_norm(out).read(out)


def _for_transformers(tensors: Tensors) -> Tensors:
    """Leave indices out, and count a backbone's stages from 1, behind each of which there is a norm."""
    return {
        re.sub(r'^norm(\d+)\.', lambda k: f'hidden_states_norms.stage{int(k[1]) + 1}.', name): value
        for name, value in to_swin(tensors).items()
        if not name.endswith(INDEX)
    }


to_transformers = writer(_TRANSFORMERS, 'swin.', {'head.': 'classifier.'}, _for_transformers)


def _with_indices(tensors: Tensors) -> Tensors:
    """Add the index that belongs to each bias table, which not every layout stores."""
    out = dict(tensors)
    for name, table in tensors.items():
        window = grid_of_offsets(len(table)) if name.endswith(TABLE) else None  # windows are squares
        if window:
            out[name.removesuffix(TABLE) + INDEX] = offset_index(window)
    return out


_V2 = 'its attention (cosines, a network for the bias) and its norms are not those of mmlape.SwinTransformer'
_BLOCK = r'layers\.0\.blocks\.0\.attn\.qkv\.'
_HUB_BLOCK = r'(.*\.)?encoder\.layers\.0\.blocks\.0\.attention\.'
LAYOUTS = (
    Layout(
        "transformers' Swin V2",
        (STEM, rf'{_HUB_BLOCK}(self\.)?(continuous_position_bias_mlp|logit_scale)'),
        refused=_V2,
    ),
    Layout('transformers-swin', (STEM, rf'{_HUB_BLOCK}(self\.query|q_proj)\.'), _from_transformers),
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

NAMES = TensorNames('absolute_pos_embed', 'layers.0.blocks.0.', last_norm=r'norm\d+\.', merging='layers.0.downsample.')
LARGEST_GRID = 512  # side of a map, beyond which no later stage's is smaller than a window

_LAYERS = (
    r'layers\.\d+\.(blocks\.\d+\.(norm[12]|attn\.(qkv|proj)|mlp\.fc[12])\.(weight|bias)|downsample\.(norm|reduction)\.\w+'
    rf'|blocks\.\d+\.attn\.({TABLE}|{INDEX}))|patch_embed\.(proj|norm)\.(weight|bias)'
)
PUBLIC = dict(
    names=rf'{_LAYERS}|{NAMES.table}|norm\d+\.(weight|bias)',
    encodings=(('rpe',), (AbsolutePosition, 'rpe')),
    arguments={
        'pe_joining': ['default'],
        'patch_norm': ['post', 'none'],
        **dict.fromkeys(('qkv_bias', 'norm_cfg', 'pad_small_map', 'out_type')),
    },
)
"""What Microsoft's code has a place for, and MMPretrain's."""


def of_stage(stage: int) -> TensorNames:
    """Return the names in a stage."""
    return TensorNames(NAMES.table, f'layers.{stage}.blocks.0.')


def window_of(weights: Weights) -> int | tuple[int | None, ...] | None:
    """Return the side of a window, or of each stage's where they differ; None where nothing tells."""
    sides = []
    for stage in range(num_stages(weights.tensors)):
        attn = of_stage(stage).attention(weights)
        grids = [kind.infer_grid(attn) for kind in kinds(AttentionPosition) if kind.found_in(attn)]
        sides.append(next((grid[0] for grid in grids if grid), None))
    return sides[0] if len(set(sides)) == 1 else tuple(sides)


def hierarchy_of(weights: Weights) -> str:
    """Return 'stage' if there are tables of later stages, else 'merge'."""
    return 'stage' if len(NAMES.tables(weights)) > 1 else 'merge'


def other_outputs(weights: Weights) -> list[str]:
    """Return what differs from one norm of the outputs, that behind the last stage."""
    last = num_stages(weights.tensors) - 1
    stages = [stage for stage in range(last + 1) if f'norm{stage}.weight' in weights.tensors]
    return [] if stages == [last] else [f'norms of the stages {stages}, not of {last} alone']


def own_windows(weights: Weights) -> list[str]:
    """Return the windows of the stages if they are no single one, shrunk where the map is smaller."""
    windows = window_of(weights)
    if not isinstance(windows, tuple):
        return []
    shrunk = (table_windows(windows[:1] * len(windows), (side, side), False) for side in range(1, LARGEST_GRID))
    return [] if windows in shrunk else [f'window_size={windows}']


TIMM = dict(
    PUBLIC,
    encodings=(('rpe',),),
    arguments={**PUBLIC['arguments'], 'patch_norm': ['post'], 'pad_small_map': [False]},
    clashes=other_outputs,
)


def _other_small_maps(weights: Weights) -> list[str]:
    """Return what its classifiers do with small maps if the file is of a backbone of theirs, and the reverse."""
    padded = weights.recorded.get('pad_small_map')
    is_backbone = bool(other_outputs(weights))
    return [] if padded in (None, is_backbone) else [f'pad_small_map={padded}']


TRANSFORMERS = dict(
    PUBLIC,
    arguments={**PUBLIC['arguments'], 'patch_norm': ['post']},
    clashes=lambda weights: own_windows(weights) + _other_small_maps(weights),
)
"""What SwinModel has a place for, and SwinBackbone, which norms the output of each stage."""


class SwinCheckpointAdapter(CheckpointAdapter):
    """Microsoft's names, which are ours, timm's and MMPretrain's."""

    public_layouts = LAYOUTS
    public_targets: ClassVar[Mapping[str, Target]] = {
        'swin': Target(to_swin, 'model', clashes=own_windows, **PUBLIC),
        'timm': Target(to_timm, **TIMM),  # no table, always a norm in the stem
        'mmpretrain': Target(to_mmpretrain, 'state_dict', clashes=own_windows, **PUBLIC),
        'transformers-swin': Target(to_transformers, **TRANSFORMERS),
    }
    names = NAMES
    assumed_arguments: ClassVar[Mapping[str, Any]] = {
        'patch_norm': 'post',
        'norm_cfg': dict(type='LN', eps=1e-5),
        'pad_small_map': False,
    }

    def candidates(self, model_class: type, weights: Weights) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the models of a class that have a name; with the maps of the stages whose norms a file has."""
        stages = [stage for stage in range(num_stages(weights.tensors)) if weights.has(rf'norm{stage}\.')]
        maps = dict(out_indices=stages, out_type='featmap') if len(stages) > 1 else {}
        for name, config in super().candidates(model_class, weights):
            yield name, {**config, **maps}

    def fit(self, model: nn.Module, weights: Weights, options: LoadOptions, report: LoadReport) -> dict[str, Tensor]:
        """Return a file's tensors as a model takes them; the indices of bias tables are the model's own."""
        windows = window_of(weights)
        if isinstance(windows, tuple) and windows != model.table_windows:
            report.warnings.append(
                f'the stages of the file have windows of {windows}, those of the model '
                f'{model.table_windows}: window_size={windows} takes its tables as they are'
            )
        tensors, state = super().fit(model, weights, options, report), model.state_dict()
        tensors = {name: value for name, value in tensors.items() if not name.endswith(INDEX)}
        tensors |= {name: value for name, value in state.items() if name.endswith(INDEX)}
        stored = hierarchy_of(weights)
        if model.position.absolute is not None and NAMES.tables(weights) and stored != model.pe_hierarchy:
            report.problems.append(
                f'wrong pe_hierarchy: that of the file is {stored!r}, the model has {model.pe_hierarchy!r}'
            )
        return tensors

    def may_be_new(self, model: nn.Module, name: str, weights: Weights, options: LoadOptions) -> bool:
        """Check whether a tensor may keep its initial values: norms of outputs may, which a classifier lacks."""
        norm = re.match(r'norm\d+\.', name)
        if norm:
            return not weights.has(re.escape(norm[0]))
        return super().may_be_new(model, name, weights, options)


OF_SWIN = SwinCheckpointAdapter()
