"""Print what broke on other versions as Markdown: `python tests/broken.py build/stack.xml`.

The first table has the failed tests with the first line of their message, the second the packages whose versions here
are not the locked ones: one of them is the reason.
"""

import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

LOCK = Path(__file__).resolve().parents[1] / 'mmlape' / 'requirements.txt'


def failures(junit: Path) -> Iterator[tuple[str, str]]:
    """Yield name and message of each failed test of a report of pytest."""
    for case in ElementTree.parse(junit).iter('testcase'):
        for child in case:
            if child.tag in ('failure', 'error'):
                first = (child.get('message') or child.text or '').strip().split('\n')[0]
                yield f'{case.get("classname")}::{case.get("name")}', first[:200]


def changes(lock: str, installed: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield name, locked and installed version of each package that has another one; a lock may have one a Python."""
    found: dict[str, list[str]] = {}
    for name, locked in re.findall(r'^([\w.-]+)==([\w.+]+)', lock, re.M):
        found.setdefault(name, []).append(locked.partition('+')[0])
    for name, versions in sorted(found.items()):
        here = installed.get(_normalised(name), '').partition('+')[0]
        if here and here not in versions:
            yield name, ', '.join(versions), here


def _normalised(name: str) -> str:
    return re.sub(r'[-_.]+', '-', name).lower()


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table of Markdown, or 'none'."""
    cells = [[re.sub(r'([|<`])', r'\\\1', cell) for cell in row] for row in rows]
    lines = [f'| {" | ".join(row)} |' for row in (heads, ['---'] * len(heads), *cells)]
    return '\n'.join(lines) if rows else 'none'


if __name__ == '__main__':
    installed = {_normalised(one.metadata['Name']): one.version for one in metadata.distributions()}
    print(f'## What broke\n\n{table(("test", "message"), list(failures(Path(sys.argv[1]))))}\n')
    changed = list(changes(LOCK.read_text(), installed))
    print(f'## What is not as locked\n\n{table(("package", "locked", "here"), changed)}')
