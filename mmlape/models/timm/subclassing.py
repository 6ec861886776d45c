"""Modules of timm that are changed in place.

They get a subclass of their own class, and keep their parameters.
"""

from functools import cache

from torch import nn


class Subclassed:
    """What such a subclass derives from first.

    Copies, pickles and averages of weights are of the subclass too.
    """

    plain: type  # the module's own class, whose methods still do the work
    change: type  # the class that was put before it

    def __reduce__(self):
        """Name the two classes instead of the subclass, which no module has under its name."""
        return _empty, (self.change, self.plain), self.__dict__


class Proxy:
    """A module for the time of one forward: timm's methods get it as ``self``.

    What it lacks is the module's own.
    """

    def __init__(self, module: nn.Module):
        self.module = module

    def __getattr__(self, name: str):
        return getattr(self.module, name)


@cache
def subclass(change: type, plain: type) -> type:
    """Return the class that has the methods of ``change`` before those of ``plain``."""
    attributes = {'plain': plain, 'change': change, '__module__': plain.__module__, '__doc__': change.__doc__}
    return type(f'{change.__name__}{plain.__name__}', (change, plain), attributes)


def _empty(change: type, plain: type) -> nn.Module:
    changed_class = subclass(change, plain)
    return object.__new__(changed_class)
