"""Layouts of a plain ViT in public files: how each names its tensors, in this package's (DeiT's) names.

'deit' (DeiT, LaPE and timm), 'vit-adapter' (official or ours), 'mmpretrain', 'mmseg' (mmsegmentation's own ViT), 'jax'
(AugReg and big_vision), 'vit-pytorch' and 'open_clip' (its image tower, and OpenAI's).
"""

from dataclasses import replace

from mmlape.checkpoint.key_maps import Layout, Tensors, rename_keys
from mmlape.checkpoint.normalisation import HALF
from mmlape.models.position.stored import with_batch_axis
from mmlape.models.vit.big_vision import from_jax, patch_side
from mmlape.models.vit.stem_layouts import from_open_clip, from_vit_pytorch

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
        side = patch_side(stem.shape[1])
        tensors['patch_embed.proj.weight'] = stem.unflatten(1, (3, side, side))
    if stem is not None and 'norm_pre.weight' in tensors:
        tensors.setdefault('patch_embed.proj.bias', stem.new_zeros(len(stem)))
    return tensors


def _from_deit(tensors: Tensors) -> Tensors:
    """Rename timm's LayerScale and norm of the stem, and what its older versions call ``pre_logits.fc``."""
    names = [
        (r'\.ls([12])\.gamma$', r'.gamma\1'),
        (r'^patch_embed\.norm\.', 'patch_embed.norm1.'),
        (r'^pre_logits\.fc\.', 'pre_logits.'),
    ]
    return _stem_as_convolution(rename_keys(tensors, names))


def to_deit(tensors: Tensors) -> Tensors:
    """Give a linear head, which MMPretrain calls ``fc``, DeiT's name."""
    return rename_keys(tensors, [(r'^head\.fc\.', 'head.')])


def to_timm(tensors: Tensors) -> Tensors:
    """Give LayerScale and the stem's norm timm's names; where tokens + PE are normed, its stem has no bias."""
    names = [(r'\.gamma([12])$', r'.ls\1.gamma'), (r'^patch_embed\.norm1\.', 'patch_embed.norm.')]
    out = rename_keys(to_deit(tensors), names)
    out |= {name: with_batch_axis(value) for name, value in out.items() if name == 'pos_embed'}
    return {k: v for k, v in out.items() if k != 'patch_embed.proj.bias' or 'norm_pre.weight' not in out}


def _from_mmpretrain(tensors: Tensors) -> Tensors:
    return _stem_as_convolution(rename_keys(tensors, _MMPRETRAIN_NAMES))


def _from_mmseg(tensors: Tensors) -> Tensors:
    """Rename; its stem has no bias unless asked for, which is a bias of zero."""
    out = _stem_as_convolution(rename_keys(tensors, _MMSEG_NAMES))
    stem = out['patch_embed.proj.weight']
    out.setdefault('patch_embed.proj.bias', stem.new_zeros(len(stem)))
    return out


def _from_open_clip(tensors: Tensors) -> Tensors:
    return _stem_as_convolution(from_open_clip(tensors))


def _from_vit_pytorch(tensors: Tensors) -> Tensors:
    return _stem_as_convolution(from_vit_pytorch(tensors))


IMAGES_OF_JAX = replace(HALF, source='AugReg and big_vision')
ADAPTER = Layout('vit-adapter', (r'spm\.stem\.', r'blocks\.0\.attn\.qkv\.'), _stem_as_convolution)
LAYOUTS = (
    ADAPTER,
    Layout('deit', (r'blocks\.0\.attn\.qkv\.', r'blocks\.0\.mlp\.fc1\.', r'patch_embed\.proj\.'), _from_deit),
    Layout('mmpretrain', (r'layers\.0\.attn\.qkv\.', r'patch_embed\.projection\.'), _from_mmpretrain),
    Layout('mmseg', (r'layers\.0\.attn\.attn\.in_proj_weight', r'patch_embed\.projection\.weight'), _from_mmseg),
    Layout('jax', (r'(params/)?(Transformer/)?encoderblock_0/',), from_jax, IMAGES_OF_JAX),
    Layout('vit-pytorch', (r'to_patch_embedding\.2\.', r'transformer\.layers\.0\.0\.to_qkv\.'), _from_vit_pytorch),
    Layout('open_clip', (r'(visual\.)?conv1\.weight', r'(visual\.)?transformer\.resblocks\.0\.'), _from_open_clip),
)
