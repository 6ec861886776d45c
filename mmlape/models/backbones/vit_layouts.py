"""Layouts of a plain ViT in public files: how each names its tensors, in this package's (DeiT's) names.

'deit' (DeiT, LaPE and timm), 'vit-adapter' (official or ours), 'mmpretrain', 'mmseg' (mmsegmentation's own ViT), 'jax'
(AugReg and big_vision).
"""

import re
from dataclasses import replace

import torch
from torch import Tensor

from mmlape.checkpoint.key_maps import Layout, Tensors, rename_keys
from mmlape.checkpoint.normalisation import HALF
from mmlape.errors import CheckpointError

_MMPRETRAIN_NAMES = (
    (r'^patch_embed\.projection\.', 'patch_embed.proj.'),
    (r'^layers\.(\d+)\.ln([12])\.', r'blocks.\1.norm\2.'),
    (r'^layers\.(\d+)\.ffn\.layers\.0\.0\.', r'blocks.\1.mlp.fc1.'),
    (r'^layers\.(\d+)\.ffn\.layers\.1\.', r'blocks.\1.mlp.fc2.'),
    (r'^layers\.(\d+)\.attn\.gamma1\.weight$', r'blocks.\1.gamma1'),
    (r'^layers\.(\d+)\.ffn\.gamma2\.weight$', r'blocks.\1.gamma2'),
    (r'^layers\.(\d+)\.', r'blocks.\1.'),
    (r'^ln1\.', 'norm.'),
    (r'^pre_norm\.', 'norm_pre.'),
)

# after these names come mmpretrain's; attention is torch's own, whose stacked q, k and v are a fused qkv
_MMSEG_NAMES = (
    (r'^patch_embed\.norm\.', 'patch_embed.norm1.'),
    (r'^layers\.(\d+)\.attn\.attn\.in_proj_', r'blocks.\1.attn.qkv.'),
    (r'^layers\.(\d+)\.attn\.attn\.out_proj\.', r'blocks.\1.attn.proj.'),
    (r'^ln_pre\.', 'norm_pre.'),
    *_MMPRETRAIN_NAMES,
)


def _stem_as_convolution(tensors: Tensors) -> Tensors:
    """Turn a stem's linear weight (D, C*P*P) into a convolution's (D, C, P, P), and no bias (CLIP's) into zeros."""
    stem = tensors.get('patch_embed.proj.weight')
    if stem is not None and stem.ndim == 2:
        side = _patch_side(stem.shape[1])
        tensors['patch_embed.proj.weight'] = stem.unflatten(1, (3, side, side))
    if stem is not None and 'norm_pre.weight' in tensors:
        tensors.setdefault('patch_embed.proj.bias', stem.new_zeros(len(stem)))
    return tensors


def _from_deit(tensors: Tensors) -> Tensors:
    """Rename timm's LayerScale, ``ls1.gamma``."""
    return _stem_as_convolution(rename_keys(tensors, [(r'\.ls([12])\.gamma$', r'.gamma\1')]))


def to_timm(tensors: Tensors) -> Tensors:
    """Give LayerScale timm's name."""
    return rename_keys(tensors, [(r'\.gamma([12])$', r'.ls\1.gamma')])


def _from_mmpretrain(tensors: Tensors) -> Tensors:
    return _stem_as_convolution(rename_keys(tensors, _MMPRETRAIN_NAMES))


def _from_mmseg(tensors: Tensors) -> Tensors:
    """Rename; its stem has no bias unless asked for, which is a bias of zero."""
    out = _stem_as_convolution(rename_keys(tensors, _MMSEG_NAMES))
    stem = out['patch_embed.proj.weight']
    out.setdefault('patch_embed.proj.bias', stem.new_zeros(len(stem)))
    return out


_JAX_LEAVES = {'scale': 'weight', 'bias': 'bias', 'kernel': 'weight'}


