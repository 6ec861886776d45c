"""Mask2Former's pixel decoder on our deformable attention beside mmdetection's on mmcv's, with the same weights."""

import copy
import warnings

import torch
from mmengine.config import ConfigDict
from torch import nn

from benchmarks.agreement import agreement, flat, projection
from benchmarks.comparison import Comparison, Settings, Side
from benchmarks.models import arch_of

WIDTH, HEADS, LAYERS = 256, 8, 6
STRIDES = (4, 8, 16, 32)


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per size and work; the maps are those of an adapter over ``--arch``."""
    works = ('forward', 'forward + backward')
    return [_comparison(settings, size, work) for size in settings.sizes for work in works]


def _decoder(kind: type, settings: Settings) -> nn.Module:
    attention = dict(embed_dims=WIDTH, num_heads=HEADS, num_levels=3, num_points=4, dropout=0.0, batch_first=True)
    ffn = dict(embed_dims=WIDTH, feedforward_channels=4 * WIDTH, num_fcs=2, ffn_drop=0.0)
    cfg = dict(
        in_channels=[arch_of(settings)['embed_dims']] * 4,
        feat_channels=WIDTH,
        out_channels=WIDTH,
        encoder=dict(num_layers=LAYERS, layer_cfg=dict(self_attn_cfg=attention, ffn_cfg=ffn)),
        positional_encoding=dict(num_feats=WIDTH // 2, normalize=True),
    )
    torch.manual_seed(0)
    model = kind(**ConfigDict(copy.deepcopy(cfg)))
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.05)
    return model.to(settings.device)


def _kinds() -> dict[str, type]:
    from mmdet.models.layers import MSDeformAttnPixelDecoder as Plain

    from mmlape.projects import MSDeformAttnPixelDecoder

    return {"mmcv's": Plain, 'mmlape': MSDeformAttnPixelDecoder}


def _comparison(settings: Settings, size: int, work: str) -> Comparison:
    batch, dims = settings.images(size), arch_of(settings)['embed_dims']

    def run(name: str, work: str):
        model = _decoder(_kinds()[name], settings)
        generator = torch.Generator().manual_seed(1)
        sides = [max(1, size // stride) for stride in STRIDES]
        maps = [torch.randn(batch, dims, side, side, generator=generator).to(settings.device) for side in sides]

        def call() -> tuple[torch.Tensor, dict]:
            with warnings.catch_warnings():
                warnings.filterwarnings('ignore', 'torch.meshgrid')
                if work == 'forward':
                    with torch.no_grad():
                        return flat(model(maps)), {}
                model.zero_grad()
                out = flat(model(maps))
                projection(out).backward()
                return out, {key: value.grad for key, value in model.named_parameters()}

        return call

    def note() -> str:
        ours, theirs = (run(name, 'forward + backward')() for name in ('mmlape', "mmcv's"))
        return agreement(ours, theirs)

    return Comparison(
        'mask2former', f'pixel decoder, {LAYERS} layers of {WIDTH}, over {settings.arch}', work,
        f'{batch} x {size} x {size}', 'fp32', [Side(name, lambda name=name: run(name, work)) for name in _kinds()],
        items=batch, counted=False, memory=work != 'forward', note=note,
    )  # fmt: skip
