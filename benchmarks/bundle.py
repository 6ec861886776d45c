"""The packages of the stack in a folder for a machine that has torch, torchvision and timm alone: `make gpu-bundle`.

python -m benchmarks.bundle [FOLDER]

They are copied from this environment, in the versions of the lock. Compiled packages stay out above a size: OpenCV,
SciPy, matplotlib, pandas. The machine's own are used where it has them; `benchmarks.checks.stand_ins` replaces others.
"""

import argparse
import re
import shutil
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePath

from packaging.requirements import Requirement

from mmlape.errors import MMLaPEError, StackError
from mmlape.lab.environment import locked

ROOTS = (
    'onedl-mmengine', 'onedl-mmcv', 'onedl-mmdetection', 'onedl-mmsegmentation', 'onedl-mmpretrain', 'deformops',
    'einops', 'ftfy', 'pycocotools', 'rich', 'portalocker',
)  # fmt: skip
THERE = ('torch', 'torchvision', 'timm', 'numpy', 'pillow')
"""What the machine has, with all that they require."""
LARGEST_COMPILED = 4 * 2**20
"""Bytes of a compiled package that travels; it serves this Python and platform only."""
LIMIT = 64 * 2**20
"""Bytes of the folder."""
LEFT_OUT = re.compile(r'(^|/)(__pycache__|tests?)(/|$)|\.(pyi|h|cpp|cu|cuh|hpp)$')
"""Files that nothing imports."""


def bundle(folder: Path) -> tuple[list[str], list[str]]:
    """Write the folder anew.

    Returns:
        The packages in it, and those left out because they are compiled and large.

    Raises:
        StackError: A package is missing or not the lock's; the folder holds something else, or is too large.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / 'mmengine').is_dir():
        raise StackError(f'{folder} holds something else: name an empty folder, or one that does not exist')
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    there = set(_closure(THERE))
    copied, left_out = [], []
    for name, found in _closure(ROOTS, there).items():
        if found is None:
            left_out.append(name)
            continue
        if found.version not in locked().get(name, {found.version}):
            raise StackError(f'{name} {found.version} is not the version of the lock: run `make setup` first')
        copied.append(f'{name} {found.version}')
        for file in _files(found):
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target)
    size = sum(path.stat().st_size for path in folder.rglob('*') if path.is_file())
    if size > LIMIT:
        raise StackError(f'{folder} has {size / 2**20:.1f} MiB, more than {LIMIT / 2**20:.0f}')
    return copied, left_out


def _closure(roots: tuple[str, ...], there: set[str] = frozenset()) -> dict[str, Distribution | None]:
    """Return the packages that are required, without those in ``there``; None for one that is compiled and large."""
    found: dict[str, Distribution | None] = {}
    todo = list(roots)
    while todo:
        name = re.sub(r'[-_.]+', '-', todo.pop()).lower()
        if name in found or name in there:
            continue
        try:
            one = distribution(name)
        except PackageNotFoundError:
            if name in roots:
                raise StackError(f'{name} is not installed here: run `make setup` first') from None
            continue  # an optional name for another package, such as that of OpenCV with windows
        found[name] = None if there and _is_large(one) else one
        if found[name] is not None:
            required = [Requirement(text) for text in one.requires or []]
            todo += [need.name for need in required if need.marker is None or need.marker.evaluate({'extra': ''})]
    return found


def _files(found: Distribution) -> list:
    """Return the files of a package that are imported, or say what it is."""
    return [
        file
        for file in found.files or []
        if '..' not in PurePath(file).parts and not LEFT_OUT.search(str(file)) and Path(file.locate()).is_file()
    ]


def _is_large(found: Distribution) -> bool:
    files = _files(found)
    compiled = any('.so' in PurePath(file).suffixes for file in files)
    return compiled and sum(Path(file.locate()).stat().st_size for file in files) > LARGEST_COMPILED


def main(argv: list[str]) -> int:
    """Run the command line."""
    command = argparse.ArgumentParser('python -m benchmarks.bundle', description=__doc__.partition('\n')[0])
    command.add_argument('folder', nargs='?', default='work_dirs/gpu-bundle', help='default: %(default)s')
    folder = Path(command.parse_args(argv).folder)
    try:
        copied, left_out = bundle(folder)
    except MMLaPEError as error:
        print(f'bundle: error: {error}', file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 2**20
    print(f'{folder}: {len(copied)} packages, {size:.1f} MiB: {", ".join(copied)}')
    print(f'left out, because compiled and large: {", ".join(left_out)}')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
