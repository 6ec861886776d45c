"""Recognise the layout of a checkpoint from its keys, and give its ViT the names of this package (DeiT's).

Layouts: 'deit' (DeiT, LaPE and timm), 'vit-adapter' (official or ours), 'mmpretrain', 'mmseg' (mmsegmentation's own
ViT), 'jax' (AugReg and big_vision).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mmlape.errors import CheckpointError

ADAPTER_PARTS = ('level_embed', 'spm.', 'interactions.', 'up.', 'norm1.', 'norm2.', 'norm3.', 'norm4.')
CLASS_HEADS = ('head.', 'head_dist.')
OTHER_PARTS = ('pre_logits.', 'decode_head.', 'auxiliary_head.', 'neck.', 'rpn_head.', 'roi_head.')
PREFIX_TOKENS = ('cls_token', 'dist_token')


@dataclass
class Weights:
    """The ViT of a checkpoint under this package's names.

    Attributes:
        layout: one of the module's layouts.
        tensors: of the ViT, by name.
        heads: of a classifier, ``head.*`` and ``head_dist.*``.
        dropped: keys that belong to something else (detection and segmentation heads, necks).
    """

    layout: str
    tensors: dict[str, Tensor]
    heads: dict[str, Tensor] = field(default_factory=dict)
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
    """timm calls LayerScale ``ls1.gamma``."""
    return {re.sub(r'\.ls([12])\.gamma$', r'.gamma\1', name): value for name, value in tensors.items()}


_MMPRETRAIN_HEAD = re.compile(r'^head\.layers\.(head|head_dist)\.')
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


def _rename(tensors: dict[str, Tensor], names: tuple[tuple[str, str], ...]) -> dict[str, Tensor]:
    out = {}
    for name, value in tensors.items():
        for pattern, replacement in names:
            name, count = re.subn(pattern, replacement, name)
            if count:
                break
        out[name] = value
    return out


def _from_mmpretrain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return _rename(tensors, _MMPRETRAIN_NAMES)


def _from_mmseg(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Its stem has no bias unless asked for, which is a bias of zero."""
    out = _rename(tensors, _MMSEG_NAMES)
    stem = out['patch_embed.proj.weight']
    out.setdefault('patch_embed.proj.bias', stem.new_zeros(len(stem)))
    return out


_JAX_LEAVES = {'scale': 'weight', 'bias': 'bias', 'kernel': 'weight'}


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
    ('mmseg', (r'layers\.0\.attn\.attn\.in_proj_weight', r'patch_embed\.projection\.weight'), _from_mmseg),
    ('jax', (r'(params/)?(Transformer/)?encoderblock_0/',), _from_jax),
)


def _strip_backbone(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """What stands under ``backbone.`` without it; the rest keeps its names, a classifier's heads get DeiT's."""
    if not any(name.startswith('backbone.') for name in tensors):
        return tensors
    renamed = {}
    for name, value in tensors.items():
        name = _MMPRETRAIN_HEAD.sub(r'\1.', name)
        # a neck's 'layers.0.' must not be taken for the ViT's
        renamed[name.removeprefix('backbone.') if name.startswith(('backbone.', *CLASS_HEADS)) else f'/{name}'] = value
    return renamed


def translate(tensors: dict[str, Tensor], path: object = '') -> Weights:
    """Recognise the layout and rename.

    Raises:
        CheckpointError: if the keys are those of no known layout.
    """
    tensors = _strip_backbone(tensors)
    for layout, signs, rename in _LAYOUTS:
        if all(any(re.match(sign, name) for name in tensors) for sign in signs):
            return _sort(layout, rename(tensors))
    raise CheckpointError(
        f'checkpoint {path}: matches no known layout of a ViT (DeiT, LaPE, timm, ViT-Adapter, mmpretrain, mmseg, '
        f'AugReg, big_vision); its first keys are {sorted(tensors)[:6]}'
    )


def _sort(layout: str, tensors: dict[str, Tensor]) -> Weights:
    """Tell the ViT from heads and from what else a detector or segmentor has."""
    weights = Weights(layout, {})
    for name, value in tensors.items():
        if name.startswith(('/', *OTHER_PARTS)):
            weights.dropped.append(name.removeprefix('/'))
        elif name.startswith(CLASS_HEADS):
            weights.heads[name] = value
        else:
            weights.tensors[name] = value
    stem = weights.tensors.get('patch_embed.proj.weight')
    if stem is not None and stem.ndim == 2:
        side = _patch_side(stem.shape[1])
        weights.tensors['patch_embed.proj.weight'] = stem.unflatten(1, (3, side, side))
    return weights
