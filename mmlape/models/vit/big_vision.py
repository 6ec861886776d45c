"""Names and shapes of big_vision's and AugReg's plain ViTs (JAX, ``.npz``), and of Dual PatchNorm's own listing.

Kernels are (in, out), attention is split by head, patches are (row, column, channel). Of the stem
with Dual PatchNorm only the names ``ln0``, ``dense`` and ``ln1`` are public (DPN, appendix A), so
any module may enclose them. LiT's and SigLIP's files have two towers, of which the one of images is
read; a pooling by attention (MAP) belongs to the head.
"""

import re

from torch import Tensor

from mmlape.checkpoint.key_maps import Tensors, join_qkv, rename_keys
from mmlape.errors import CheckpointError

_DENSE = ('head', 'head_dist', 'pre_logits')
_MAP_HEAD = 'MAPHead_0/'
_TOWERS = ('params/img/', 'img/', 'opt/target/', 'params/', '')
"""What may stand before the names of a ViT, the most special first."""
SIGN = r'(params/|opt/target/)?(img/)?(Transformer/)?encoderblock(_0)?/'
"""Matches the beginning of a name in each file, and of none in a tower of texts alone."""


def patch_side(num_values: int) -> int:
    """Return the side of a square patch of three channels with this many values."""
    side = round((num_values / 3) ** 0.5)
    if 3 * side**2 != num_values:
        raise CheckpointError(f'a stem over {num_values} values a patch is no square patch of three channels')
    return side


def stem_order(values: Tensor) -> Tensor:
    """Reorder flattened patches (C*P*P, ...) from (row, column, channel) to a convolution's (channel, row, column)."""
    side = patch_side(values.shape[0])
    return values.unflatten(0, (side, side, 3)).movedim(2, 0).flatten(0, 2)


def _read_stem(kernel: Tensor) -> Tensor:
    """Turn a stem's kernel, (P, P, C, D) or (P*P*C, D), into a convolution's weight (D, C, P, P)."""
    if kernel.ndim == 2:
        side = patch_side(kernel.shape[0])
        kernel = kernel.unflatten(0, (side, side, 3))
    return kernel.permute(3, 2, 0, 1)


def _norm(value: Tensor, is_bias: bool) -> Tensor:
    return value


def _linear(value: Tensor, is_bias: bool) -> Tensor:
    return value if is_bias else value.t()


def _into_heads(value: Tensor, is_bias: bool) -> Tensor:  # (D, heads, d)
    return value.flatten() if is_bias else value.flatten(1).t()


def _from_heads(value: Tensor, is_bias: bool) -> Tensor:  # (heads, d, D)
    return value if is_bias else value.flatten(0, 1).t()


def _stem_norm(value: Tensor, is_bias: bool) -> Tensor:
    return stem_order(value)


def _stem(value: Tensor, is_bias: bool) -> Tensor:
    return value if is_bias else _read_stem(value)


