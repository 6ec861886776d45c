"""Time and memory of ViT-Adapter and ViT, side by side in one run: medians by CUDA events, peak of torch's allocator.

The first line measures what the card can do; later ones give the shares of its matrix rate and bandwidth that a side
reaches, and for how long its kernels run in one more round. A line with a goal fails if it is missed for certain, that
is by all of the 95 % interval of the ratio.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from unittest import mock

import torch
from torch import nn

from benchmarks import floor
from benchmarks.agreement import forget_directions
from benchmarks.checks import Check, Found, Options, reason
from benchmarks.checks.compiling import compiled
from benchmarks.comparison import WORKS, Settings, free
from benchmarks.models import adapter, vit
from benchmarks.peers import timm_vit
from benchmarks.public import public_adapter
from benchmarks.timing import interleave, ratio, spread
from mmlape.models.adapter import deform_attn

BACKWARD = 'forward + backward'
STEP = 'training step'
# ratios to the first side, in time and in memory, that are the goals
LAPE = {'LaPE': (1.005, 1.0025)}
DUAL = {'Dual PatchNorm': (1.01, 1.01)}
OURS = {'mmlape': (0.5, 0.6)}
BATCH = {'deit-tiny': 8, 'deit-small': 4, 'deit-base': 2}
"""Images of 1024 x 1024; four times as many of 512 x 512."""


def checks(options: Options) -> list[Check]:
    """Return the rates of the card, then comparisons, the goals first."""
    found = [Check('matrix rate and bandwidth', partial(_rates, options))]
    largest: list[Settings] = []
    archs = ('mini',) if options.quick else ('deit-small', 'deit-tiny', 'deit-base')
    sizes = (64,) if options.quick else (1024, 512)
    for size in sizes:
        for dtype in ('fp32',) if options.quick else ('bf16', 'fp32'):
            for arch in archs:
                batch = 2 if options.quick else BATCH[arch] * (1024 // size) ** 2
                settings = Settings(
                    options.device, (dtype,), (size,), arch, batch,
                    checkouts={'vit-adapter': options.public} if options.public else {},
                )  # fmt: skip
                found += _comparisons(options, settings)
                if size == 1024 and dtype == 'bf16':
                    largest.append(settings)
        if options.quick:
            break
    return found + [_compiled(options, settings) for settings in largest]


def _comparisons(options: Options, settings: Settings) -> list[Check]:
    """Return the checks of one size, arch and dtype."""
    (size,), (dtype,) = settings.sizes, settings.dtypes

    def ours(**changes) -> Callable[[], nn.Module]:
        return partial(adapter, settings, **_heads(settings), **changes)

    lape = {'default': ours(), 'LaPE': ours(pe_joining='lape')}
    dual = {'plain stem': ours(), 'Dual PatchNorm': ours(patch_norm='dual')}
    bases = {
        "timm's plain ViT": lambda: timm_vit(settings, size, vit(settings, size).state_dict()),
        'our plain ViT': partial(vit, settings, size),
        'ViT-Adapter': ours(),
        'ViT-Adapter, PyTorch attention': lambda: PlainAttention(ours()()),
    }
    public = {'public code': lambda: public_adapter(settings, ours()().state_dict()), 'mmlape': ours()}
    cases: list[tuple[str, dict, str, dict]] = [
        ('LaPE over default', lape, STEP, LAPE),
        ("beside timm's plain ViT and PyTorch attention", bases, BACKWARD, {}),
        ("beside timm's plain ViT and PyTorch attention", bases, 'forward', {}),
        ('Dual PatchNorm over plain', dual, STEP, DUAL),
    ]
    if settings.checkouts:
        cases[:0] = [('mmlape over the public code', public, work, OURS) for work in (BACKWARD, 'forward')]
    if options.quick:
        cases = cases[:2]
    head = f'ViT-Adapter, {settings.arch}, {settings.shape(size)}, {dtype}'
    return [
        Check(f'{head}: {name}, {work}', partial(_compare, options, settings, sides, work, goals))
        for name, sides, work, goals in cases
    ]


def _compiled(options: Options, settings: Settings) -> Check:
    """Return the check of a compiled adapter beside the same in eager mode; its first round takes a minute or two."""
    (size,), (dtype,) = settings.sizes, settings.dtypes
    eager = partial(adapter, settings, **_heads(settings))
    sides = {'eager': eager, 'compiled': lambda: compiled(eager(), 'inductor')}
    name = f'ViT-Adapter, {settings.arch}, {settings.shape(size)}, {dtype}: torch.compile over eager, {BACKWARD}'
    return Check(name, partial(_compare, options, settings, sides, BACKWARD, {}))


def _heads(settings: Settings) -> dict:
    return dict(deform_num_heads=3) if settings.arch == 'mini' else {}


class PlainAttention(nn.Module):
    """An adapter whose deformable attention is PyTorch's sampling."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, images):
        with _plain_attention():
            return self.model(images)


@contextmanager
def _plain_attention() -> Iterator[None]:
    with mock.patch.object(deform_attn, 'available_backends', lambda *args: ['pytorch']):
        yield


@cache
def _measured(device: str, dtype: str, quick: bool) -> dict[str, float]:
    return floor.rates(device, dtype, quick)


def _rates(options: Options) -> Found:
    found = {dtype: _measured(options.device, dtype, options.quick) for dtype in ('bf16', 'fp32')}
    parts = [f'{dtype} {rates["matrix"] / 1e12:.3g} TFLOP/s' for dtype, rates in found.items()]
    figure = f'{", ".join(parts)}; {found["bf16"]["bandwidth"] / 1e9:.4g} GB/s read and written in a copy'
    return Found(all(value > 0 for rates in found.values() for value in rates.values()), figure, found)


