"""Numbers as the tables of averages and reports print them."""

from collections.abc import Mapping

from mmlape.experiments.statistics import Difference

DASH = '–'


def number(value: float | None, form: str = '.2f') -> str:
    """Return a number as text; a dash for None."""
    return DASH if value is None else f'{value:{form}}'


def probability(p: float | None) -> str:
    """Return a p value as text."""
    return '< 0.001' if p is not None and p < 0.001 else number(p, '.3f')


def interval(entry: Mapping | Difference | None, form: str = '.2f') -> str:
    """Return the interval of an average or of a difference, or the reason why there is none."""
    if entry is None:
        return DASH
    fields = vars(entry) if isinstance(entry, Difference) else entry
    if fields['low'] is None:
        return f'none, {fields["note"]}'
    return f'{number(fields["low"], form)} to {number(fields["high"], form)}'


def mean_std(entry: Mapping | None) -> str:
    """Return '67.75 ± 0.94'; without the deviation for a single run."""
    if entry is None or entry['mean'] is None:
        return DASH
    return number(entry['mean']) + ('' if entry['std'] is None else f' ± {number(entry["std"])}')
