"""How fast ViT-Adapter can be: eager, compiled layers, CUDA graphs, both; libraries' kernels; where time goes.

Sides of a line are timed in turns in one process. 'layers' compiles each layer of the ViT, each injector and each
extractor in place; 'graphs' captures the complete work as one CUDA graph; heads and losses are no part of either.
'deformops' softmax' gives the logits of the samples to the kernel, which norms them itself. 'cuDNN' is its attention.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.checks import Check, Found, NotRunError, Options
from benchmarks.checks.cost import BACKWARD, STEP, compare
from benchmarks.comparison import WORKS, Settings
from benchmarks.models import adapter
from benchmarks.public import public_adapter
from mmlape.lab.engine.compiling import allow_variants
from mmlape.models.adapter import deform_attn

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
    """Return the comparisons, the goals first, then LaPE in each mode, the libraries' kernels and the tables."""
    cases = (('mini', 2, 64),) if options.quick else CASES
    modes = ('eager', 'layers') if options.device == 'cpu' else tuple(MODES)
    dtype = 'fp32' if options.device == 'cpu' else 'bf16'  # CPUs emulate bf16
    compared, lape, kernels, tables = [], [], [], []
    for arch, batch, size in cases:
        settings = Settings(
            options.device, (dtype,), (size,), arch, batch,
            checkouts={'vit-adapter': options.public} if options.public else {},
        )  # fmt: skip
        head = f'ViT-Adapter, {arch}, {settings.shape(size)}, {dtype}'
        for work in (BACKWARD,) if options.quick else (BACKWARD, 'forward', STEP):
            compared.append(Check(f'{head}: modes, {work}', partial(_modes, options, settings, modes, work)))
        for mode in modes:
            lape.append(Check(f'{head}: LaPE over default, {mode}, {STEP}', partial(_lape, options, settings, mode)))
        if options.device == 'cuda':
            kernels.append(Check(f'{head}: kernels of libraries, {BACKWARD}', partial(_libraries, options, settings)))
        tables.append(Check(f'{head}: longest kernels, {BACKWARD}', partial(_kernels, options, settings)))
    return [*compared[:1], *tables[:1], *lape[:4], *kernels[:1], *compared[1:], *lape[4:], *kernels[1:], *tables[1:]]


def _model(settings: Settings, **changes) -> nn.Module:
    heads = dict(deform_num_heads=3) if settings.arch == 'mini' else {}
    return adapter(settings, **heads, **changes)


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


def _work(options: Options, settings: Settings, mode: str, work: str, **changes) -> Callable[[], object]:
    """Return a piece of work in a mode."""
    of_model, of_work = MODES[mode]
    (size,), (dtype,) = settings.sizes, settings.dtypes
    model = _model(settings, **changes)
    if of_model is compile_layers:
        compile_layers(model, 'inductor' if options.device == 'cuda' else 'aot_eager')
    done = WORKS[work](model, settings.inputs(size), settings, dtype)
    if of_work is captured and work == STEP:  # an optimiser whose step a graph can hold
        done = _graphed_step(model, settings, size)
    return of_work(done)


def _graphed_step(model: nn.Module, settings: Settings, size: int) -> Callable[[], object]:
    run = WORKS[BACKWARD](model, settings.inputs(size), settings, settings.dtypes[0])
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-6, capturable=True)

    def work() -> None:
        run()
        optimiser.step()

    return work


def _modes(options: Options, settings: Settings, modes: tuple[str, ...], work: str) -> Found:
    (size,) = settings.sizes
    sides = {mode: partial(_work, options, settings, mode, work) for mode in modes}
    goals = {}
    if settings.checkouts:

        def public() -> Callable[[], object]:
            model = public_adapter(settings, _model(settings).state_dict())
            return WORKS[work](model, settings.inputs(size), settings, settings.dtypes[0])

        sides = {'public code': public, **sides}
        goals = GOALS[size] if work == BACKWARD else {}
    return compare(options, settings, sides, work, goals)


def _lape(options: Options, settings: Settings, mode: str) -> Found:
    sides = {
        'default': partial(_work, options, settings, mode, STEP),
        'LaPE': partial(_work, options, settings, mode, STEP, pe_joining='lape'),
    }
    return compare(options, settings, sides, STEP, LAPE)


@contextmanager
def softmax_in_deformops() -> Iterator[None]:
    """Give deformops the logits of the samples, which it norms itself."""
    msda, why = deform_attn._load_backend('deformops')
    if msda is None:
        raise NotRunError(why)

    def logits(value: Tensor, samples: tuple[int, int, int]) -> Tensor:
        return value.unflatten(-1, samples)

    with (
        mock.patch.object(deform_attn, 'sample_weights', logits),
        mock.patch.object(deform_attn, '_load_backend', lambda name: (partial(msda, method='softmax'), '')),
    ):
        yield


@contextmanager
def cudnn_attention() -> Iterator[None]:
    """Let cuDNN compute what attention it can."""
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(order, set_priority=True):
        yield


LIBRARIES: dict[str, tuple] = {
    'as it is': (),
    "deformops' softmax": (softmax_in_deformops,),
    'cuDNN': (cudnn_attention,),
    'both': (softmax_in_deformops, cudnn_attention),
}


def _libraries(options: Options, settings: Settings) -> Found:
    """Compare kernels of the libraries; a compiled graph of both is what they are worth together."""

    def side(contexts: tuple, mode: str) -> Callable[[], object]:
        def inside(work: Callable) -> Callable[[], object]:
            def run() -> object:
                with ExitStack() as stack:
                    for context in contexts:
                        stack.enter_context(context())
                    return work()

            return run

        with ExitStack() as stack:  # a graph is captured in here
            for context in contexts:
                stack.enter_context(context())
            return inside(_work(options, settings, mode, BACKWARD))

    sides = {name: partial(side, contexts, 'eager') for name, contexts in LIBRARIES.items()}
    sides['both, layers and graphs'] = partial(side, LIBRARIES['both'], 'layers and graphs')
    return compare(options, settings, sides, BACKWARD, {})


def kind_of(kernel: str) -> str:
    """Return the kind of a kernel by its name."""
    name = kernel.lower()
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), 'other')


def _kernels(options: Options, settings: Settings) -> Found:
    """Profile eager work: the sum by kind of kernel, and the longest with the module that launched them."""
    (size,) = settings.sizes
    model = _model(settings, pe_joining='lape')
    names = {module: name for name, module in model.named_modules()}
    for module in names:
        module.register_forward_pre_hook(_enter(names[module]))
        module.register_forward_hook(_leave, always_call=True)
    work = WORKS[BACKWARD](model, settings.inputs(size), settings, settings.dtypes[0])
    for _ in range(2):
        work()
    on_gpu = options.device == 'cuda'
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
