"""What a Swin Transformer says about its checkpoints: arch, windows, position encodings and stem of a file."""

import re
from typing import Any, ClassVar

from torch import Tensor

from mmlape.checkpoint.key_maps import Layout, Weights
from mmlape.checkpoint.loading import LoadOptions, LoadReport
from mmlape.checkpoint.targets import Target
from mmlape.errors import CheckpointError
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.base.stored_position import HEADS_ASSUMED, InferredPosition, TensorNames, usual_heads
from mmlape.models.grid import Grid
from mmlape.models.position import AbsolutePosition, AttentionPosition, kinds
from mmlape.models.position.relative_bias import INDEX, TABLE
from mmlape.models.swin.layouts import LAYOUTS, num_stages, to_mmpretrain, to_swin, to_timm
from mmlape.models.swin.options import ARCHS, table_windows

NAMES = TensorNames('absolute_pos_embed', 'layers.0.blocks.0.')
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
        **dict.fromkeys(('qkv_bias', 'norm_cfg', 'pad_small_map')),
    },
)
"""What Microsoft's code has a place for, and MMPretrain's."""


def arch_of(weights: Weights) -> dict:
    """Return ``embed_dims``, ``depths``, and ``num_heads``, None where no encoding inside attention tells them."""
    found = [re.match(r'layers\.(\d+)\.blocks\.(\d+)\.', name) for name in weights.tensors]
    blocks = {(int(match[1]), int(match[2])) for match in found if match}
    stages = range(num_stages(weights.tensors))
    depths = tuple(sum(place[0] == stage for place in blocks) for stage in stages)
    heads = tuple(weights.known.get('num_heads') or (of_stage(stage).heads(weights) for stage in stages))
    dims = weights.tensors['patch_embed.proj.weight'].shape[0]
    return dict(embed_dims=dims, depths=depths, num_heads=None if None in heads else heads)


def of_stage(stage: int) -> TensorNames:
    """Return the names in a stage."""
    return TensorNames(NAMES.table, f'layers.{stage}.blocks.0.')


def arch_name(arch: dict) -> str | None:
    """Return the name of an arch; heads that are unknown are taken for those of the name."""
    for name, known in ARCHS.items():
        if all(arch[key] in (known[key], None) for key in known):
            return name
    return None


def window_of(weights: Weights) -> int | tuple[int | None, ...] | None:
    """Return the side of a window, or of each stage's where they differ; None where nothing tells."""
    sides = []
    for stage in range(num_stages(weights.tensors)):
        attn = of_stage(stage).attention(weights)
        grids = [kind.infer_grid(attn, 0) for kind in kinds(AttentionPosition) if kind.found_in(attn)]
        sides.append(next((grid[0] for grid in grids if grid), None))
    return sides[0] if len(set(sides)) == 1 else tuple(sides)


def hierarchy_of(weights: Weights) -> str:
    """Return 'stage' if there are tables of later stages, else 'merge'."""
    return 'stage' if len(NAMES.tables(weights)) > 1 else 'merge'


def patch_norm_of(weights: Weights) -> str:
    """Return 'dual', 'pre', 'post', 'rms' or 'none', from the norms in the stem."""
    pre, post = (weights.has(rf'patch_embed\.{name}\.') for name in ('norm0', 'norm'))
    if pre and post and not weights.has(r'patch_embed\.norm0\.bias$'):
        return 'rms'
    return {(True, True): 'dual', (True, False): 'pre', (False, True): 'post', (False, False): 'none'}[pre, post]


def stored_position(weights: Weights, grid: Grid | None = None) -> InferredPosition:
    """Return the position encodings of a file; only an absolute one has a grid, the others have a window's."""
    found = NAMES.position(weights, 0, grid)
    return found if NAMES.tables(weights) else found._replace(grid=None, needs_grid=False)


def position_options(weights: Weights, position: InferredPosition) -> dict:
    """Return the arguments of the model that concern its position encodings."""
    options = NAMES.options(weights, position)
    return options | ({} if hierarchy_of(weights) == 'merge' else {'pe_hierarchy': 'stage'})


def other_outputs(weights: Weights) -> list[str]:
    """Return what differs from one norm of the outputs, that behind the last stage."""
    last = num_stages(weights.tensors) - 1
    found = [stage for stage in range(last + 1) if f'norm{stage}.weight' in weights.tensors]
    return [] if found == [last] else [f'norms of the stages {found}, not of {last} alone']


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


