"""Values and gradients of every backbone, joining and kind of position encoding against float64 on the CPU.

A model with random weights is copied to the CPU in float64, where nothing is fused and deformable attention is sums
of rows, and to the device, where it runs in float32 without TF32 and under autocast to bfloat16 and float16. Distances
are norms relative to those of float64; the gradients are of a random projection of all outputs, in training mode.

The tolerances are multiples of the unit roundoff (6e-8 in float32, 4e-3 in bfloat16, 5e-4 in float16), three times or
more of what these models show on a CPU.
"""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.agreement import flat, outputs_and_gradients
from benchmarks.checks import Check, Found, NotRunError, Options
from benchmarks.comparison import DTYPES
from benchmarks.models import plain_batch_norm, without_dropout
from mmlape.errors import ConfigError
from mmlape.models import (
    DistilledVisionTransformer,
    SwinTransformer,
    TimmViT,
    TimmViTAdapter,
    VisionTransformer,
    ViTAdapter,
    ViTPyramid,
)
from mmlape.models.adapter import deform_attn
from mmlape.models.position import AbsolutePosition, AttentionPosition, LayerPosition, joinings, kinds
from mmlape.projects import CeiT, CompactTransformer, T2TViT

TOLERANCE = {'fp32': (1e-5, 1e-4), 'bf16': (0.03, 0.1), 'fp16': (0.004, 0.03)}
"""Relative distances of outputs and of gradients that pass, by dtype."""
OF_ADAPTERS = {'fp32': 0.02, 'bf16': 0.2, 'fp16': 0.06}
"""The same of adapters' gradients: rounding picks another maximum, or side of a ReLU, in the convolutional stem."""
ARCH = dict(embed_dims=96, num_layers=4, num_heads=3, feedforward_channels=192)
SWIN = dict(embed_dims=24, depths=(2, 2), num_heads=(2, 4))
TIMM = dict(embed_dim=96, depth=4, num_heads=3)
PARTS = dict(conv_inplane=16, deform_num_heads=3)


def _compact(tokenizer: dict, pooling: str, **options) -> nn.Module:
    arch = dict(ARCH, tokenizer=tokenizer, pooling=pooling)
    return CompactTransformer(arch, 64, attn_drop_rate=0.0, drop_path_rate=0.0, **options)


def _timm(**options) -> nn.Module:
    return TimmViT('deit_small_patch16_224', img_size=64, model_args=TIMM, **options)


def _over_timm(mode: str, name: str = 'deit_small_patch16_224', **options) -> nn.Module:
    vit = dict(model_name=name, img_size=64, model_args=TIMM, **options)
    return TimmViTAdapter(vit, mode, drop_path_rate=0.0, **PARTS)


FAMILIES: dict[str, Callable[..., nn.Module]] = {
    'ViTAdapter': partial(ViTAdapter, ARCH, 64, **PARTS),
    'VisionTransformer': partial(VisionTransformer, ARCH, 64, 8, out_type='featmap'),
    'TimmViTAdapter': partial(_over_timm, 'inject'),
    'TimmViTAdapter, read-only': partial(_over_timm, 'read-only', 'vit_small_patch16_dinov3'),
    'TimmViT': _timm,
    'SwinTransformer': partial(SwinTransformer, SWIN, 64, window_size=4, out_type='featmap'),
    'T2TViT': partial(T2TViT, dict(ARCH, token_dims=32), 64, out_type='featmap'),
    'CeiT': partial(CeiT, dict(ARCH, stem_channels=16), 64, out_type='featmap'),
    'CompactTransformer, CCT': partial(_compact, dict(type='conv', kernel_size=7, num_convs=2), 'sequence_pool'),
    'CompactTransformer, CVT': partial(_compact, dict(type='patch', patch_size=8), 'sequence_pool'),
    'CompactTransformer, ViT-Lite': partial(_compact, dict(type='patch', patch_size=8), 'cls_token'),
    'DistilledVisionTransformer': partial(DistilledVisionTransformer, ARCH, 64, 8, out_type='featmap'),
    'ViTPyramid': partial(ViTPyramid, ARCH, 64),
}
"""What builds a small model of each backbone, with options of the model."""
OTHERS = {
    'ViTAdapter': (
        dict(pe_joining='lape', patch_norm='dual'),
        dict(window_attn=True, window_size=3),
        dict(with_cls_token=True, pe_type='beit', vit_feature_source='interaction'),
    ),
    'VisionTransformer': (
        dict(pe_joining='lape', patch_norm='dual'),
        dict(pe_type=dict(type='irpe', on='qkv')),
        dict(pe_type=['learnable', 'rpe'], pe_joining='lape'),
        dict(window_attn=True, window_size=3),
        dict(norm_placement='post'),
    ),
    'TimmViTAdapter': (dict(pe_joining='lape', patch_norm='dual'),),
    'SwinTransformer': (dict(pe_type=['learnable', 'rpe'], pe_joining='lape', patch_norm='dual'),),
}
"""Further options of a family that have a path of their own."""


