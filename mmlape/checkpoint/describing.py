"""Say what a checkpoint is, without building a model: layout, joining, position embedding, arch, size, hash."""

import hashlib
import math
import re
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from mmlape.checkpoint.key_maps import Weights, translate
from mmlape.checkpoint.reading import read_checkpoint, state_dict_of
from mmlape.models.position.kinds import absolute_table


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
    backbone, notes = _how_to_load(path, arch, pe_type, weights)
    dtypes = Counter(str(value.dtype).removeprefix('torch.') for value in weights.tensors.values())
    return {
        'file': str(path),
        'sha256': sha256(path),
        'layout': weights.layout,
        'arch': arch['name'] or 'custom',
        **{key: value for key, value in arch.items() if key != 'name'},
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
        'to load it': f'backbone={backbone}',
        'mind': '; '.join(notes) or 'nothing',
    }


def _count(tensors: dict[str, Tensor]) -> int:
    fixed = ('num_batches_tracked', 'running_mean', 'running_var', 'relative_position_index')
    return sum(value.numel() for name, value in tensors.items() if not name.endswith(fixed))


def _how_to_load(path: str | Path, arch: dict, pe_type: str, weights: Weights) -> tuple[str, list[str]]:
    """The backbone's configuration as text, with '?' for what the file does not tell, and what to mind."""
    adapter = weights.layout == 'vit-adapter'
    model = 'DistilledVisionTransformer' if 'dist_token' in weights.prefix_tokens else 'VisionTransformer'
    shape = {key: value for key, value in arch.items() if key not in ('name', 'patch_size')}
    init = dict(type='Pretrained', checkpoint=str(path))
    options = dict(
        type='mmlape.ViTAdapter' if adapter else f'mmlape.{model}',
        arch=arch['name'] or dict(shape, num_heads='?'),
        pe_type=pe_type,
        pe_joining=weights.joining,
        patch_norm=weights.patch_norm,
        **(_adapter_options(weights) if adapter else _vit_options(arch, weights)),
        init_cfg=init,
    )
    notes = _notes(weights, adapter) + ([] if arch['name'] else ['num_heads leaves no trace in a file'])
    if pe_type == 'rpe' and (side := position_of(weights)[1].partition(' x ')[0]).isdigit():
        options['img_size'] = int(side) * arch['patch_size']  # a bias is resized by the model, not by loading
    if 'pass grid=' in position_of(weights)[1]:
        init['grid'] = ('?', '?')
        notes.append('the PE is of no square grid: its rows and columns are those of the pretraining')
    return _call(options), notes


def _vit_options(arch: dict, weights: Weights) -> dict:
    """What differs from the defaults of ``VisionTransformer``."""
    tensors, found = weights.tensors, {}
    if arch['patch_size'] != 16:
        found['patch_size'] = arch['patch_size']
    if not weights.prefix_tokens:
        found.update(with_cls_token=False, out_type='featmap')
    if 'blocks.0.attn.qkv.bias' not in tensors:
        found['qkv_bias'] = False
    if 'blocks.0.gamma1' in tensors:
        found['layer_scale_init_value'] = 1e-5
    if 'norm.weight' not in tensors:
        found['final_norm'] = False
    return found


def _adapter_options(weights: Weights) -> dict:
    """What differs from the defaults of ``ViTAdapter``, as far as it shows."""
    tensors = weights.tensors
    first = 'interactions.0.extractor'
    dims = len(tensors['patch_embed.proj.weight'])
    ratio = len(tensors[f'{first}.attn.value_proj.weight']) / dims
    hidden = tensors.get(f'{first}.ffn.fc1.weight')
    found = {'conv_inplane': len(tensors['spm.stem.0.weight']), 'deform_ratio': ratio}
    found.update(dict(with_cffn=False) if hidden is None else dict(cffn_ratio=len(hidden) / dims))
    defaults = dict(conv_inplane=64, deform_ratio=1.0, cffn_ratio=0.25)
    return {key: value for key, value in found.items() if defaults.get(key) != value}


def _notes(weights: Weights, adapter: bool) -> list[str]:
    notes = []
    if adapter:
        notes.append('windows, interaction_indexes and vit_feature_source leave no trace in a file')
    if weights.layout == 'mmseg':
        notes.append(
            "mmsegmentation's norms have eps 1e-5 unless its config says otherwise: norm_cfg=dict(type='LN', eps=1e-5)"
        )
    if weights.layout == 'jax':
        notes.append("AugReg's and big_vision's blocks may use the tanh form of GELU, ours uses the exact one")
    if weights.dropped or weights.heads:
        notes.append(f'{len(weights.dropped) + len(weights.heads)} tensors of heads and necks are left out')
    return notes


def _call(options: dict) -> str:
    """``dict(...)`` as it is written in a configuration; '?' stands bare."""
    parts = (f'{key}={_call(value) if isinstance(value, dict) else repr(value)}' for key, value in options.items())
    return f'dict({", ".join(parts)})'.replace("'?'", '?')