def _from_jax(tensors: Tensors) -> Tensors:
    """Translate Flax: kernels are (in, out), attention is split by head, patches are (row, column, channel)."""
    out: Tensors = {}
    qkv: dict[str, Tensors] = {}
    for name, value in tensors.items():
        name = name.removeprefix('params/')
        layer = re.match(r'(?:Transformer/)?encoderblock_(\d+)/(.*)', name)
        if layer:
            _jax_layer(out, qkv, f'blocks.{layer[1]}', layer[2], value)
        elif name in ('cls', 'cls_token'):
            out['cls_token'] = value
        elif name.endswith('pos_embedding'):
            out['pos_embed'] = value
        elif re.match(r'(?:Transformer/)?encoder_norm/', name):
            out['norm.' + _JAX_LEAVES[name.rsplit('/', 1)[1]]] = value
        elif re.match(r'(.*/)?ln[01]/', name):
            norm, leaf = name.split('/')[-2:]
            value = _stem_order(value) if norm == 'ln0' else value
            out[f'patch_embed.norm{norm[-1]}.{_JAX_LEAVES[leaf]}'] = value
        elif re.match(r'(.*/)?(embedding|dense)/', name):
            leaf = name.rsplit('/', 1)[1]
            out[f'patch_embed.proj.{_JAX_LEAVES[leaf]}'] = _stem_kernel(value) if leaf == 'kernel' else value
        elif name.startswith('head/'):
            leaf = name.rsplit('/', 1)[1]
            out[f'head.{_JAX_LEAVES[leaf]}'] = value.t() if leaf == 'kernel' else value
        else:
            out[name.replace('/', '.')] = value
    for prefix, parts in qkv.items():
        for leaf in ('weight', 'bias'):
            out[f'{prefix}.attn.qkv.{leaf}'] = torch.cat(
                [parts[f'{part}.{leaf}'] for part in ('query', 'key', 'value')]
            )
    return out


def _jax_layer(out: dict, qkv: dict, prefix: str, name: str, value: Tensor) -> None:
    *_, module, leaf = name.split('/')
    leaf = _JAX_LEAVES[leaf]
    if module in ('query', 'key', 'value'):  # (D, heads, d) and (heads, d)
        value = value.flatten(1).t() if leaf == 'weight' else value.flatten()
        qkv.setdefault(prefix, {})[f'{module}.{leaf}'] = value
    elif module == 'out':  # (heads, d, D)
        out[f'{prefix}.attn.proj.{leaf}'] = value.flatten(0, 1).t() if leaf == 'weight' else value
    elif module.startswith('Dense_'):
        out[f'{prefix}.mlp.fc{int(module[-1]) + 1}.{leaf}'] = value.t() if leaf == 'weight' else value
    else:  # AugReg numbers the second norm 2, big_vision 1
        out[f'{prefix}.norm{1 if module.endswith("_0") else 2}.{leaf}'] = value


def _patch_side(num_values: int) -> int:
    side = round((num_values / 3) ** 0.5)
    if 3 * side**2 != num_values:
        raise CheckpointError(f'a stem over {num_values} values a patch is no square patch of three channels')
    return side


def _stem_order(values: Tensor) -> Tensor:
    """Reorder a flattened patch from (row, column, channel) to a convolution's (channel, row, column)."""
    side = _patch_side(values.shape[0])
    return values.unflatten(0, (side, side, 3)).movedim(2, 0).flatten(0, 2)


def _stem_kernel(kernel: Tensor) -> Tensor:
    """Turn a stem's kernel, (P, P, C, D) or (P*P*C, D), into a convolution's weight (D, C, P, P)."""
    if kernel.ndim == 2:
        side = _patch_side(kernel.shape[0])
        kernel = kernel.unflatten(0, (side, side, 3))
    return kernel.permute(3, 2, 0, 1)


IMAGES_OF_JAX = replace(HALF, source='AugReg and big_vision')
ADAPTER = Layout('vit-adapter', (r'spm\.stem\.', r'blocks\.0\.attn\.qkv\.'), _stem_as_convolution)
LAYOUTS = (
    ADAPTER,
    Layout('deit', (r'blocks\.0\.attn\.qkv\.', r'blocks\.0\.mlp\.fc1\.', r'patch_embed\.proj\.'), _from_deit),
    Layout('mmpretrain', (r'layers\.0\.attn\.qkv\.', r'patch_embed\.projection\.'), _from_mmpretrain),
    Layout('mmseg', (r'layers\.0\.attn\.attn\.in_proj_weight', r'patch_embed\.projection\.weight'), _from_mmseg),
    Layout('jax', (r'(params/)?(Transformer/)?encoderblock_0/',), _from_jax, IMAGES_OF_JAX),
)
