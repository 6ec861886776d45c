"""Random but non-trivial weights, so that every parameter matters in a comparison."""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from unittest import mock

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from mmlape.models import SwinTransformer, VisionTransformer, ViTAdapter
from mmlape.models.layers.norm_placement import METHODS, ON, PLACES
from mmlape.projects import CeiT, CompactTransformer, T2TViT

ARCH = dict(embed_dims=24, num_layers=2, num_heads=3, feedforward_channels=48)
DEEP_ARCH = dict(ARCH, num_layers=4)
SWIN_ARCH = dict(embed_dims=12, depths=(2, 2), num_heads=(2, 4))
SWIN_BOTH = ['learnable', 'rpe']


T2T_ARCH = dict(embed_dims=16, num_layers=3, num_heads=2, feedforward_channels=32, token_dims=8)
CEIT_ARCH = dict(embed_dims=16, num_layers=3, num_heads=2, feedforward_channels=32, stem_channels=8)
TOKEN_ARCHS = {T2TViT: T2T_ARCH, CeiT: CEIT_ARCH}


def placements() -> Iterator[str | dict]:
    """Yield every placement, as ``resolve_norm_placement`` takes it; the shortest name of each."""
    yield from (*PLACES, *METHODS)
    for on, attn, ffn in product(ON, PLACES, PLACES):
        if (attn, ffn) != ('pre', 'pre') and (on == 'branch' or attn != ffn):
            yield dict(attn=attn, ffn=ffn, on=on)
    for head, residual in ((True, False), (False, True), (True, True)):
        yield dict(type='normformer', head_scale=head, residual_scale=residual)


@contextmanager
def operations() -> Iterator[Counter]:
    """Count by name what PyTorch computes, in backward passes too."""
    counts: Counter = Counter()

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            counts[func.overloadpacket.__name__] += 1
            return func(*args, **(kwargs or {}))

    with Count():
        yield counts


@contextmanager
def meta_device() -> Iterator[None]:
    """Models without data, in less than half of PyTorch's own time: that clamps and draws their weights by Python."""
    with contextlib.ExitStack() as patches:
        for name in ('clamp_', 'uniform_', 'normal_'):
            patches.enter_context(mock.patch(f'torch.Tensor.{name}', lambda weight, *args, **kwargs: weight))
        patches.enter_context(torch.device('meta'))
        yield


def new_vit(
    cls: type[nn.Module] = VisionTransformer, arch: dict = ARCH, img_size=32, patch_size=8, **kwargs
) -> nn.Module:
    """A small ViT as its constructor makes it."""
    return cls(arch, img_size, patch_size, **{'out_type': 'raw', **kwargs})


def filled(model: nn.Module) -> nn.Module:
    """Give every parameter values that no generator draws."""
    with torch.no_grad():
        for number, value in enumerate(model.parameters()):
            value.copy_(torch.arange(value.numel()).add(number).mul(0.7).cos().mul(0.3).add(0.1).view_as(value))
    return model.eval()


def vit(*args, **kwargs) -> nn.Module:
    """``new_vit`` with random values for every parameter, in eval mode."""
    return randomise(new_vit(*args, **kwargs))


def new_adapter(arch: dict = DEEP_ARCH, img_size=64, **kwargs) -> ViTAdapter:
    """A small ViT-Adapter as its constructor makes it."""
    return ViTAdapter(arch, img_size, conv_inplane=8, deform_num_heads=3, **kwargs)


def adapter(*args, **kwargs) -> ViTAdapter:
    """``new_adapter`` with random values for every parameter, in eval mode."""
    return randomise(new_adapter(*args, **kwargs))


def shallow_adapter(**kwargs) -> ViTAdapter:
    """The same of two layers, each with an interaction."""
    return adapter(ARCH, interaction_indexes=[[0, 0], [1, 1]], **kwargs)


def new_token_vit(cls: type[nn.Module], img_size=48, **kwargs) -> nn.Module:
    """A small T2T-ViT or CeiT as its constructor makes it."""
    return cls(TOKEN_ARCHS[cls], img_size, **kwargs)


def swin(**options) -> SwinTransformer:
    return randomise(
        SwinTransformer(**{'arch': SWIN_ARCH, 'img_size': 32, 'window_size': 4, 'out_type': 'raw', **options})
    )


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


def is_normal(values: Tensor, std: float) -> bool:
    """Return whether values have mean zero and that deviation, within five times what chance explains."""
    count = values.numel()
    spread = abs(values.std().item() / std - 1) < 5 / math.sqrt(2 * count)
    tails = values.abs().max() > 2 * std or count < 1000  # a uniform distribution ends at 1.7
    return spread and tails and abs(values.mean().item()) < 5 * std / math.sqrt(count)


def is_uniform(values: Tensor, bound: float) -> bool:
    """Return whether values fill [-bound, bound] evenly."""
    count = values.numel()
    inside = values.abs().max().item() <= bound * (1 + 1e-6)
    return inside and abs(values.std().item() / (bound / math.sqrt(3)) - 1) < 5 / math.sqrt(2 * count)
