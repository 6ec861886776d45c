"""Names of two public PyTorch ViTs with norms of Dual PatchNorm in their stems: vit-pytorch's and open_clip's.

vit-pytorch's stem has both norms, and patches of (row, column, channel). open_clip's ``input_patchnorm`` has LN0 only,
patches of (channel, row, column), as a convolution's weight has them, and CLIP's own norm after tokens + PE. The norms
of both have eps 1e-5.
"""

import re

from mmlape.checkpoint.key_maps import Tensors, rename_keys
from mmlape.models.vit.big_vision import stem_order

# beginnings of names; '#' is the number of a layer
_VIT_PYTORCH = {
    'to_patch_embedding.1.': 'patch_embed.norm0.',
    'to_patch_embedding.2.': 'patch_embed.proj.',
    'to_patch_embedding.3.': 'patch_embed.norm1.',
    'pos_embedding': 'pos_embed',
    'transformer.layers.#.0.norm.': 'blocks.#.norm1.',
    'transformer.layers.#.0.to_qkv.': 'blocks.#.attn.qkv.',
    'transformer.layers.#.0.to_out.0.': 'blocks.#.attn.proj.',
    'transformer.layers.#.1.net.0.': 'blocks.#.norm2.',
    'transformer.layers.#.1.net.1.': 'blocks.#.mlp.fc1.',
    'transformer.layers.#.1.net.4.': 'blocks.#.mlp.fc2.',
    'transformer.norm.': 'norm.',
    'mlp_head.': 'head.',
}
_OPEN_CLIP = {
    'patchnorm_pre_ln.': 'patch_embed.norm0.',
    'conv1.': 'patch_embed.proj.',
    'class_embedding': 'cls_token',
    'positional_embedding': 'pos_embed',
    'ln_pre.': 'norm_pre.',
    'ln_post.': 'norm.',
    'transformer.resblocks.#.ln_1.': 'blocks.#.norm1.',
    'transformer.resblocks.#.ln_2.': 'blocks.#.norm2.',
    'transformer.resblocks.#.attn.in_proj_': 'blocks.#.attn.qkv.',
    'transformer.resblocks.#.attn.out_proj.': 'blocks.#.attn.proj.',
    'transformer.resblocks.#.mlp.c_fc.': 'blocks.#.mlp.fc1.',
    'transformer.resblocks.#.mlp.c_proj.': 'blocks.#.mlp.fc2.',
    'transformer.resblocks.#.ls_1.gamma': 'blocks.#.gamma1',
    'transformer.resblocks.#.ls_2.gamma': 'blocks.#.gamma2',
}


def _rename(tensors: Tensors, names: dict[str, str]) -> Tensors:
    pairs = [(f'^{re.escape(old)}'.replace(r'\#', r'(\d+)'), new.replace('#', r'\1')) for old, new in names.items()]
    return rename_keys(tensors, pairs)


def from_vit_pytorch(tensors: Tensors) -> Tensors:
    """Translate; a model that pools by the mean has a class token of no rows."""
    out = _rename(tensors, _VIT_PYTORCH)
    out['patch_embed.norm0.weight'], out['patch_embed.norm0.bias'] = (
        stem_order(out[f'patch_embed.norm0.{leaf}']) for leaf in ('weight', 'bias')
    )
    out['patch_embed.proj.weight'] = stem_order(out['patch_embed.proj.weight'].t()).t()  # (D, C*P*P)
    for name in ('pos_embed', 'cls_token'):
        if name in out:
            out[name] = out[name].reshape(1, -1, out[name].shape[-1])
    if not out['cls_token'].numel():
        del out['cls_token']
    return out


def from_open_clip(tensors: Tensors) -> Tensors:
    """Translate the image tower; the text tower and the projections are marked as other parts."""
    towers = any(name.startswith('visual.') for name in tensors)
    image = {name.removeprefix('visual.'): value for name, value in tensors.items() if name.startswith('visual.')}
    out = {f'/{name}': value for name, value in tensors.items() if towers and not name.startswith('visual.')}
    # behind a pooling by attention, the last norm is of what was pooled
    others = ('proj', 'attn_pool.', *(['ln_post.'] if any(name.startswith('attn_pool.') for name in image) else []))
    for name, value in _rename(image if towers else tensors, _OPEN_CLIP).items():
        out[f'/{name}' if name.startswith(others) else name] = value
    out['cls_token'] = out['cls_token'].reshape(1, 1, -1)
    out['pos_embed'] = out['pos_embed'][None]
    return out


def to_open_clip(tensors: Tensors) -> Tensors:
    """Translate back; the stem is linear where LN0 is before it, else a convolution without bias."""
    out = {name: value for name, value in tensors.items() if name != 'patch_embed.proj.bias'}
    if 'patch_embed.norm0.weight' in tensors:
        out['patch_embed.proj.weight'] = out['patch_embed.proj.weight'].flatten(1)
        out['patch_embed.proj.bias'] = tensors['patch_embed.proj.bias']
    out['cls_token'], out['pos_embed'] = out['cls_token'].flatten(), out['pos_embed'].flatten(0, -2)
    names = {new: old for old, new in _OPEN_CLIP.items()}
    return {f'visual.{name}': value for name, value in _rename(out, names).items()}
