"""Peak memory of what other suites time, each side in a fresh process; of suites named beside it, theirs alone."""

import dataclasses

from benchmarks.comparison import Comparison, Settings

SOURCES = (
    'joining', 'position', 'public', 'adapter', 'foundation', 'swin', 't2t', 'ceit', 'compact', 'deform', 'modes',
    'models', 'recipes',
)  # fmt: skip


def comparisons(settings: Settings) -> list[Comparison]:
    """Return those marked for it, at the largest of the sizes only."""
    from benchmarks.suites import comparisons as listed

    largest = dataclasses.replace(settings, sizes=(max(settings.sizes),))
    return [comparison for name in SOURCES for comparison in listed(name, largest) if comparison.memory]
