"""torch.compile of a ViT, a ViT with LaPE and an adapter with LaPE: graph breaks, values, time beside eager."""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from benchmarks.agreement import outputs_and_gradients
from benchmarks.checks import Check, Found, Options
from benchmarks.checks.values import distance, joined
from benchmarks.comparison import Settings, backward_work
from benchmarks.models import adapter, random_offsets, vit
from benchmarks.timing import interleave, spread

TOLERANCE = 1e-4, 1e-3
"""Relative distances in fp32 of outputs and of gradients, which a compiler sums in another order."""


def checks(options: Options) -> list[Check]:
    """Return a check per model; on the CPU graphs are captured, but run by PyTorch, since compiling takes minutes."""
    size = 64 if options.quick else 224
    arch, batch = ('mini', 2) if options.quick else ('deit-tiny', 8)
    settings = Settings(options.device, 'bf16', size, arch, batch)
    models = {
        'ViT with LaPE': partial(vit, settings, pe_joining='lape'),
        'ViT-Adapter with LaPE': partial(adapter, settings, pe_joining='lape'),
        'ViT': partial(vit, settings),
    }
    models = dict(list(models.items())[:1]) if options.quick else models
    return [Check(name, partial(_compiled, build, settings)) for name, build in models.items()]


def _compiled(build: Callable[[], nn.Module], settings: Settings) -> Found:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    images = settings.inputs()
    model, plain = build(), build()
    for one in (model, plain):
        random_offsets(one)
    torch._dynamo.utils.counters.clear()
    backend = 'inductor' if settings.device == 'cuda' else 'aot_eager'
    run = compiled(model, backend)
    started = time.perf_counter()
    found = outputs_and_gradients(run, images)
    seconds = time.perf_counter() - started
    breaks = sum(torch._dynamo.utils.counters['graph_break'].values())
    expected = outputs_and_gradients(plain, images)
    outputs, gradients = distance(found[0], expected[0]), distance(joined(found[1]), joined(expected[1]))
    times = [
        spread(samples)['median']
        for samples in interleave(
            [backward_work(one, images, settings) for one in (plain, run)], settings.device, 9, 3.0
        )
    ]
    ok = breaks == 0 and outputs <= TOLERANCE[0] and gradients <= TOLERANCE[1]
    figure = (
        f'{breaks} graph breaks; fp32 {outputs:.0e}, {gradients:.0e} off eager; compiled by {backend} in '
        f'{seconds:.0f} s; '
        f'bf16 forward + backward {1e3 * times[0]:.3g} -> {1e3 * times[1]:.3g} ms ({times[1] / times[0]:.2f})'
    )
    return Found(ok, figure, dict(breaks=breaks, outputs=outputs, gradients=gradients, seconds=seconds, times=times))


def compiled(model: nn.Module, backend: str) -> nn.Module:
    """Return the compiled model; earlier ones do not count towards the compiler's limit."""
    torch._dynamo.reset()
    return torch.compile(model, backend=backend, dynamic=False)
