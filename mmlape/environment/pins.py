"""Reader of `requirements.txt`, the one place that holds versions; standard library only, so set-up can use it too."""

import re
from pathlib import Path

PINS_FILE = Path(__file__).resolve().parents[1] / 'requirements.txt'
_SECTION = re.compile(r'#\s*\[(\w+)\]')


def read_pins(path: Path = PINS_FILE) -> dict[str, list[str]]:
    """Read the pins by section.

    Args:
        path: A requirements file whose sections start with a comment `# [name] ...`.

    Returns:
        Requirement lines (with their markers) under the name of each section, in the order of the file.
    """
    sections: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in path.read_text(encoding='utf-8').splitlines():
        line = line.strip()
        if match := _SECTION.match(line):
            current = sections.setdefault(match[1], [])
        elif line and not line.startswith('#'):
            if current is None:
                raise ValueError(f'{path}: {line!r} stands before the first section')
            current.append(line)
    return sections


def pinned_version(name: str, path: Path = PINS_FILE) -> str:
    """Return the version that a distribution without markers is pinned to.

    Raises:
        KeyError: The distribution has no pin.
    """
    for lines in read_pins(path).values():
        for line in lines:
            if line.partition('==')[0] == name:
                return line.partition('==')[2].partition(';')[0].strip()
    raise KeyError(f'{path} has no pin for {name}')


# without debug information mmcv compiles twice as fast; the first variable has its ops compiled at all
MMCV_BUILD_ENV = {'MMCV_WITH_OPS': '1', 'CFLAGS': '-g0 -O2 -w'}
