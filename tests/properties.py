"""How properties run: the same examples each time, and nothing is kept on disk."""

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
