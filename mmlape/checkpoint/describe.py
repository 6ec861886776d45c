"""Say what a checkpoint is, without building a model: layout, joining, position embedding, arch, size, hash."""

import hashlib
import math
import re
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from mmlape.checkpoint.layouts import Weights, translate
from mmlape.checkpoint.reading import read_checkpoint, state_dict_of
from mmlape.models.position import absolute_table


def sha256(path: str | Path) -> str:
    """Hex digest of a file."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def arch_of(weights: Weights) -> dict:
    """Widths and depth from shapes; the number of heads leaves no trace in them."""
    stem = weights.tensors['patch_embed.proj.weight']
    dims = stem.shape[0]
    arch = dict(
        name={192: 'deit-tiny', 384: 'deit-small', 768: 'deit-base'}.get(dims),
        embed_dims=dims,
        num_layers=1 + max(int(m[1]) for name in weights.tensors if (m := re.match(r'blocks\.(\d+)\.', name))),
        feedforward_channels=weights.tensors['blocks.0.mlp.fc1.weight'].shape[0],
        patch_size=stem.shape[-1],
    )
    if arch['num_layers'] != 12 or arch['feedforward_channels'] != 4 * dims:
        arch['name'] = None
    return arch


def position_of(weights: Weights) -> tuple[str, str]:
    """The PE's type and its grid, 'rows x columns' or the number of cells when that is no square."""
    if not weights.pe_names:
        table = weights.tensors.get('blocks.0.attn.relative_position_bias_table')
        if table is None:
            return 'none', ''
        side = (math.isqrt(table.shape[0]) + 1) // 2
        return 'rpe', f'{side} x {side}' if (2 * side - 1) ** 2 == table.shape[0] else f'{table.shape[0]} offsets'
    table = weights.tensors[weights.pe_names[0]]
    table = table[None] if table.ndim == 2 else table
    prefix = len(weights.prefix_tokens) or int(weights.layout == 'vit-adapter')
    patches = table.shape[1] - prefix
    side = math.isqrt(patches)
    if side * side != patches:
        return 'learnable', f'{patches} cells, pass grid=(rows, columns)'
    for pe_type in ('sincos1d', 'sincos2d'):
        if table.shape[2] % 4 == 0:
            formula = absolute_table(pe_type, (side, side), table.shape[2], prefix)
            if torch.allclose(table.float(), formula, atol=1e-3):
                return pe_type, f'{side} x {side}'
    return 'learnable', f'{side} x {side}'


def inspect(path: str | Path) -> dict[str, object]:
    """Describe a checkpoint file.

    Returns:
        Printable values by name, in the order to print them.

    Raises:
        CheckpointError: if the file cannot be read or is no ViT.
    """
    tensors = state_dict_of(read_checkpoint(path), path)
    weights = translate(tensors, path)
    arch = arch_of(weights)
    pe_type, grid = position_of(weights)
    dtypes = Counter(str(value.dtype).removeprefix('torch.') for value in weights.tensors.values())
    return {
        'file': str(path),
        'sha256': sha256(path),
        'layout': weights.layout,
        'arch': arch.pop('name') or 'custom',
        **arch,
        'pe_type': pe_type,
        'pe grid': grid,
        'pe_joining': {'default': 'default or shared', 'lape': 'lape or lape-shared'}.get(
            weights.joining, weights.joining
        ),
        'patch_norm': weights.patch_norm,
        'prefix tokens': ', '.join(weights.prefix_tokens) or 'none',
        'LayerScale': 'yes' if weights.has(r'blocks\.0\.gamma1$') else 'no',
        'adapter': 'yes' if weights.layout == 'vit-adapter' else 'no',
        'parameters': f'{_count(weights.tensors):,} in the backbone, {_count(tensors):,} in the file',
        'dtype': ', '.join(f'{name} ({count})' for name, count in dtypes.items()),
        'to load it': _how_to_load(path, arch, pe_type, weights),
    }


def _count(tensors: dict[str, Tensor]) -> int:
    fixed = ('num_batches_tracked', 'running_mean', 'running_var', 'relative_position_index')
    return sum(value.numel() for name, value in tensors.items() if not name.endswith(fixed))


def _how_to_load(path, arch: dict, pe_type: str, weights: Weights) -> str:
    joining = weights.joining if pe_type != 'none' else 'default'
    model = 'ViTAdapter' if weights.layout == 'vit-adapter' else 'VisionTransformer'
    if 'dist_token' in weights.prefix_tokens:
        model = 'DistilledVisionTransformer'
    return (
        f"backbone=dict(type='mmlape.{model}', pe_type={pe_type!r}, pe_joining={joining!r}, "
        f"patch_norm={weights.patch_norm!r}, init_cfg=dict(type='Pretrained', checkpoint={str(path)!r}))"
    )
