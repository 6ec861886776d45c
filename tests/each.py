"""Many cases in one test: a contract is one test, whatever number of things it is about."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch

Case = TypeVar('Case')


def each(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield the cases, each with the seed that a test begins with.

    pytest shows what was printed beside a failure: the case that failed is the last one.
    """
    found = False
    for case in cases:
        found = True
        torch.manual_seed(0)
        print(f'case: {case}')
        yield case
    assert found, 'there is no case'
