"""What a Swin Transformer says about its checkpoints: arch, windows, position encodings and stem of a file."""

import re
from typing import Any, ClassVar

from torch import Tensor

from mmlape.checkpoint.key_maps import Layout, Weights
from mmlape.checkpoint.loading import LoadOptions, LoadReport
from mmlape.checkpoint.targets import Target
from mmlape.errors import CheckpointError
from mmlape.models.backbones.base import BaseBackbone
from mmlape.models.backbones.stored_position import StoredNames
from mmlape.models.backbones.swin_layouts import LAYOUTS, num_stages, to_mmpretrain, to_swin, to_timm
from mmlape.models.backbones.swin_options import ARCHS
from mmlape.models.layers.grid import Grid, square_grid
from mmlape.models.position import AbsolutePosition, AttentionPosition, kinds
from mmlape.models.position.relative_bias import INDEX, TABLE
from mmlape.models.position.stored import with_batch_axis

NAMES = StoredNames('absolute_pos_embed', 'layers.0.blocks.0.')

_LAYERS = (
    r'layers\.\d+\.(blocks\.\d+\.(norm[12]|attn\.(qkv|proj)|mlp\.fc[12])\.(weight|bias)|downsample\.(norm|reduction)\.\w+'
    rf'|blocks\.\d+\.attn\.({TABLE}|{INDEX}))|patch_embed\.(proj|norm)\.(weight|bias)'
)
PUBLIC = dict(
    names=rf'{_LAYERS}|{NAMES.table}|norm\d+\.(weight|bias)',
    encodings=(('rpe',), (AbsolutePosition, 'rpe')),
    arguments={'pe_joining': ['default'], 'patch_norm': ['post', 'none'], 'qkv_bias': None, 'norm_cfg': None},
)
"""What Microsoft's code has a place for, and MMPretrain's."""


def arch_of(weights: Weights) -> dict:
    """Return ``embed_dims``, ``depths``, and ``num_heads``, None where no encoding inside attention tells them."""
    found = [re.match(r'layers\.(\d+)\.blocks\.(\d+)\.', name) for name in weights.tensors]
    blocks = {(int(match[1]), int(match[2])) for match in found if match}
    stages = range(num_stages(weights.tensors))
    depths = tuple(sum(place[0] == stage for place in blocks) for stage in stages)
    heads = tuple(_heads(weights, stage) for stage in stages)
    dims = weights.tensors['patch_embed.proj.weight'].shape[0]
    return dict(embed_dims=dims, depths=depths, num_heads=None if None in heads else heads)


def _heads(weights: Weights, stage: int) -> int | None:
    return StoredNames(NAMES.table, f'layers.{stage}.blocks.0.').heads(weights)


def arch_name(arch: dict) -> str | None:
    """Return the name of an arch; heads that are unknown are taken for those of the name."""
    for name, known in ARCHS.items():
        if all(arch[key] in (known[key], None) for key in known):
            return name
    return None


def window_of(weights: Weights) -> int | None:
    """Return the side of a window; None where nothing tells."""
    attn = NAMES.attention(weights)
    grids = [kind.stored_grid(attn, 0) for kind in kinds(AttentionPosition) if kind.found_in(attn)]
    return next((grid[0] for grid in grids if grid), None)


def joinings_in(weights: Weights) -> list[str]:
    """Return the joinings that leave such names in a file; without a table, only the usual one is meant."""
    found = NAMES.joinings(weights)
    return found if NAMES.tables(weights) else found[:1]


def hierarchy_of(weights: Weights) -> str:
    """Return 'stage' if there are tables of later stages, else 'merge'."""
    return 'stage' if len(NAMES.tables(weights)) > 1 else 'merge'


def patch_norm_of(weights: Weights) -> str:
    """Return 'dual', 'pre', 'post', 'rms' or 'none', from the norms in the stem."""
    pre, post = (weights.has(rf'patch_embed\.{name}\.') for name in ('norm0', 'norm'))
    if pre and post and not weights.has(r'patch_embed\.norm0\.bias$'):
        return 'rms'
    return {(True, True): 'dual', (True, False): 'pre', (False, True): 'post', (False, False): 'none'}[pre, post]


def stored_grid(weights: Weights, grid: Grid | None = None) -> tuple[Grid | None, bool]:
    """Return the grid of the absolute PE, None without one; and whether the user has to give it."""
    tables = NAMES.tables(weights)
    if not tables:
        return None, False
    rows = with_batch_axis(weights.tensors[tables[0]]).shape[1]
    grid = grid or weights.grid or square_grid(rows)
    return grid, grid is None


def position_options(weights: Weights, grid: Grid | None = None) -> dict:
    """Return the arguments of the model that concern its position encodings."""
    pe_type = NAMES.position(weights, 0, grid).pe_type
    options = dict(pe_type=pe_type, pe_joining=NAMES.joinings(weights)[0])
    norm = next(iter(NAMES.norms(weights)), 'layernorm')
    options |= {} if norm == 'layernorm' else {'pe_norm': norm}
    return options | ({} if hierarchy_of(weights) == 'merge' else {'pe_hierarchy': 'stage'})