def _compare(options: Options, settings: Settings, sides: dict, work: str, goals: dict) -> Found:
    """Compare models, built by the sides, at a piece of work."""
    (size,), (dtype,) = settings.sizes, settings.dtypes

    def doing(build: Callable[[], nn.Module]) -> Callable[[], Callable]:
        return lambda: WORKS[work](build(), settings.inputs(size), settings, dtype)

    return compare(options, settings, {name: doing(build) for name, build in sides.items()}, work, goals)


def compare(options: Options, settings: Settings, sides: dict, work: str, goals: dict) -> Found:
    """Time the sides in turns; a side that does not run fails the check, and the others are measured all the same.

    Each builds what it does once.
    """
    (size,), (dtype,) = settings.sizes, settings.dtypes
    works, failed, memory = {}, {}, {}
    for name, build in sides.items():
        try:
            forget_directions()  # so that each side's peak has its own
            start = allocated(settings.device)
            works[name] = build()
            works[name]()
            allocated(settings.device)  # so that what compiling and choosing kernels take is not counted
            works[name]()
            memory[name] = (allocated(settings.device, peak=True) - start) / 2**20 or None
        except Exception as error:
            works.pop(name, None)
            failed[name] = reason(error)
    counts = {name: _counted(run) | _kernels(run, settings.device) for name, run in works.items()}
    rounds = (3, 1.0) if options.quick else (15, 4.0)
    samples = dict(zip(works, interleave(list(works.values()), settings.device, *rounds, warm_up=1)))
    works.clear()
    free(settings.device)
    rates = _measured(settings.device, dtype, options.quick)
    return judged(samples, memory, counts, rates, goals, failed, settings.images(size), work)


def allocated(device: str, peak: bool = False) -> int:
    """Return the bytes that torch has allocated, or had at most since the last call; 0 on the CPU."""
    if device != 'cuda':
        return 0
    torch.cuda.synchronize()
    if peak:
        return torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _kernels(work: Callable, device: str) -> dict:
    """Return how many kernels a piece of work runs, and their seconds together; nothing where they cannot be seen."""
    if device != 'cuda':
        return {}
    torch.cuda.synchronize()
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            work()
            torch.cuda.synchronize()
    except RuntimeError:  # a profiler that may not run here costs no line
        return {}
    found = [
        event
        for event in profile.key_averages()
        if event.self_device_time_total
        and not event.is_user_annotation
        and not event.key.startswith(('Memcpy', 'Memset'))
    ]
    seconds = sum(event.self_device_time_total for event in found) / 1e6
    return dict(kernels=sum(event.count for event in found), kernel_seconds=seconds) if found else {}


def _counted(work: Callable) -> dict:
    """Return FLOPs and bytes of a piece of work; nothing where an operation cannot be counted."""
    try:
        return floor.count(work)
    except Exception:
        return {}


def judged(
    samples: dict[str, list[float]],
    memory: dict[str, float | None],
    counts: dict[str, dict],
    rates: dict[str, float],
    goals: dict[str, tuple[float, float]],
    failed: dict[str, str],
    images: int,
    work: str,
) -> Found:
    """Judge a comparison: every side ran, and the goals are not missed for certain."""
    texts, missed, values = [], [f'{name}: {why}' for name, why in failed.items()], {}
    reference = next(iter(samples), None)
    for name, seconds in samples.items():
        median = spread(seconds)['median']
        text = f'{name} {1e3 * median:.4g} ms'
        found = dict(seconds=seconds, median=median, images_per_second=images / median, memory_mib=memory[name])
        text += f' = {found["images_per_second"]:.4g}/s'
        if name != reference:
            found['ratio'] = ratio(seconds, samples[reference], paired=True)
            text += f' ({found["ratio"]["value"]:.3f})'
        if memory[name] is not None:
            text += f', {memory[name]:.0f} MiB'
            if name != reference and memory[reference]:
                found['memory_ratio'] = memory[name] / memory[reference]
                text += f' ({found["memory_ratio"]:.4f})'
        if 'kernels' in counts[name]:
            found |= {key: counts[name][key] for key in ('kernels', 'kernel_seconds')}
            text += f', {found["kernels"]} kernels of {1e3 * found["kernel_seconds"]:.4g} ms'
            if name != reference and values[reference].get('kernel_seconds'):
                found['kernel_ratio'] = found['kernel_seconds'] / values[reference]['kernel_seconds']
                text += f' ({found["kernel_ratio"]:.3f})'
        if 'flops' in counts[name]:
            found['of_matrix_rate'] = counts[name]['flops'] / median / rates['matrix']
            found['of_bandwidth'] = counts[name]['bytes'] / median / rates['bandwidth']
            text += f', {found["of_matrix_rate"]:.0%} matrix, {found["of_bandwidth"]:.0%} bandwidth'
        texts.append(text)
        values[name] = found
        if name in goals and 'ratio' in found:
            missed += _missed(name, found, *goals[name])
    return Found(bool(samples) and not missed, '; '.join([*missed, *texts]), values)


def _missed(name: str, found: dict, time_goal: float, memory_goal: float) -> list[str]:
    low = found['ratio']['low']
    missed = []
    if low is not None and low > time_goal:
        missed.append(f'{name} misses {time_goal:g} in time')
    if found.get('memory_ratio', 0.0) > memory_goal:
        missed.append(f'{name} misses {memory_goal:g} in memory')
    return missed
