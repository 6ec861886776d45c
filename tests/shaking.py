"""`pytest --shake`: the same tests where listings, clock, time zone and locale are others than a developer's.

- Listings of folders are in reverse: nothing says in which order a file system returns names.
- `time.time` falls by an hour with each call, and rises by a day after 24: clocks are set.
- The time zone is an odd one, with summer time.
- The locale is one of `LOCALES` that is installed: numbers with a comma, and text files that are not UTF-8 by default.

It holds for the process of the tests and for what that forks, not for the server of `forking_python.py`.
"""

import itertools
import locale
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TIME_ZONE = 'Pacific/Chatham'  # 12:45 or 13:45 from UTC
LOCALES = ('de_DE.ISO-8859-1', 'de_DE.ISO8859-1', 'de_DE', 'de_DE.UTF-8', 'C')
HOUR, STEPS = 3600, 24
TESTS = Path(__file__).resolve().parent


class Reversed:
    """What `os.scandir` returns, in reverse."""

    def __init__(self, entries: Iterator[os.DirEntry]) -> None:
        with entries:
            self.entries = iter(sorted(entries, key=lambda entry: entry.name, reverse=True))

    def __iter__(self) -> Iterator[os.DirEntry]:
        return self.entries

    def __next__(self) -> os.DirEntry:
        return next(self.entries)

    def __enter__(self) -> 'Reversed':
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: all entries are read."""


def start() -> None:
    """Shake this process from now on."""
    scandir, listdir, clock = os.scandir, os.listdir, time.time
    os.scandir = lambda *args: Reversed(scandir(*args))
    os.listdir = lambda *args: sorted(listdir(*args), reverse=True)
    for name in ('iterdir', 'glob', 'rglob'):  # which have kept the functions above, in some versions of Python
        setattr(Path, name, _reversed(getattr(Path, name)))
    for name in ('read_text', 'write_text'):
        setattr(Path, name, _in_utf8(getattr(Path, name)))
    calls = itertools.count()
    time.time = lambda: clock() - HOUR * (next(calls) % STEPS)
    os.environ['TZ'] = TIME_ZONE
    time.tzset()
    _set_locale()


def _reversed(method: Callable) -> Callable:
    return lambda *args, **options: iter(sorted(method(*args, **options), reverse=True))


def _in_utf8(method: Callable) -> Callable:
    """Return a method of paths that takes UTF-8 for granted where a test calls it, and only there."""

    def method_in_utf8(*args, **options):
        if Path(sys._getframe(1).f_code.co_filename).parent.parent == TESTS:
            options.setdefault('encoding', 'utf-8')
        return method(*args, **options)

    return method_in_utf8


def _set_locale() -> None:
    for name in LOCALES:
        try:
            locale.setlocale(locale.LC_ALL, name)
        except locale.Error:
            continue
        return
