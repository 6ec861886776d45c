"""Names and shapes of big_vision's and AugReg's plain ViTs (JAX, ``.npz``), and of Dual PatchNorm's own listing.

Kernels are (in, out), attention is split by head, patches are (row, column, channel). Of the stem
with Dual PatchNorm only the names ``ln0``, ``dense`` and ``ln1`` are public (DPN, appendix A), so
any module may enclose them. LiT's and SigLIP's files have two towers, of which the one of images is
read; a pooling by attention (MAP) belongs to the head.
"""

import re

import torch
from torch import Tensor

from mmlape.checkpoint.key_maps import Tensors, Weights
from mmlape.errors import CheckpointError
from mmlape.models.base.tensor_names import with_batch_axis
from mmlape.models.grid import square_grid
from mmlape.models.position.absolute import Sincos2dMoco

_LEAVES = {'scale': 'weight', 'bias': 'bias', 'kernel': 'weight'}
HEAD_DIMS = 64
_DENSE = ('head', 'head_dist', 'pre_logits')
_MAP_HEAD = 'MAPHead_0/'
_TOWERS = ('params/img/', 'img/', 'opt/target/', 'params/', '')
"""What may stand before the names of a ViT, the most special first."""
SIGN = r'(params/|opt/target/)?(img/)?(Transformer/)?encoderblock(_0)?/'
"""Matches the beginning of a name in each file, and of none in a tower of texts alone."""


def from_jax(tensors: Tensors) -> Tensors:
    """Translate a file; the tower of texts, states of an optimiser and a MAP head are marked as another part's."""
    tower = next(prefix for prefix in _TOWERS if any(name.startswith(prefix) for name in tensors))
    image = {
        name.removeprefix(tower): value for name, value in tensors.items() if name.startswith(tower)
    }
    out: Tensors = {
        f'/{name}': value for name, value in tensors.items() if not name.startswith(tower)
    }
    # a map behind MAP, or into the space that both towers share, reads no token of the ViT
    has_map_head = any(name.startswith(_MAP_HEAD) for name in image)
    others = _DENSE if tower.endswith('img/') or has_map_head else ()
    qkv: dict[str, Tensors] = {}
    for name, value in _unstacked(image).items():
        layer = re.match(r'(?:Transformer/)?encoderblock_(\d+)/(.*)', name)
        module, _, leaf = name.rpartition('/')
        if name.startswith(_MAP_HEAD) or module in others:
            out[f'/{name}'] = value
        elif layer:
            _layer(out, qkv, f'blocks.{layer[1]}', layer[2], value)
        elif name in ('cls', 'cls_token'):
            out['cls_token'] = value
        elif leaf == 'pos_embedding':
            out['pos_embed'] = value
        elif module.endswith('encoder_norm'):
            out[f'norm.{_LEAVES[leaf]}'] = value
        elif re.search(r'(^|/)ln[01]$', module):
            value = stem_order(value) if module.endswith('ln0') else value
            out[f'patch_embed.norm{module[-1]}.{_LEAVES[leaf]}'] = value
        elif re.search(r'(^|/)(embedding|dense)$', module):
            out[f'patch_embed.proj.{_LEAVES[leaf]}'] = (
                _stem_kernel(value) if leaf == 'kernel' else value
            )
        elif module in _DENSE:
            out[f'{module}.{_LEAVES[leaf]}'] = value.t() if leaf == 'kernel' else value
        else:
            out[name.replace('/', '.')] = value
    for prefix, parts in qkv.items():
        for leaf in ('weight', 'bias'):
            out[f'{prefix}.attn.qkv.{leaf}'] = torch.cat(
                [parts[f'{part}.{leaf}'] for part in ('query', 'key', 'value')]
            )
    return out


def _unstacked(tensors: Tensors) -> Tensors:
    """Return tensors of layers that a scan has stacked, (L, ...), as those of each layer."""
    out: Tensors = {}
    for name, value in tensors.items():
        stacked = re.match(r'((?:Transformer/)?encoderblock)(/.*)', name)
        if stacked:
            out |= {f'{stacked[1]}_{number}{stacked[2]}': own for number, own in enumerate(value)}
        else:
            out[name] = value
    return out


def _layer(out: dict, qkv: dict, prefix: str, name: str, value: Tensor) -> None:
    *_, module, leaf = name.split('/')
    leaf = _LEAVES[leaf]
    if module in ('query', 'key', 'value'):  # (D, heads, d) and (heads, d)
        value = value.flatten(1).t() if leaf == 'weight' else value.flatten()
        qkv.setdefault(prefix, {})[f'{module}.{leaf}'] = value
    elif module == 'out':  # (heads, d, D)
        out[f'{prefix}.attn.proj.{leaf}'] = value.flatten(0, 1).t() if leaf == 'weight' else value
    elif module.startswith('Dense_'):
        out[f'{prefix}.mlp.fc{int(module[-1]) + 1}.{leaf}'] = (
            value.t() if leaf == 'weight' else value
        )
    else:  # AugReg numbers the second norm 2, big_vision 1
        out[f'{prefix}.norm{1 if module.endswith("_0") else 2}.{leaf}'] = value


