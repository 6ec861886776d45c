"""Time and memory of ViT-Adapter and ViT, side by side in one run: medians by CUDA events, peak of torch's allocator.

Each line also says for how long the kernels of a side run in one more round. A line with a goal fails if it is missed
for certain, that is by all of the 95 % interval of the ratio.
"""

from functools import partial

from benchmarks.checks import Check, Options
from benchmarks.comparison import Settings
from benchmarks.measure import measure
from benchmarks.suites.adapter import comparisons

BATCH = {'deit-tiny': 8, 'deit-small': 4, 'deit-base': 2}
"""Images of 1024 x 1024; four times as many of 512 x 512."""


def checks(options: Options) -> list[Check]:
    """Return comparisons, the goals first."""
    if options.quick:
        cases = [settings_of(options, 'fp32', 'mini', 2, 64)]
    else:
        cases = [
            settings_of(options, dtype, arch, batch * (1024 // size) ** 2, size)
            for size in (1024, 512)
            for dtype in ('bf16', 'fp32')
            for arch, batch in BATCH.items()
        ]
    lines = []
    for settings in cases:
        compared = comparisons(settings)[: 2 if options.quick else None]
        lines += [Check(one.name, partial(measure, one, settings)) for one in compared]
    return lines


def settings_of(options: Options, dtype: str, arch: str, batch: int, size: int) -> Settings:
    """Return what a line measures, and how often."""
    repeats, budget = (3, 1.0) if options.quick else (15, 4.0)
    return Settings(options.device, dtype, size, arch, batch, repeats, budget, options.public)
