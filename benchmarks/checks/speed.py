"""How fast ViT-Adapter can be: eager, compiled layers, CUDA graphs, both; and a frozen ViT that runs once.

Sides of a line are timed in turns in one process. 'layers' compiles each layer of the ViT, each injector and each
extractor in place; 'graphs' captures the complete work as one CUDA graph; heads and losses are no part of either.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from benchmarks.checks import Check, Options
from benchmarks.checks.cost import settings_of
from benchmarks.comparison import BACKWARD, STEP, WORKS, Comparison, Settings, doing
from benchmarks.measure import measure
from benchmarks.models import adapter
from benchmarks.public import public_adapter
from benchmarks.suites.frozen import comparisons
from mmlape.lab.training.compiling import allow_variants

CASES = (('deit-small', 4, 1024), ('deit-small', 2, 512), ('deit-tiny', 8, 1024), ('deit-tiny', 2, 512))
"""Size of the model, images, side; two of 512 are the batch of the recipes."""
FROZEN = (('deit-small', 16, 224), ('mini', 2, 64))
"""The same of a frozen ViT that runs once, and of a trial."""
GOALS = {1024: {'graphs': (0.45, 0.5), 'layers and graphs': (0.40, 0.5)}, 512: {'layers and graphs': (0.40, 1.0)}}
"""Ratios to the public code in time and memory, by side and mode."""
MODES = ('eager', 'layers', 'graphs', 'layers and graphs')
LAPE = {'LaPE': (1.01, 1.01)}


def checks(options: Options) -> list[Check]:
    """Return the comparisons, the goals first, then LaPE in each mode."""
    cases = (('mini', 2, 64),) if options.quick else CASES
    modes = ('eager', 'layers') if options.device == 'cpu' else MODES
    dtype = 'fp32' if options.device == 'cpu' else 'bf16'  # CPUs emulate bf16
    compared, lape = [], []
    for arch, batch, size in cases:
        settings = settings_of(options, dtype, arch, batch, size)
        head = settings.title('ViT-Adapter')
        for work in (BACKWARD,) if options.quick else (BACKWARD, 'forward', STEP):
            compared.append(_check(_modes(settings, modes, work), settings))
        for mode in modes:
            sides = {'default': partial(_work, settings, mode, STEP)}
            sides['LaPE'] = partial(_work, settings, mode, STEP, pe_joining='lape')
            lape.append(_check(Comparison(f'{head}: LaPE over default, {mode}, {STEP}', sides, LAPE), settings))
    frozen = settings_of(options, 'fp32', *FROZEN[options.quick])
    heads = [_check(one, frozen) for one in comparisons(frozen)]
    return [*compared[:1], *lape[:4], *heads, *compared[1:], *lape[4:]]


def _check(comparison: Comparison, settings: Settings) -> Check:
    return Check(comparison.name, partial(measure, comparison, settings))


def compile_layers(model: nn.Module, backend: str) -> nn.Module:
    """Compile the layers of the ViT, the injectors and the extractors in place, for the sizes that they see first."""
    allow_variants(parts := list(model.compile_units()))
    for part in parts:
        part.compile(backend=backend, dynamic=False)
    return model


def captured(work: Callable[[], object]) -> Callable[[], object]:
    """Capture a piece of work as one CUDA graph, after three rounds beside it, and return its replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def _work(settings: Settings, mode: str, work: str, **changes) -> Callable[[], object]:
    """Return a piece of work in a mode."""
    model = adapter(settings, **changes)
    if 'layers' in mode:
        compile_layers(model, 'inductor' if settings.device == 'cuda' else 'aot_eager')
    graphs = 'graphs' in mode
    options = dict(capturable=True) if graphs and work == STEP else {}  # a step that a graph can hold
    run = WORKS[work](model, settings.inputs(), settings, **options)
    return captured(run) if graphs else run


def _modes(settings: Settings, modes: tuple[str, ...], work: str) -> Comparison:
    """Compare the modes, over the public code where it is given."""
    name = f'{settings.title("ViT-Adapter")}: modes, {work}'
    sides = {mode: partial(_work, settings, mode, work) for mode in modes}
    if not settings.public:
        return Comparison(name, sides)
    public = doing(settings, work, lambda: public_adapter(settings, adapter(settings).state_dict()))
    return Comparison(name, {'public code': public, **sides}, GOALS[settings.size] if work == BACKWARD else {})