class Images(NamedTuple):
    """One input of a model."""

    shape: tuple[int, int, int]  # images, rows, columns
    dtypes: tuple[str, ...]
    with_cp: bool = False


ODD = Images((3, 75, 101), ('fp32', 'bf16', 'fp16'))
ONE = Images((1, 64, 96), ('fp32', 'bf16'), with_cp=True)


def checks(options: Options) -> list[Check]:
    """Return a check for each backbone over its joinings, then for each kind of position encoding in each backbone."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    found = []
    for name in FAMILIES:
        cases = [dict(pe_joining=joining) for joining in joinings()] + list(OTHERS.get(name, ()))
        cases = [dict(pe_joining='lape'), {}] if options.quick else cases
        found.append(Check(name, partial(_family, options, name, cases, (ODD, ONE))))
    backends = ('deformops', 'mmcv') if options.device == 'cuda' else ()
    found[2:2] = [
        Check(f'deformable attention: {name}', partial(_attention, options.device, name))
        for name in (*backends, 'embedding_bag', 'pytorch')
    ]
    inputs = (ODD,) if options.quick else (ODD, ONE)
    for name in ('VisionTransformer', 'ViTAdapter', *FAMILIES):
        for kind in _kinds()[:: 6 if options.quick else 1]:
            cases = [dict(pe_type=kind, pe_joining=joining) for joining in joinings()]
            if name not in ('TimmViT', 'TimmViTAdapter', 'TimmViTAdapter, read-only'):  # which have timm's encodings
                found.append(Check(f'{name}: {kind}', partial(_family, options, name, cases, inputs)))
        if options.quick:
            break
        inputs = (Images(ODD.shape, ('fp32', 'bf16')),)
    return list({check.name: check for check in reversed(found)}.values())[::-1]


def _kinds() -> list[str]:
    """Return 'none' and the names of every kind that needs no arguments."""
    return [
        'none',
        *(kind.name for base in (AbsolutePosition, AttentionPosition, LayerPosition) for kind in kinds(base)),
    ]


def _family(options: Options, name: str, cases: list[dict], inputs: tuple[Images, ...]) -> Found:
    """Compare a backbone's models, one if quick; those whose arguments do not go together are left out."""
    worst, failed, compared = {}, [], 0
    for case in cases:
        if compared and options.quick:
            break
        try:
            FAMILIES[name](**case)
        except ConfigError:
            continue
        compared += 1
        for images in inputs:
            for dtype, (outputs, gradients) in _distances(options.device, name, case, images).items():
                before = worst.get(dtype, (0.0, 0.0))
                worst[dtype] = max(outputs, before[0]), max(gradients, before[1])
                limit = OF_ADAPTERS[dtype] if 'Adapter' in name else TOLERANCE[dtype][1]
                if not (outputs <= TOLERANCE[dtype][0] and gradients <= limit):  # also NaN
                    failed.append(f'{dtype}, {images.shape}, {case}: {outputs:.0e}, {gradients:.0e}')
    if not compared:
        raise NotRunError('no joining goes with it')
    figure = '; '.join(f'{dtype} {outputs:.0e}, {gradients:.0e}' for dtype, (outputs, gradients) in worst.items())
    figure = f'models: {compared}; {figure}' + (f'; too far: {failed[0]}' if failed else '')
    return Found(not failed, figure, dict(worst=worst, failed=failed))


def _distances(device: str, name: str, options: dict, images: Images) -> dict[str, tuple[float, float]]:
    """Return the relative distances of outputs and gradients to float64, by dtype."""
    torch.manual_seed(0)
    model = random_weights(FAMILIES[name](**options, **(dict(with_cp=True) if images.with_cp else {})))
    batch, rows, columns = images.shape
    x = torch.randn(batch, 3, rows, columns, generator=torch.Generator().manual_seed(1))
    expected = outputs_and_gradients(copy.deepcopy(model).double(), x.double())
    found = {}
    for dtype in images.dtypes:
        context = nullcontext if dtype == 'fp32' else partial(torch.autocast, device, DTYPES[dtype])
        placed = on_device(model, device)  # of its own for each dtype: training mode moves batch statistics
        out, gradients = outputs_and_gradients(placed, x.to(device), flat, context)
        found[dtype] = distance(out, expected[0]), distance(joined(gradients), joined(expected[1]))
    return found