def other_outputs(weights: Weights) -> list[str]:
    """Return what differs from one norm of the outputs, that behind the last stage."""
    last = num_stages(weights.tensors) - 1
    found = [stage for stage in range(last + 1) if f'norm{stage}.weight' in weights.tensors]
    return [] if found == [last] else [f'norms of the stages {found}, not of {last} alone']


TIMM = dict(
    PUBLIC,
    encodings=(('rpe',),),
    arguments={**PUBLIC['arguments'], 'patch_norm': ['post']},
    clashes=other_outputs,
)


class SwinCheckpoints(BaseBackbone):
    """The half of a Swin Transformer that deals with checkpoints."""

    layers_name = 'layers'
    table_name = NAMES.table
    stored_names = NAMES
    embedding_names = ('patch_embed.',)
    untraced: ClassVar[dict[str, Any]] = {'patch_norm': 'post', 'norm_cfg': dict(type='LN', eps=1e-5)}
    pe_hierarchy: str = 'merge'

    @classmethod
    def checkpoint_layouts(cls) -> tuple[Layout, ...]:
        """Return Microsoft's layout, timm's and mmpretrain's."""
        return LAYOUTS

    @classmethod
    def checkpoint_targets(cls) -> dict[str, Target]:
        """Return this package's layout and the public ones."""
        return {
            **super().checkpoint_targets(),
            'swin': Target(to_swin, 'model', **PUBLIC),
            'timm': Target(to_timm, **TIMM),  # no table, always a norm in the stem
            'mmpretrain': Target(to_mmpretrain, 'state_dict', **PUBLIC),
        }

    @classmethod
    def describe_checkpoint(cls, weights: Weights, path: str) -> tuple[dict[str, str], dict, list[str]]:
        """Describe arch, windows, position encodings and stem."""
        arch, (grid, needs_grid) = arch_of(weights), stored_grid(weights)
        name, window, options = arch_name(arch), window_of(weights), position_options(weights)
        patch_size = weights.tensors['patch_embed.proj.weight'].shape[-1]
        tables = NAMES.tables(weights)
        rows = {
            'arch': name or 'custom',
            'embed_dims': arch['embed_dims'],
            'depths': arch['depths'],
            'patch_size': patch_size,
            'window_size': window or 'unknown',
            'pe_type': options['pe_type'],
            'pe grid': f'{grid[0]} x {grid[1]}'
            if grid
            else 'unknown, pass grid=(rows, columns)'
            if needs_grid
            else '',
            'pe_joining': ' or '.join(joinings_in(weights)),
            'pe_norm': ' or '.join(NAMES.norms(weights)) or 'none',
            'pe_hierarchy': hierarchy_of(weights) if tables else '',
            'patch_norm': patch_norm_of(weights),
        }
        config = dict(
            type=f'mmlape.{cls.__name__}', arch=name or dict(arch, num_heads=arch['num_heads'] or '?'), **options
        )
        different = dict(
            patch_size=(patch_size, 4), window_size=(window or '?', 7), patch_norm=(rows['patch_norm'], 'post')
        )
        config |= {key: value for key, (value, default) in different.items() if value != default}
        if 'layers.0.blocks.0.attn.qkv.bias' not in weights.tensors:
            config['qkv_bias'] = False
        init = dict(type='Pretrained', checkpoint=path)
        if needs_grid:
            init['grid'] = ('?', '?')
        elif grid and tables:
            config['img_size'] = tuple(side * patch_size for side in grid)  # so that nothing is resized
        notes = [] if name or arch['num_heads'] else ['num_heads leaves no trace in a file']
        notes += [] if window else ['window_size leaves no trace in a file without a bias table; 7 is usual']
        if len(joinings_in(weights)) > 1:
            notes.append(f'the file does not say whether pe_joining is {rows["pe_joining"]}')
        return rows, dict(config, init_cfg=init), notes

    @classmethod
    def config_to_view(cls, weights: Weights, grid: Grid | None, path: str) -> dict:
        """Return a model with the file's stem, norms and position encodings."""
        found, needs_grid = stored_grid(weights, grid)
        if needs_grid:
            raise CheckpointError(
                f'checkpoint {path}: its position embedding is of no square grid, pass --grid ROWS COLUMNS'
            )
        stem, arch = weights.tensors['patch_embed.proj.weight'], arch_of(weights)
        rows, columns = found or (56, 56)
        return dict(
            type=f'mmlape.{cls.__name__}',
            arch=dict(arch, num_heads=arch['num_heads'] or (1,) * len(arch['depths'])),
            img_size=(rows * stem.shape[-1], columns * stem.shape[-1]),
            patch_size=stem.shape[-1],
            in_channels=stem.shape[1],
            window_size=window_of(weights) or 7,
            out_type='raw',
            patch_norm=patch_norm_of(weights),
            **position_options(weights, grid),
        )

    def fit_checkpoint(self, weights: Weights, options: LoadOptions, report: LoadReport) -> dict[str, Tensor]:
        """Return a file's tensors as this model takes them.

        The indices of bias tables are the model's own; norms of outputs and, where the model has no position encoding
        at all, PE tables are left out where the model lacks them.
        """
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