class SwinCheckpoints(BaseBackbone):
    """The half of a Swin Transformer that deals with checkpoints."""

    layers_name = 'layers'
    table_name = NAMES.table
    stored_names = NAMES
    embedding_names = ('patch_embed.',)
    untraced: ClassVar[dict[str, Any]] = {
        'patch_norm': 'post',
        'norm_cfg': dict(type='LN', eps=1e-5),
        'pad_small_map': False,
    }
    pe_hierarchy: str = 'merge'
    table_windows: tuple[int, ...]

    @classmethod
    def checkpoint_layouts(cls) -> tuple[Layout, ...]:
        """Return Microsoft's layout, timm's and mmpretrain's."""
        return LAYOUTS

    @classmethod
    def checkpoint_targets(cls) -> dict[str, Target]:
        """Return this package's layout and the public ones."""
        return {
            **super().checkpoint_targets(),
            'swin': Target(to_swin, 'model', clashes=own_windows, **PUBLIC),
            'timm': Target(to_timm, **TIMM),  # no table, always a norm in the stem
            'mmpretrain': Target(to_mmpretrain, 'state_dict', clashes=own_windows, **PUBLIC),
        }

    @classmethod
    def describe_checkpoint(cls, weights: Weights, path: str) -> tuple[dict[str, str], dict, list[str]]:
        """Describe arch, windows, position encodings and stem."""
        shape, position = arch_of(weights), stored_position(weights)
        name, window = arch_name(shape), window_of(weights)
        patch_size = weights.tensors['patch_embed.proj.weight'].shape[-1]
        rows = {
            'arch': name or 'custom',
            'embed_dims': shape['embed_dims'],
            'depths': shape['depths'],
            'patch_size': patch_size,
            'window_size': window or 'unknown',
            **NAMES.rows(weights, position),
            'pe_hierarchy': hierarchy_of(weights) if NAMES.tables(weights) else '',
            'patch_norm': patch_norm_of(weights),
        }
        arch, notes = name, NAMES.notes(weights, position)
        if not name:
            widths = (shape['embed_dims'] * 2**stage for stage in range(len(shape['depths'])))
            arch = dict(shape, num_heads=shape['num_heads'] or tuple(usual_heads(dims, 32) for dims in widths))
            notes += [] if shape['num_heads'] else [HEADS_ASSUMED]
        if not window:
            notes.append('window_size leaves no trace in a file without a bias table: the usual 7 is assumed')
        config = dict(type=f'mmlape.{cls.__name__}', arch=arch, **position_options(weights, position))
        different = dict(
            patch_size=(patch_size, 4), window_size=(window or 7, 7), patch_norm=(rows['patch_norm'], 'post')
        )
        config |= {key: value for key, (value, default) in different.items() if value != default}
        if 'layers.0.blocks.0.attn.qkv.bias' not in weights.tensors:
            config['qkv_bias'] = False
        config |= position.img_size(patch_size)
        return rows, dict(config, init_cfg=dict(type='Pretrained', checkpoint=path)), notes

    @classmethod
    def config_to_view(cls, weights: Weights, grid: Grid | None, path: str) -> dict:
        """Return a model with the file's stem, norms and position encodings."""
        position = stored_position(weights, grid)
        if position.needs_grid:
            raise CheckpointError(
                f'checkpoint {path}: its position embedding is of no square grid, pass --grid ROWS COLUMNS'
            )
        stem, arch = weights.tensors['patch_embed.proj.weight'], arch_of(weights)
        return dict(
            type=f'mmlape.{cls.__name__}',
            arch=dict(arch, num_heads=arch['num_heads'] or (1,) * len(arch['depths'])),
            **position.img_size(stem.shape[-1]),
            patch_size=stem.shape[-1],
            in_channels=stem.shape[1],
            window_size=window_of(weights) or 7,
            out_type='raw',
            patch_norm=patch_norm_of(weights),
            **position_options(weights, position),
        )

    def fit_checkpoint(self, weights: Weights, options: LoadOptions, report: LoadReport) -> dict[str, Tensor]:
        """Return a file's tensors as this model takes them.

        The indices of bias tables are the model's own; norms of outputs and, where the model has no position encoding
        at all, PE tables are left out where the model lacks them.
        """
        windows = window_of(weights)
        if isinstance(windows, tuple) and windows != self.table_windows:
            report.warnings.append(
                f'the stages of the file have windows of {windows}, those of the model {self.table_windows}: '
                f'window_size={windows} takes its tables as they are'
            )
        tensors, own = super().fit_checkpoint(weights, options, report), self.state_dict()
        tensors = {name: value for name, value in tensors.items() if not name.endswith(INDEX)}
        tensors |= {name: value for name, value in own.items() if name.endswith(INDEX)}
        tables = self.stored_names.tables(weights)
        stored = hierarchy_of(weights)
        if self.position.absolute is not None and tables and stored != self.pe_hierarchy:
            report.problems.append(
                f'wrong pe_hierarchy: that of the file is {stored!r}, the model has {self.pe_hierarchy!r}'
            )
        unwanted = [name for name in tensors if re.match(r'norm\d+\.', name) and name not in own]
        if self.position.absolute is None and not self.position.inside:
            unwanted += tables
        for name in unwanted:
            del tensors[name]
            report.dropped.append(name)
        return tensors

    def table_grid(self, name: str, grid: Grid) -> Grid:
        """Return the grid of a PE table; the number behind its name is that of its stage."""
        for _ in range(int(name.removeprefix(self.table_name) or 0)):
            grid = tuple((side + 1) // 2 for side in grid)
        return grid

    def may_be_new(self, name: str, weights: Weights, options: LoadOptions) -> bool:
        """Check whether a tensor may keep its initial values: norms of outputs may, which a classifier lacks."""
        norm = re.match(r'norm\d+\.', name)
        if norm:
            return not weights.has(re.escape(norm[0]))
        return super().may_be_new(name, weights, options)
