"""What the tensors of a plain ViT's file tell: tokens, arch and stem."""

import re

from mmlape.checkpoint.key_maps import Weights
from mmlape.models.base.stored_position import NAMES
from mmlape.models.grid import Grid, square_grid
from mmlape.models.layers.norm_placement import BranchNorms, NormPlacement, placements, resolve_norm_placement
from mmlape.models.position.stored import with_batch_axis

TOKENS = ('cls_token', 'dist_token', 'reg_token')
ARCH_NAMES = {192: 'deit-tiny', 384: 'deit-small', 768: 'deit-base'}
LAYER_SCALE = r'blocks\.\d+\.gamma[12]$'


def prefix_tokens(weights: Weights) -> tuple[str, ...]:
    """Return the names of the tokens before the patches."""
    return tuple(name for name in TOKENS if name in weights.tensors)


def table_tokens(weights: Weights, grid: Grid | None = None) -> dict[str, int]:
    """Return the tokens that the PE tables have rows for, and how many each.

    An adapter has no class token, but keeps its row; DeiT III has one, but no row for it.

    Args:
        weights: Of the file.
        grid: (rows, columns) of the stored PE; None for that recorded, or a square.
    """
    grid = grid or weights.grid
    tokens = {name: weights.tensors[name].shape[1] for name in prefix_tokens(weights)}
    if weights.layout == 'vit-adapter':
        tokens = tokens or {'cls_token': 1}
    tables = NAMES.tables(weights)
    if tokens and tables:
        rows = with_batch_axis(weights.tensors[tables[0]]).shape[1]
        patches_only = rows == grid[0] * grid[1] if grid else square_grid(rows) is not None
        if patches_only and (grid or square_grid(rows - sum(tokens.values())) is None):
            return {}
    return tokens


def patch_norm_of(weights: Weights, stem: str = 'patch_embed') -> str:
    """Return the key of ``PATCH_NORMS`` that leaves such norms in the stem of that name, and behind tokens + PE."""
    pre, post = (weights.has(rf'{stem}\.norm{i}\.') for i in (0, 1))
    if pre and post and not weights.has(rf'{stem}\.norm0\.bias$'):
        return 'rms'
    if weights.has(r'norm_pre\.'):
        return 'pre-post-posemb' if pre else 'post-posemb'
    return {(True, True): 'dual', (True, False): 'pre', (False, True): 'post', (False, False): 'none'}[pre, post]


def norm_placement_of(weights: Weights) -> str | dict:
    """Return where the layers have norms; 'pre' also for what is no placement."""

    def has(name: str) -> bool:
        return f'blocks.0.{name}.weight' in weights.tensors

    branches = (
        BranchNorms(has(f'norm{i}'), has(f'{part}.norm'), has(f'branch_norm{i}'), has(f'sum_norm{i}'))
        for i, part in ((1, 'attn'), (2, 'mlp'))
    )
    found = NormPlacement(*branches, has('attn.head_scale'), has('residual_scale'))
    return next((given for given in placements() if resolve_norm_placement(given) == found), 'pre')


def is_clip(weights: Weights) -> bool:
    """Check for CLIP's stem: no bias (read as zeros), and a norm after the PE."""
    tensors = weights.tensors
    return weights.layout != 'mmseg' and 'norm_pre.weight' in tensors and not tensors['patch_embed.proj.bias'].any()


def arch_of(weights: Weights) -> dict:
    """Return ``name`` (or None), widths and depth."""
    stem = weights.tensors['patch_embed.proj.weight']
    dims = stem.shape[0]
    arch = dict(
        name=ARCH_NAMES.get(dims),
        embed_dims=dims,
        num_layers=1 + max(int(m[1]) for name in weights.tensors if (m := re.match(r'blocks\.(\d+)\.', name))),
        feedforward_channels=weights.tensors['blocks.0.mlp.fc1.weight'].shape[0],
        patch_size=stem.shape[-1],
    )
    heads = NAMES.heads(weights) or dims // 64
    if (arch['num_layers'], arch['feedforward_channels'], heads) != (12, 4 * dims, dims // 64):
        arch['name'] = None
    return arch
