"""The ViTs of timm, mmpretrain and mmsegmentation, with our weights copied in, so that all compute the same."""

from torch import Tensor, nn

from benchmarks.agreement import renamed
from benchmarks.comparison import Settings
from benchmarks.models import arch_of, prepared

MMPRETRAIN = (
    (r'^patch_embed\.proj', 'patch_embed.projection'),
    (r'^blocks\.(\d+)\.norm', r'layers.\1.ln'),
    (r'^blocks\.(\d+)\.mlp\.fc1', r'layers.\1.ffn.layers.0.0'),
    (r'^blocks\.(\d+)\.mlp\.fc2', r'layers.\1.ffn.layers.1'),
    (r'^blocks', 'layers'),
    (r'^norm\.', 'ln1.'),
)
MMSEG = ((r'\.attn\.qkv\.', '.attn.attn.in_proj_'), (r'\.attn\.proj\.', '.attn.attn.out_proj.'), *MMPRETRAIN)


def timm_vit(settings: Settings, size: int, weights: dict[str, Tensor]) -> nn.Module:
    """Build timm's, which returns all tokens."""
    from timm.models.vision_transformer import VisionTransformer

    arch = arch_of(settings)
    model = VisionTransformer(
        img_size=size, embed_dim=arch['embed_dims'], depth=arch['num_layers'], num_heads=arch['num_heads'],
        mlp_ratio=arch['feedforward_channels'] / arch['embed_dims'], num_classes=0, global_pool='',
    )  # fmt: skip
    model.load_state_dict(weights)
    return prepared(model, settings)


def mmpretrain_vit(settings: Settings, size: int, weights: dict[str, Tensor]) -> nn.Module:
    """Build mmpretrain's, which returns feature maps here."""
    from mmpretrain.models import VisionTransformer

    norm = dict(type='LN', eps=1e-6)
    model = VisionTransformer(
        arch=arch_of(settings), img_size=size, out_type='featmap', norm_cfg=norm,
        layer_cfgs=dict(norm_cfg=norm),
    )  # fmt: skip
    model.load_state_dict(renamed(weights, MMPRETRAIN))
    return prepared(model, settings)


def mmseg_vit(settings: Settings, size: int, weights: dict[str, Tensor]) -> nn.Module:
    """Build mmsegmentation's, which returns feature maps."""
    from mmseg.models.backbones import VisionTransformer

    arch = arch_of(settings)
    model = VisionTransformer(
        img_size=size, embed_dims=arch['embed_dims'], num_layers=arch['num_layers'], num_heads=arch['num_heads'],
        mlp_ratio=arch['feedforward_channels'] // arch['embed_dims'], norm_cfg=dict(type='LN', eps=1e-6),
        final_norm=True, patch_bias=True,
    )  # fmt: skip
    model.load_state_dict(renamed(weights, MMSEG))
    return prepared(model, settings)


PEERS = {'timm': (timm_vit, ()), 'mmpretrain': (mmpretrain_vit, MMPRETRAIN), 'mmsegmentation': (mmseg_vit, MMSEG)}
"""What builds a peer from our weights, and how its parameters are named."""