def to_big_vision(tensors: Tensors) -> Tensors:
    """Translate back, to big_vision's names.

    A PE with a class row goes where its loader looks for one. Attention is written with heads of 64
    channels, as all of its models have; a file does not tell the number.
    """
    dual = any(name.startswith('patch_embed.norm') for name in tensors)
    out: Tensors = {}
    for name, value in tensors.items():
        module, _, leaf = name.rpartition('.')
        layer = re.match(r'blocks\.(\d+)\.(.*)', module)
        dense = 'kernel' if leaf == 'weight' else 'bias'
        norm = 'scale' if leaf == 'weight' else 'bias'
        if layer:
            out |= _to_layer(f'Transformer/encoderblock_{layer[1]}', layer[2], leaf, value)
        elif name == 'cls_token':
            out['cls'] = value
        elif name == 'pos_embed':
            out |= _to_table(with_batch_axis(value))
        elif module == 'norm':
            out[f'Transformer/encoder_norm/{norm}'] = value
        elif module.startswith('patch_embed.norm'):
            if module.endswith('0'):  # of (channel, row, column), the order of a convolution
                value = (
                    value.view(tensors['patch_embed.proj.weight'].shape[1:])
                    .permute(1, 2, 0)
                    .flatten()
                )
            out[f'embedding/ln{module[-1]}/{norm}'] = value
        elif module == 'patch_embed.proj':
            kernel = value.permute(2, 3, 1, 0) if leaf == 'weight' else value  # (P, P, C, D)
            kernel = kernel.flatten(0, 2) if dual and leaf == 'weight' else kernel
            out[f'embedding/{"dense/" if dual else ""}{dense}'] = kernel
        else:
            out[f'{module}/{dense}'] = value.t() if leaf == 'weight' else value
    return out


def _to_layer(prefix: str, module: str, leaf: str, value: Tensor) -> Tensors:
    is_weight = leaf == 'weight'
    kernel = 'kernel' if is_weight else 'bias'
    attention = f'{prefix}/MultiHeadDotProductAttention_0'
    if module == 'attn.qkv':
        out = {}
        for part, piece in zip(('query', 'key', 'value'), value.chunk(3)):
            piece = piece.t() if is_weight else piece
            out[f'{attention}/{part}/{kernel}'] = piece.unflatten(-1, (-1, HEAD_DIMS))
        return out
    if module == 'attn.proj':
        value = value.t().unflatten(0, (-1, HEAD_DIMS)) if is_weight else value
        return {f'{attention}/out/{kernel}': value}
    number = int(module[-1]) - 1
    if module.startswith('mlp.fc'):
        return {f'{prefix}/MlpBlock_0/Dense_{number}/{kernel}': value.t() if is_weight else value}
    return {f'{prefix}/LayerNorm_{number}/{"scale" if is_weight else "bias"}': value}


def _to_table(table: Tensor) -> Tensors:
    """Name a PE, (1, rows, D), without sinusoids.

    In big_vision one row beside a square is the class token's.
    """
    grid = square_grid(table.shape[1])
    name = 'pos_embedding' if grid else 'Transformer/posembed_input/pos_embedding'
    grid = grid or square_grid(table.shape[1] - 1)
    is_fixed = grid and Sincos2dMoco().matches(table, grid, table.shape[1] - grid[0] * grid[1])
    return {} if is_fixed else {name: table}


def other_heads(weights: Weights) -> list[str]:
    """Return the width of attention's heads if it is known not to be ``HEAD_DIMS``."""
    dims = len(weights.tensors['patch_embed.proj.weight'])
    heads = weights.recorded.get('num_heads')
    wrong = dims % HEAD_DIMS or (isinstance(heads, int) and heads * HEAD_DIMS != dims)
    return (
        [f'{heads or "any"} heads in {dims} channels (its heads have {HEAD_DIMS})'] if wrong else []
    )


def patch_side(num_values: int) -> int:
    """Return the side of a square patch of three channels with this many values."""
    side = round((num_values / 3) ** 0.5)
    if 3 * side**2 != num_values:
        raise CheckpointError(
            f'a stem over {num_values} values a patch is no square patch of three channels'
        )
    return side


def stem_order(values: Tensor) -> Tensor:
    """Reorder flattened patches (C*P*P, ...) from (row, column, channel) to a convolution's (channel, row, column)."""
    side = patch_side(values.shape[0])
    return values.unflatten(0, (side, side, 3)).movedim(2, 0).flatten(0, 2)


def _stem_kernel(kernel: Tensor) -> Tensor:
    """Turn a stem's kernel, (P, P, C, D) or (P*P*C, D), into a convolution's weight (D, C, P, P)."""
    if kernel.ndim == 2:
        side = patch_side(kernel.shape[0])
        kernel = kernel.unflatten(0, (side, side, 3))
    return kernel.permute(3, 2, 0, 1)
