"""Print what keeps this version from being released, for `make dist`; TAG is the tag, where there is one."""

import os
import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]


def problems(root: Path = ROOT, tag: str = '') -> list[str]:
    """Return a line for each place that names another version, and with a tag, for what a release lacks."""
    version = re.search(r"^__version__ = '(.*)'$", (root / 'mmlape' / '__init__.py').read_text(), re.M)[1]
    cited = str(yaml.safe_load((root / 'CITATION.cff').read_text())['version'])
    section = re.search(r'^## (\S+) \((.*)\)$', (root / 'CHANGELOG.md').read_text(), re.M)
    found = []
    if cited != version:
        found.append(f'CITATION.cff has version {cited}, mmlape/__init__.py {version}')
    if section is None or section[1] != version:
        found.append(f'the first section of CHANGELOG.md is not "## {version} (DATE)"')
    if tag and tag != f'v{version}':
        found.append(f'the tag {tag} is not v{version}, the version of mmlape/__init__.py')
    if tag and section and not re.fullmatch(r'\d{4}-\d\d-\d\d', section[2]):
        found.append(f'CHANGELOG.md: give {section[1]} its date in the place of "{section[2]}"')
    return found


if __name__ == '__main__':
    sys.exit('\n'.join(problems(tag=os.environ.get('TAG', ''))) or 0)