def on_device(model: nn.Module, device: str) -> nn.Module:
    """Return a copy of a model on the device."""
    return copy.deepcopy(model).to(device)


def random_weights(model: nn.Module) -> nn.Module:
    """Give every parameter a value that matters, in place; returns the model, without dropout and SyncBN."""
    plain_batch_norm(without_dropout(model))
    for module in model.modules():
        if hasattr(module, 'aug_active'):  # timm augments DINOv3's rotary angles in training
            module.aug_active = False
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    calm_offsets(model, generator)
    return model


def calm_offsets(model: nn.Module, generator: torch.Generator) -> None:
    """Give deformable attention offsets at sixteenths of a cell, off the borders where a gradient jumps, in place."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith('.sampling_offsets.weight'):
                parameter.copy_(1e-3 * torch.randn(parameter.shape, generator=generator))
            elif name.endswith('.sampling_offsets.bias'):
                parameter.copy_((torch.randint(-16, 16, parameter.shape, generator=generator) + 0.5) / 8)


def joined(gradients: dict[str, Tensor]) -> Tensor:
    """Return the gradients as one vector, in the order of their names."""
    return torch.cat([gradients[name].flatten().double().cpu() for name in sorted(gradients)])


def distance(found: Tensor, expected: Tensor) -> float:
    """Return the norm of a difference relative to what is expected."""
    found, expected = found.detach().double().cpu(), expected.detach().double().cpu()
    return float((found - expected).norm() / expected.norm())


def _attention(device: str, backend: str) -> Found:
    """Compare a backend of deformable attention on the shapes of an injector and of an extractor."""
    if backend in ('deformops', 'mmcv'):
        __import__(backend)
        _, why = deform_attn._load_backend(backend)
        if why:
            raise NotRunError(why)
    dtypes = {'deformops': ('fp32', 'bf16', 'fp16'), 'mmcv': ('fp32', 'fp64')}.get(backend, ('fp32', 'fp64'))
    limits = {'fp64': 1e-10, 'fp32': 1e-4, 'bf16': 0.04, 'fp16': 0.01}
    worst = dict.fromkeys(dtypes, 0.0)
    for queries, shapes in ((70, ((20, 28), (10, 14), (5, 7))), (735, ((10, 14),))):
        for batch in (1, 3):
            tensors = _samples(batch, queries, shapes)
            expected = _run_attention('pytorch', tensors, shapes, 'cpu', torch.float64)
            for dtype in dtypes:
                kind = torch.float64 if dtype == 'fp64' else DTYPES[dtype]
                found = _run_attention(backend, tensors, shapes, device, kind)
                worst[dtype] = max(worst[dtype], *(distance(one, other) for one, other in zip(found, expected)))
    failed = [dtype for dtype, value in worst.items() if not value <= limits[dtype]]
    return Found(not failed, ', '.join(f'{dtype} {value:.0e}' for dtype, value in worst.items()), worst)


def _samples(batch: int, queries: int, shapes: tuple) -> list[Tensor]:
    """Return values, locations and weights in float64; no location is near a cell's centre, where the slope jumps."""
    generator = torch.Generator().manual_seed(4)
    sizes = torch.tensor([(columns, rows) for rows, columns in shapes])[:, None]
    cells = sum(rows * columns for rows, columns in shapes)
    # values that every dtype holds exactly, so that what is compared is the arithmetic
    value = torch.randn(batch, cells, 3, 32, generator=generator).bfloat16().half().double()
    locations = torch.rand(batch, queries, 3, len(shapes), 4, 2, generator=generator) * 1.2 - 0.1
    locations = ((locations * sizes * 4).floor() + 0.5) / 4 / sizes
    weights = torch.rand(batch, queries, 3, len(shapes), 4, generator=generator).bfloat16().half().double()
    return [value, locations.double(), weights]


def _run_attention(
    backend: str, tensors: list[Tensor], shapes: tuple, device: str, dtype: torch.dtype
) -> list[Tensor]:
    place = torch.float64 if dtype == torch.float64 else torch.float32  # locations keep their precision
    leaves = [t.to(device, kind).requires_grad_() for t, kind in zip(tensors, (dtype, place, dtype))]
    out = deform_attn.multi_scale_deformable_attention(leaves[0], shapes, *leaves[1:], backend=backend)
    return [out, *torch.autograd.grad((out.double() * out.detach().double()).sum(), leaves)]
