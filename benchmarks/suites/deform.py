"""The backends of deformable attention, on the shapes of a ViT-Adapter's injector (three levels) at stride 16."""

import torch

from benchmarks.agreement import agreement, projection
from benchmarks.comparison import DTYPES, Comparison, Settings, Side
from benchmarks.models import arch_of

HEADS, POINTS = 6, 4


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per size, dtype and work, over all backends that can be imported."""
    return [
        _comparison(settings, size, dtype, work)
        for size in settings.sizes
        for dtype in settings.dtypes
        for work in ('forward', 'forward + backward')
    ]


def backends(settings: Settings) -> list[str]:
    """Return the backends: plain PyTorch first, as the reference; mmcv's compiled op needs a GPU."""
    by_device = ['mmcv'] if settings.device == 'cuda' else ['mmcv (PyTorch function)', 'embedding_bag']
    return ['pytorch', 'deformops', *by_device]


def _levels(size: int) -> tuple[tuple[int, int], ...]:
    return tuple((max(1, size // stride),) * 2 for stride in (8, 16, 32))


def _inputs(settings: Settings, size: int, dtype: str) -> tuple:
    generator = torch.Generator().manual_seed(0)
    shapes, batch = _levels(size), settings.images(size)
    cells, queries = sum(a * b for a, b in shapes), max(1, size // 16) ** 2
    width = arch_of(settings)['embed_dims'] // HEADS
    value = torch.randn(batch, cells, HEADS, width, generator=generator)
    locations = torch.rand(batch, queries, HEADS, len(shapes), POINTS, 2, generator=generator)
    weights = torch.rand(batch, queries, HEADS, len(shapes), POINTS, generator=generator)
    to = dict(device=settings.device)
    half = dict(to, dtype=DTYPES[dtype])
    return value.to(**half), shapes, locations.to(**to), weights.to(**half)


def _run(backend: str, inputs: tuple):
    from mmlape.models.adapter.deform_attn import multi_scale_deformable_attention

    if backend != 'mmcv (PyTorch function)':
        return multi_scale_deformable_attention(*inputs, backend=backend)
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch

    value, shapes, locations, weights = inputs
    return multi_scale_deformable_attn_pytorch(value.float(), torch.tensor(shapes), locations, weights.float()).to(
        value.dtype
    )


def _gradients(backend: str, inputs: tuple) -> dict[str, torch.Tensor]:
    tensors = dict(value=inputs[0], locations=inputs[2], weights=inputs[3])
    for tensor in tensors.values():
        tensor.requires_grad_().grad = None
    projection(_run(backend, inputs)).backward()
    return {name: tensor.grad.float() for name, tensor in tensors.items()}


def _comparison(settings: Settings, size: int, dtype: str, work: str) -> Comparison:
    def side(backend: str):
        def build():
            inputs = _inputs(settings, size, dtype)
            return lambda: (_run if work == 'forward' else _gradients)(backend, inputs)

        return build

    def note() -> str:
        def both(name: str) -> tuple:
            inputs = _inputs(settings, size, dtype)
            return _run(name, inputs).float(), _gradients(name, inputs)

        reference, *others = backends(settings)
        expected = both(reference)
        return '; '.join(f'{name}: {agreement(both(name), expected, 0.02, 0.02)}' for name in others)

    shapes, batch = _levels(size), settings.images(size)
    return Comparison(
        'deform', f'{settings.arch}: deformable attention, 3 levels, {POINTS} points', work,
        f'{batch} pyramids of {len(shapes)} levels up to {shapes[0][0]} x {shapes[0][1]}', dtype,
        [Side(name, side(name)) for name in backends(settings)],
        items=batch, counted=False, memory=work != 'forward', note=note,
    )  # fmt: skip
