"""How properties run: the same examples each time, and nothing is kept on disk."""

import copy
from functools import partial

from hypothesis import HealthCheck, Phase, settings

examples = partial(
    settings,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=(HealthCheck.function_scoped_fixture, HealthCheck.too_slow),
)
"""``@examples(max_examples=50)`` above ``@given(...)``.

A failure is shown as it is found: to make an example smaller takes minutes.
"""


VALUES = (
    None, True, 0, 1, -1, 7.5, -7.5, 10**30, 10**290, 1e300, float('nan'), float('inf'), '', 'text', '7', '\x1b[2J\n',
    [], [1], ['a'], [None], {}, {'a': 1}, {'a': {}}, {'': None}, [[[]]],
)  # fmt: skip
"""Of JSON."""


def places(content, place=()):
    """Yield the way to every value inside."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in inner:
        yield (*place, name)
        yield from places(value, (*place, name))


def with_value(content, place, value):
    changed = copy.deepcopy(content)
    inside = changed
    for name in place[:-1]:
        inside = inside[name]
    inside[place[-1]] = value
    return changed
