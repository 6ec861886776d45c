"""Random but non-trivial weights, so that every parameter matters in a comparison."""

from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from mmlape.models import CompactTransformer


def cvt(arch: dict, img_size, patch_size: int, **kwargs) -> CompactTransformer:
    """A CVT under the arguments of a ViT."""
    arch = dict(arch, tokenizer=dict(type='patch', patch_size=patch_size), pooling='sequence_pool')
    return CompactTransformer(arch, img_size, **kwargs)


def tiny_detr(
    dims: int = 16, heads: int = 2, channels: int = 24, queries: int = 5, layers: tuple[int, int] = (2, 1), **kwargs
) -> nn.Module:
    """``mmlape.DETR`` of the configs over ResNet-18, without dropout; ``layers`` of encoder and decoder."""
    init_default_scope('mmdet')
    attn = dict(embed_dims=dims, num_heads=heads, dropout=0.0)
    layer = dict(self_attn_cfg=attn, ffn_cfg=dict(embed_dims=dims, feedforward_channels=channels, ffn_drop=0.0))
    cfg = Config.fromfile(Path(__file__).parents[1] / 'configs/_base_/models/detr_r50.py')
    model = dict(
        num_queries=queries,
        backbone=dict(depth=18, init_cfg=None),
        neck=dict(in_channels=[512], out_channels=dims),
        encoder=dict(num_layers=layers[0], layer_cfg=layer),
        decoder=dict(num_layers=layers[1], layer_cfg=dict(layer, cross_attn_cfg=attn)),
        positional_encoding=dict(num_feats=dims // 2),
        bbox_head=dict(embed_dims=dims),
    )
    cfg.merge_from_dict(dict(model=model))
    return MODELS.build({key: value for key, value in dict(cfg.model, **kwargs).items() if value is not None})


@torch.no_grad()
def randomise(model: nn.Module) -> nn.Module:
    """Fill parameters and batch-norm statistics; matrices small, scales around one. Returns the model in eval mode."""
    for name, parameter in model.named_parameters():
        scale = (name.endswith('weight') and parameter.ndim == 1) or 'gamma' in name
        spread = 0.2 if parameter.ndim > 1 else 0.3
        parameter.copy_(torch.randn_like(parameter) * spread + float(scale))
        if 'sampling_offsets.weight' in name:
            parameter.mul_(0.5)
    for name, buffer in model.named_buffers():
        if name.endswith('running_mean'):
            buffer.copy_(0.1 * torch.randn_like(buffer))
        elif name.endswith('running_var'):
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    model.eval()
    return model


@torch.no_grad()
def kept_weights(attn, x, *args):
    """What attention returns where all weights are equal and all values one: the sums of its weights."""
    for parameter in attn.parameters():
        parameter.zero_()
    attn.qkv.bias[-len(attn.proj.bias) :] = 1
    attn.proj.weight.copy_(torch.eye(len(attn.proj.bias)))
    return attn(x, *args)
