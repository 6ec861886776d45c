"""How fast ViT-Adapter can be: eager, compiled layers, CUDA graphs, both; where time goes.

Sides of a line are timed in turns in one process. 'layers' compiles each layer of the ViT, each injector and each
extractor in place; 'graphs' captures the complete work as one CUDA graph; heads and losses are no part of either.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from benchmarks.checks import Check, Found, Options
from benchmarks.checks.cost import settings_of
from benchmarks.comparison import BACKWARD, STEP, WORKS, Comparison, Settings, doing, step_work
from benchmarks.measure import measure
from benchmarks.models import adapter
from benchmarks.public import public_adapter
from mmlape.lab.engine.compiling import allow_variants

CASES = (('deit-small', 4, 1024), ('deit-small', 2, 512), ('deit-tiny', 8, 1024), ('deit-tiny', 2, 512))
"""Size of the model, images, side; two of 512 are the batch of the recipes."""
GOALS = {1024: {'graphs': (0.45, 0.5), 'layers and graphs': (0.40, 0.5)}, 512: {'layers and graphs': (0.40, 1.0)}}
"""Ratios to the public code in time and memory, by side and mode."""
LAPE = {'LaPE': (1.01, 1.01)}
LONGEST = 40
"""Kernels in the table."""
KINDS = {
    'deformable attention': ('msda', 'deform'),
    'attention': ('flash', 'fmha', 'attention', 'cudnn_generated_fort_native_sdpa'),
    'convolutions': ('conv', 'wgrad', 'dgrad', 'implicit'),
    'products': ('gemm', 'cutlass', 'nvjet', 'cublas', 'splitk'),
    'batch norms': ('batch_norm', 'bn_', 'batchnorm'),
    'norms': ('layer_norm', 'layernorm', 'gammabeta', 'rownorm'),
    'copies': ('copy', 'cat', 'memcpy', 'memset', 'transpose'),
    'compiled': ('triton_',),
    'elementwise': ('elementwise', 'vectorized', 'reduce', 'softmax', 'foreach'),
}
"""What a kernel's name has, by kind; the first that fits counts."""


def checks(options: Options) -> list[Check]:
    """Return the comparisons, the goals first, then LaPE in each mode and the tables."""
    cases = (('mini', 2, 64),) if options.quick else CASES
    modes = ('eager', 'layers') if options.device == 'cpu' else tuple(MODES)
    dtype = 'fp32' if options.device == 'cpu' else 'bf16'  # CPUs emulate bf16
    compared, lape, tables = [], [], []
    for arch, batch, size in cases:
        settings = settings_of(options, dtype, arch, batch, size)
        head = settings.title('ViT-Adapter')
        for work in (BACKWARD,) if options.quick else (BACKWARD, 'forward', STEP):
            compared.append(_check(_modes(settings, modes, work), settings))
        for mode in modes:
            sides = {'default': partial(_work, settings, mode, STEP)}
            sides['LaPE'] = partial(_work, settings, mode, STEP, pe_joining='lape')
            lape.append(_check(Comparison(f'{head}: LaPE over default, {mode}, {STEP}', sides, LAPE), settings))
        tables.append(Check(f'{head}: longest kernels, {BACKWARD}', partial(_kernels, settings)))
    return [*compared[:1], *tables[:1], *lape[:4], *compared[1:], *lape[4:], *tables[1:]]


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


def _as_is(value):
    return value


MODES = {
    'eager': (_as_is, _as_is),
    'layers': (compile_layers, _as_is),
    'graphs': (_as_is, captured),
    'layers and graphs': (compile_layers, captured),
}
"""What is done to the model, and to the work, by mode."""


def _work(settings: Settings, mode: str, work: str, **changes) -> Callable[[], object]:
    """Return a piece of work in a mode."""
    of_model, of_work = MODES[mode]
    model = adapter(settings, **changes)
    if of_model is compile_layers:
        compile_layers(model, 'inductor' if settings.device == 'cuda' else 'aot_eager')
    images = settings.inputs()
    if of_work is captured and work == STEP:  # an optimiser whose step a graph can hold
        return captured(step_work(model, images, settings, capturable=True))
    return of_work(WORKS[work](model, images, settings))


def _modes(settings: Settings, modes: tuple[str, ...], work: str) -> Comparison:
    """Compare the modes, over the public code where it is given."""
    name = f'{settings.title("ViT-Adapter")}: modes, {work}'
    sides = {mode: partial(_work, settings, mode, work) for mode in modes}
    if not settings.public:
        return Comparison(name, sides)
    public = doing(settings, work, lambda: public_adapter(settings, adapter(settings).state_dict()))
    return Comparison(name, {'public code': public, **sides}, GOALS[settings.size] if work == BACKWARD else {})


def kind_of(kernel: str) -> str:
    """Return the kind of a kernel by its name."""
    name = kernel.lower()
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), 'other')


def _kernels(settings: Settings) -> Found:
    """Profile eager work: the sum by kind of kernel, and the longest with the module that launched them."""
    model = adapter(settings, pe_joining='lape')
    names = {module: name for name, module in model.named_modules()}
    for module in names:
        module.register_forward_pre_hook(_enter(names[module]))
        module.register_forward_hook(_leave, always_call=True)
    work = WORKS[BACKWARD](model, settings.inputs(), settings)
    for _ in range(2):
        work()
    on_gpu = settings.device == 'cuda'
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if on_gpu else []
    with torch.profiler.profile(activities=activities) as profile:
        work()
        if on_gpu:
            torch.cuda.synchronize()
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in profile.events():
        if on_gpu:
            for kernel in event.kernels:
                found[kernel.name, _module_of(event)].append(kernel.duration / 1e3)
        elif event.name.startswith('aten::') and event.self_cpu_time_total:  # a trial: operations for kernels
            found[event.name, _module_of(event)].append(event.self_cpu_time_total / 1e3)
    rows = [
        dict(kernel=kernel[:120], module=module, kind=kind_of(kernel), count=len(times), ms=round(sum(times), 3))
        for (kernel, module), times in found.items()
    ]
    rows.sort(key=lambda row: -row['ms'])
    by_kind: dict[str, float] = defaultdict(float)
    for row in rows:
        by_kind[row['kind']] += row['ms']
    total, count = sum(by_kind.values()), sum(row['count'] for row in rows)
    shares = ', '.join(f'{kind} {ms:.3g} ms' for kind, ms in sorted(by_kind.items(), key=lambda item: -item[1]))
    values = dict(by_kind=dict(by_kind), longest=rows[:LONGEST], kernels=count, ms=total)
    return Found(total > 0, f'{count} kernels of {total:.3g} ms: {shares}', values)


PREFIX = 'module: '


def _enter(name: str) -> Callable:
    def hook(module: nn.Module, args: tuple) -> None:
        module._entered = torch.profiler.record_function(PREFIX + name)
        module._entered.__enter__()

    return hook


def _leave(module: nn.Module, args: tuple, out: object) -> None:
    module._entered.__exit__(None, None, None)


def _module_of(event) -> str:
    """Return the module that an operation of the profile ran in; of the backward there is only that it is one."""
    at = event
    while at is not None:
        if at.name.startswith(PREFIX):
            return _generic(at.name.removeprefix(PREFIX))
        if at.name.startswith('autograd::engine'):
            return f'backward: {at.name.rpartition(" ")[2]}'
        at = at.cpu_parent
    return ''


def _generic(name: str) -> str:
    """Return a module's name with * for the numbers of layers, so that equal ones are one row."""
    return '.'.join('*' if part.isdigit() else part for part in name.split('.'))
