"""Time and memory of ViT-Adapter and ViT, side by side in one run: medians by CUDA events, peak of torch's allocator.

The first line measures what the card can do; later ones give the shares of its matrix rate and bandwidth that a side
reaches, and for how long its kernels run in one more round. A line with a goal fails if it is missed for certain, that
is by all of the 95 % interval of the ratio.
"""

from functools import partial

from benchmarks.checks import Check, Found, Options
from benchmarks.checks.compiling import compiled
from benchmarks.comparison import BACKWARD, Settings, of_models
from benchmarks.measure import measure, rates
from benchmarks.models import adapter
from benchmarks.suites.adapter import comparisons

BATCH = {'deit-tiny': 8, 'deit-small': 4, 'deit-base': 2}
"""Images of 1024 x 1024; four times as many of 512 x 512."""


def checks(options: Options) -> list[Check]:
    """Return the rates of the card, then comparisons, the goals first, those with a compiler last."""
    if options.quick:
        cases = [settings_of(options, 'fp32', 'mini', 2, 64)]
    else:
        cases = [
            settings_of(options, dtype, arch, batch * (1024 // size) ** 2, size)
            for size in (1024, 512)
            for dtype in ('bf16', 'fp32')
            for arch, batch in BATCH.items()
        ]
    lines = [Check('matrix rate and bandwidth', partial(_rates, options))]
    compiling = [settings for settings in cases if settings.size == 1024 and settings.dtype == 'bf16']
    for settings in cases:
        compared = comparisons(settings)[: 2 if options.quick else None]
        lines += [Check(one.name, partial(measure, one, settings)) for one in compared]
    return lines + [_compiled(settings) for settings in compiling]


def settings_of(options: Options, dtype: str, arch: str, batch: int, size: int) -> Settings:
    """Return what a line measures, and how often."""
    repeats, budget = (3, 1.0) if options.quick else (15, 4.0)
    return Settings(options.device, dtype, size, arch, batch, repeats, budget, options.quick, options.public)


def _compiled(settings: Settings) -> Check:
    """Return the check of a compiled adapter beside the same in eager mode; its first round takes a minute or two."""
    eager = partial(adapter, settings)
    models = {'eager': eager, 'compiled': lambda: compiled(eager(), 'inductor')}
    (one,) = of_models(settings, f'{settings.title("ViT-Adapter")}: torch.compile over eager', models, (BACKWARD,))
    return Check(one.name, partial(measure, one, settings))


def _rates(options: Options) -> Found:
    reached = {dtype: rates(options.device, dtype, options.quick) for dtype in ('bf16', 'fp32')}
    parts = [f'{dtype} {of_dtype["matrix"] / 1e12:.3g} TFLOP/s' for dtype, of_dtype in reached.items()]
    figure = f'{", ".join(parts)}; {reached["bf16"]["bandwidth"] / 1e9:.4g} GB/s read and written in a copy'
    return Found(all(value > 0 for of_dtype in reached.values() for value in of_dtype.values()), figure, reached)
