"""Public bases, those of ViT-Adapter's repository first: what each has otherwise than DeiT, as arguments of a ViT.

AugReg (TMLR 2022) is DeiT's architecture, B and L of 384 pixels, as the files are that ViT-Adapter names, and Ti of
224; BEiT and BEiTv2 (ICLR 2022; arXiv 2208.06366) have a bias of relative positions, LayerScale and no bias of keys;
Uni-Perceiver (CVPR 2022) norms patches + PE. The public adapters start gammas of BEiT at 1e-6 and those of
Uni-Perceiver at 0, which released weights replace.

DINOv2 (arXiv 2304.07193) has patches of 14 pixels and LayerScale, with registers another way to resize its PE; DINOv3
(arXiv 2508.10104) has rotary encodings, registers and no bias of keys; CLIP (ICML 2021) norms patches + PE, OpenAI's
own by a GELU of its own; the PE of big_vision's ViTs has no row for the class token, and their GELU is the tanh form;
SigLIP (ICCV 2023) has the same GELU and no class token.
"""

AUGREG = dict(img_size=384)
BIG_VISION = dict(with_prefix_pe=False, act_cfg=dict(type='GELU', approximate='tanh'))
CLIP = dict(patch_norm='post-posemb', norm_cfg=dict(type='LN', eps=1e-5))
DINOV2 = dict(patch_size=14, img_size=518, layer_scale_init_value=1e-5, interpolate_mode='bicubic-offset')
DINOV2_REGISTERS = {'reg4': dict(num_registers=4, interpolate_mode='bicubic-antialias')}
DINOV3 = dict(
    num_registers=4,
    pe_type=dict(type='rope', coordinates='normalised', pairs='half'),
    qkv_bias='qv',
    layer_scale_init_value=1e-5,
    norm_cfg=dict(type='LN', eps=1e-5),
)
SIGLIP = dict(with_cls_token=False, out_type='avg_featmap', act_cfg=dict(type='GELU', approximate='tanh'))
BEIT = dict(pe_type='beit', qkv_bias='qv', window_padding='before-qkv', layer_scale_init_value=1e-6)
UNI_PERCEIVER = dict(
    with_prefix_pe=False,
    patch_norm='post-posemb',
    norm_cfg=dict(type='LN', eps=1e-5),
    window_padding='before-qkv',
    layer_scale_init_value=1e-6,
)
BEIT_VARIANTS = {'lape': dict(pe_type=['learnable', 'beit'], pe_joining='lape'), 'dpn': dict(patch_norm='dual')}
"""What the suffixes of a BEiT's name stand for: LaPE's table stands beside the bias."""
_ARCHS = {'tiny': 'deit-tiny', 'small': 'deit-small', 'base': 'deit-base', 'large': 'vit-large'}


def sizes(name: str, options: dict, *of: str) -> dict[str, dict]:
    """Return the arguments of a base by name and size: 'beit-large' of 'beit', ``BEIT`` and 'large'."""
    return {f'{name}-{size}': dict(arch=_ARCHS[size], **options) for size in of}


def patched(name: str, patch_size: int, options: dict, *of: str) -> dict[str, dict]:
    """Return the same for a side of the patches: 'vit-base-p32' of 'vit', 32 and 'base'."""
    bases = sizes(name, dict(options, patch_size=patch_size), *of)
    return {f'{key}-p{patch_size}': arguments for key, arguments in bases.items()}
