"""The bases of ViT-Adapter's repository: what each has otherwise than DeiT, as arguments of ``VisionTransformer``.

AugReg (TMLR 2022) is DeiT's architecture, B and L of 384 pixels, as the files are that ViT-Adapter
names, and Ti of 224; BEiT and BEiTv2 (ICLR 2022; arXiv 2208.06366) have a bias of relative
positions, LayerScale and no bias of keys; Uni-Perceiver (CVPR 2022) norms patches + PE. The public
adapters start gammas of BEiT at 1e-6 and those of Uni-Perceiver at 0, which released weights
replace.
"""

AUGREG = dict(img_size=384)
BEIT = dict(pe_type='beit', qkv_bias='qv', window_padding='before-qkv', layer_scale_init_value=1e-6)
UNI_PERCEIVER = dict(
    with_prefix_pe=False,
    patch_norm='post-posemb',
    norm_cfg=dict(type='LN', eps=1e-5),
    window_padding='before-qkv',
    layer_scale_init_value=1e-6,
)
BEIT_VARIANTS = {
    'lape': dict(pe_type=['learnable', 'beit'], pe_joining='lape'),
    'dpn': dict(patch_norm='dual'),
}
"""What the suffixes of a BEiT's name stand for: LaPE's table stands beside the bias."""
_ARCHS = {'tiny': 'deit-tiny', 'base': 'deit-base', 'large': 'vit-large'}


def sizes(name: str, options: dict, *of: str) -> dict[str, dict]:
    """Return the arguments of a base by name and size: 'beit-large' of 'beit', ``BEIT`` and 'large'."""
    return {f'{name}-{size}': dict(arch=_ARCHS[size], **options) for size in of}
