"""Many cases in one test: a contract is one test, whatever number of things it is about."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch

Case = TypeVar('Case')


def each(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield the cases, each with the seed that a test begins with; pytest shows the last one printed beside a failure."""
    count = 0
    for count, case in enumerate(cases, 1):
        torch.manual_seed(0)
        print(f'case: {case}')
        yield case
    assert count, 'there is no case'
