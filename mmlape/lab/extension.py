"""What the laboratory asks of a package with models of its own, and nothing else of it.

A package offers one `Extension` by an entry point of the group ``mmlape.extensions``:

    [project.entry-points.'mmlape.extensions']
    mmlape = 'mmlape.extension:EXTENSION'

What it does not answer is answered as for plain OpenMMLab.
"""

import logging
from functools import cache
from importlib.metadata import entry_points

from mmlape.errors import shown
from mmlape.log import log

GROUP = 'mmlape.extensions'


class Extension:
    """The answers of plain OpenMMLab; a package overrides those that its models need otherwise.

    Attributes:
        counted: Beginnings of the dotted names of modules whose source decides results: what a run
            has imported of them is part of its identity.
    """

    counted: tuple[str, ...] = ()


@cache
def extensions() -> tuple[Extension, ...]:
    """Return the extensions of the installed packages, by the names of their entry points.

    One that cannot be imported is left out with a warning: the laboratory does without it.
    """
    found = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            found.append(point.load())
        except ImportError as error:
            log(f'extension {point.name} ({point.value}): {shown(error)}', logging.WARNING)
    return tuple(found)
