"""The ViTs of timm, mmpretrain and mmsegmentation, with our weights copied in, so that all compute the same."""

import re

import torch
from torch import Tensor, nn

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
MMSEG = (
    (r'\.attn\.qkv\.', '.attn.attn.in_proj_'),
    (r'\.attn\.proj\.', '.attn.attn.out_proj.'),
    *MMPRETRAIN,
)


def timm_vit(settings: Settings, size: int, weights: dict[str, Tensor]) -> nn.Module:
    """timm's, which returns all tokens."""
    from timm.models.vision_transformer import VisionTransformer

    arch = arch_of(settings)
    model = VisionTransformer(
        img_size=size, embed_dim=arch['embed_dims'], depth=arch['num_layers'], num_heads=arch['num_heads'],
        mlp_ratio=arch['feedforward_channels'] / arch['embed_dims'], num_classes=0, global_pool='',
    )  # fmt: skip
    model.load_state_dict(weights)
    return prepared(model, settings)


def mmpretrain_vit(settings: Settings, size: int, weights: dict[str, Tensor]) -> nn.Module:
    """mmpretrain's, which returns feature maps here."""
    from mmpretrain.models import VisionTransformer

    norm = dict(type='LN', eps=1e-6)
    model = VisionTransformer(
        arch=arch_of(settings), img_size=size, out_type='featmap', norm_cfg=norm,
        layer_cfgs=dict(norm_cfg=norm),
    )  # fmt: skip
    model.load_state_dict(_renamed(weights, MMPRETRAIN))
    return prepared(model, settings)


def mmseg_vit(settings: Settings, size: int, weights: dict[str, Tensor]) -> nn.Module:
    """mmsegmentation's, which returns feature maps."""
    from mmseg.models.backbones import VisionTransformer

    arch = arch_of(settings)
    model = VisionTransformer(
        img_size=size, embed_dims=arch['embed_dims'], num_layers=arch['num_layers'], num_heads=arch['num_heads'],
        mlp_ratio=arch['feedforward_channels'] // arch['embed_dims'], norm_cfg=dict(type='LN', eps=1e-6),
        final_norm=True, patch_bias=True,
    )  # fmt: skip
    model.load_state_dict(_renamed(weights, MMSEG))
    return prepared(model, settings)


PEERS = {'timm': timm_vit, 'mmpretrain': mmpretrain_vit, 'mmsegmentation': mmseg_vit}


def _renamed(weights: dict[str, Tensor], rules: tuple[tuple[str, str], ...]) -> dict[str, Tensor]:
    out = {}
    for name, value in weights.items():
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)
        out[name] = value
    return out


def patch_tokens(out: Tensor | tuple) -> Tensor:
    """(B, N, D) patch tokens of what a ViT returned: a map (B, D, rows, columns), or tokens with the class token."""
    out = out if isinstance(out, Tensor) else out[0]
    return out.flatten(2).transpose(1, 2) if out.ndim == 4 else out[:, 1:]


def agreement(ours: nn.Module, theirs: nn.Module, images: Tensor) -> str:
    """How far apart the outputs of two ViTs are, in words."""
    with torch.inference_mode():
        for model in (ours, theirs):
            model.eval()
        return difference(patch_tokens(ours(images)), patch_tokens(theirs(images)))


def difference(mine: Tensor, other: Tensor, tolerance: float = 1e-3) -> str:
    """The largest difference relative to the largest value; beyond the tolerance it is another function."""
    apart = float((mine - other).abs().max() / other.abs().max())
    if apart > tolerance:
        return f'NOT the same function: {apart:.0e} apart'
    return f'outputs agree to {apart:.0e}' if apart else 'outputs are equal'