_BLOCK, _ATTENTION = ('Transformer/encoderblock_#/', 'Transformer/encoderblock_#/MultiHeadDotProductAttention_0/')
MODULES = {
    f'{_BLOCK}LayerNorm_0': ('blocks.#.norm1', _norm),
    f'{_BLOCK}LayerNorm_1': ('blocks.#.norm2', _norm),
    f'{_ATTENTION}query': ('blocks.#.attn.q', _into_heads),
    f'{_ATTENTION}key': ('blocks.#.attn.k', _into_heads),
    f'{_ATTENTION}value': ('blocks.#.attn.v', _into_heads),
    f'{_ATTENTION}out': ('blocks.#.attn.proj', _from_heads),
    f'{_BLOCK}MlpBlock_0/Dense_0': ('blocks.#.mlp.fc1', _linear),
    f'{_BLOCK}MlpBlock_0/Dense_1': ('blocks.#.mlp.fc2', _linear),
    'Transformer/encoder_norm': ('norm', _norm),
    'embedding/ln0': ('patch_embed.norm0', _stem_norm),
    'embedding/ln1': ('patch_embed.norm1', _norm),
    'embedding/dense': ('patch_embed.proj', _stem),
    'embedding': ('patch_embed.proj', _stem),  # without norms beside it
    **{name: (name, _linear) for name in _DENSE},
}
"""Modules of big_vision, those here, and how their parameters turn; '#' is the number of a layer."""
_VARIANTS = (
    (r'^(?:Transformer/)?encoderblock_(\d+)/(?:.*/)?(query|key|value|out)/', rf'{_ATTENTION}\2/'),
    (r'^(?:Transformer/)?encoderblock_(\d+)/(?:.*/)?(Dense_\d)/', rf'{_BLOCK}MlpBlock_0/\2/'),
    # AugReg numbers the second norm 2
    (r'^(?:Transformer/)?encoderblock_(\d+)/(?:.*/)?LayerNorm_0/', rf'{_BLOCK}LayerNorm_0/'),
    (r'^(?:Transformer/)?encoderblock_(\d+)/(?:.*/)?LayerNorm_\d+/', rf'{_BLOCK}LayerNorm_1/'),
    (r'^(?:.*/)?encoder_norm/', 'Transformer/encoder_norm/'),
    (r'^(?:.*/)?(ln[01]|dense)/', r'embedding/\1/'),
    (r'^(?:.*/)?embedding/(?=kernel|bias)', 'embedding/'),
    (r'^(?:.*/)?pos_embedding$', 'pos_embedding'),
    (r'^cls_token$', 'cls'),
)
"""Names that other files have for big_vision's; what encloses the modules of the stem is not public."""
_CANONICAL = tuple((pattern, name.replace('#', r'\1')) for pattern, name in _VARIANTS)


def from_jax(tensors: Tensors) -> Tensors:
    """Translate a file; the tower of texts, states of an optimiser and a MAP head are marked as another part's."""
    tower = next(prefix for prefix in _TOWERS if any(name.startswith(prefix) for name in tensors))
    image = {name.removeprefix(tower): value for name, value in tensors.items() if name.startswith(tower)}
    # a map behind MAP, or into the space that both towers share, reads no token of the ViT
    others = _DENSE if tower.endswith('img/') or any(name.startswith(_MAP_HEAD) for name in image) else ()
    elsewhere = {f'/{name}': value for name, value in tensors.items() if not name.startswith(tower)}
    of_backbone: Tensors = {}
    for name, value in _unstacked(image).items():
        if name.startswith(_MAP_HEAD) or name.rpartition('/')[0] in others:
            elsewhere[f'/{name}'] = value
        else:
            of_backbone[name] = value
    out: Tensors = {}
    for name, value in rename_keys(of_backbone, _CANONICAL).items():
        module, _, leaf = name.rpartition('/')
        number = re.search(r'encoderblock_(\d+)/', module)
        ours, turn = MODULES.get(re.sub(r'_\d+/', '_#/', module, count=1) if number else module, ('', _norm))
        if name in _TOKENS:
            out[_TOKENS[name]] = value
        elif ours:
            ours = ours.replace('#', number[1]) if number else ours
            is_bias = leaf == 'bias'
            out[f'{ours}.{"bias" if is_bias else "weight"}'] = turn(value, is_bias)
        else:
            out[name.replace('/', '.')] = value
    return elsewhere | join_qkv(out)


_TOKENS = {'cls': 'cls_token', 'pos_embedding': 'pos_embed'}


def _unstacked(tensors: Tensors) -> Tensors:
    """Return tensors of layers that a scan has stacked, (L, ...), as those of each layer."""
    out: Tensors = {}
    for name, value in tensors.items():
        stacked = re.match(r'((?:Transformer/)?encoderblock)(/.*)', name)
        if stacked:
            out |= {f'{stacked[1]}_{number}{stacked[2]}': of_layer for number, of_layer in enumerate(value)}
        else:
            out[name] = value
    return out
