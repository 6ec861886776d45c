"""Recognise the layout of a checkpoint from its keys, and give its ViT the names of this package (DeiT's).

Layouts: 'deit' (DeiT, LaPE and timm), 'vit-adapter' (official or ours), 'mmpretrain', 'jax' (AugReg and big_vision).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mmlape.errors import CheckpointError

ADAPTER_PARTS = ('level_embed', 'spm.', 'interactions.', 'up.', 'norm1.', 'norm2.', 'norm3.', 'norm4.')
OTHER_PARTS = (
    'head.', 'head_dist.', 'pre_logits.', 'decode_head.', 'auxiliary_head.', 'neck.', 'rpn_head.', 'roi_head.',
    'data_preprocessor.',
)  # fmt: skip
PREFIX_TOKENS = ('cls_token', 'dist_token')


@dataclass
class Weights:
    """The ViT of a checkpoint under this package's names.

    Attributes:
        layout: one of the module's layouts.
        tensors: by name.
        dropped: keys that belong to something else (heads, necks, optimiser state of a layout's own).
    """

    layout: str
    tensors: dict[str, Tensor]
    dropped: list[str] = field(default_factory=list)

    def has(self, pattern: str) -> bool:
        """Whether a name matches the regular expression from its beginning."""
        return any(re.match(pattern, name) for name in self.tensors)

    @property
    def prefix_tokens(self) -> tuple[str, ...]:
        """The tokens before the patches, by their names."""
        return tuple(name for name in PREFIX_TOKENS if name in self.tensors)

    @property
    def joining(self) -> str:
        """'lape' (a PE norm in each layer), 'unshared' (a table a layer) or 'default' (which 'shared' looks like)."""
        if self.has(r'blocks\.\d+\.(attn\.)?pe_norm\.'):
            return 'lape'
        return 'unshared' if 'pos_embed0' in self.tensors else 'default'

    @property
    def pe_names(self) -> list[str]:
        """The names of the absolute PE's tables."""
        return [name for name in self.tensors if re.fullmatch(r'pos_embed\d*', name)]

    @property
    def patch_norm(self) -> str:
        """'dual', 'pre', 'post' or 'none', from the norms in the stem."""
        pre, post = (self.has(rf'patch_embed\.norm{i}\.') for i in (0, 1))
        return {(True, True): 'dual', (True, False): 'pre', (False, True): 'post', (False, False): 'none'}[pre, post]


def _same(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return tensors


def _from_deit(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """timm calls LayerScale ``ls1.gamma``; a linear stem becomes the convolution that it is."""
    out = {}
    for name, value in tensors.items():
        out[re.sub(r'\.ls([12])\.gamma$', r'.gamma\1', name)] = value
    return out


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


def _from_mmpretrain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    out = {}
    for name, value in tensors.items():
        for pattern, replacement in _MMPRETRAIN_NAMES:
            name, count = re.subn(pattern, replacement, name)
            if count:
                break
        out[name] = value
    return out


_JAX_NORMS = {'scale': 'weight', 'bias': 'bias', 'kernel': 'weight'}


def _from_jax(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Flax names and shapes: kernels (in, out), attention split by head, patches flattened (row, column, channel)."""
    out: dict[str, Tensor] = {}
    qkv: dict[str, dict[str, Tensor]] = {}
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
            out['norm.' + _JAX_NORMS[name.rsplit('/', 1)[1]]] = value
        elif re.match(r'(.*/)?ln[01]/', name):
            norm, leaf = name.split('/')[-2:]
            value = _stem_order(value) if norm == 'ln0' else value
            out[f'patch_embed.norm{norm[-1]}.{_JAX_NORMS[leaf]}'] = value
        elif re.match(r'(.*/)?(embedding|dense)/', name):
            leaf = name.rsplit('/', 1)[1]
            out[f'patch_embed.proj.{_JAX_NORMS[leaf]}'] = _stem_kernel(value) if leaf == 'kernel' else value
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
    leaf = _JAX_NORMS[leaf]
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
    """Values of a flattened patch from (row, column, channel) to a convolution's (channel, row, column)."""
    side = _patch_side(values.shape[0])
    return values.unflatten(0, (side, side, 3)).movedim(2, 0).flatten(0, 2)


def _stem_kernel(kernel: Tensor) -> Tensor:
    """A stem's kernel, (P, P, C, D) or (P*P*C, D), as a convolution's weight (D, C, P, P)."""
    if kernel.ndim == 2:
        side = _patch_side(kernel.shape[0])
        kernel = kernel.unflatten(0, (side, side, 3))
    return kernel.permute(3, 2, 0, 1)


# (layout, patterns that must all be among the keys, translation); the first that fits is taken
_LAYOUTS: tuple[tuple[str, tuple[str, ...], Callable], ...] = (
    ('vit-adapter', (r'spm\.stem\.', r'blocks\.0\.attn\.qkv\.'), _same),
    ('deit', (r'blocks\.0\.attn\.qkv\.', r'patch_embed\.proj\.'), _from_deit),
    ('mmpretrain', (r'layers\.0\.attn\.qkv\.', r'patch_embed\.projection\.'), _from_mmpretrain),
    ('jax', (r'(params/)?(Transformer/)?encoderblock_0/',), _from_jax),
)


def _strip_backbone(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Keep what stands under ``backbone.``, if anything does; say what else there was."""
    inside = {name: value for name, value in tensors.items() if name.startswith('backbone.')}
    if not inside:
        return tensors, []
    dropped = [name for name in tensors if name not in inside]
    return {name.removeprefix('backbone.'): value for name, value in inside.items()}, dropped


def translate(tensors: dict[str, Tensor], path: object = '') -> Weights:
    """Recognise the layout and rename.

    Raises:
        CheckpointError: if the keys are those of no known layout.
    """
    tensors, dropped = _strip_backbone(tensors)
    for layout, signs, rename in _LAYOUTS:
        if all(any(re.match(sign, name) for name in tensors) for sign in signs):
            renamed = rename(tensors)
            kept = {name: value for name, value in renamed.items() if not name.startswith(OTHER_PARTS)}
            dropped += [name for name in renamed if name not in kept]
            stem = kept.get('patch_embed.proj.weight')
            if stem is not None and stem.ndim == 2:
                side = _patch_side(stem.shape[1])
                kept['patch_embed.proj.weight'] = stem.unflatten(1, (3, side, side))
            return Weights(layout, kept, dropped)
    raise CheckpointError(
        f'checkpoint {path}: matches no known layout of a ViT (DeiT, LaPE, timm, ViT-Adapter, mmpretrain, AugReg, '
        f'big_vision); its first keys are {sorted(tensors)[:6]}'
    )
