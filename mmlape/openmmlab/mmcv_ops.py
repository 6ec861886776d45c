"""The ops of an mmcv that was installed without a compiler: `mmcv._ext` on torchvision's kernels.

What loads OpenMMLab for mmlape, as `mmlape.registry` does, lends them to its process. MM's own tools import mmdet
before that: `mmlape install-ops` is for them. A compiled extension goes before both.
"""

import importlib.util
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from mmlape.errors import StackError

NAME = 'mmcv._ext'
SOURCE = Path(__file__).with_name('mmcv_ext.py')
COMPILED, INSTALLED, LENT, MISSING = 'compiled', 'installed', 'lent', 'missing'


def lend_ops() -> None:
    """Let this process import `mmcv._ext` where mmcv has none; the module is executed on its first use.

    It imports torch, which must not be half imported: inspecting all modules, as torch does while it is, is a use.
    """
    if NAME in sys.modules or ops_in_use() != LENT:
        return
    # https://docs.python.org/3/library/importlib.html#implementing-lazy-imports
    spec = importlib.util.spec_from_file_location(NAME, SOURCE)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[NAME])


def mmcv_folder() -> Path:
    """Return the folder of the installed mmcv, without importing it.

    Raises:
        StackError: mmcv is not installed.
    """
    spec = importlib.util.find_spec('mmcv')
    if spec is None or not spec.submodule_search_locations:
        raise StackError(f'mmcv is not installed for {sys.executable}: pip install onedl-mmcv')
    return Path(next(iter(spec.submodule_search_locations)))


def ops_in_use() -> str:
    """Return whether `mmcv._ext` is 'compiled', 'installed' beside mmcv, 'lent' by mmlape, or 'missing'."""
    try:
        folder = mmcv_folder()
    except (StackError, ImportError, ValueError):  # hidden, or a stand-in, which has no spec
        return MISSING
    if any((folder / f'_ext{suffix}').exists() for suffix in EXTENSION_SUFFIXES):
        return COMPILED
    if (folder / '_ext.py').exists():
        return INSTALLED
    return LENT


def install_ops() -> Path:
    """Write the module into mmcv's folder, and return its path."""
    target = mmcv_folder() / '_ext.py'
    target.write_bytes(SOURCE.read_bytes())
    return target


def remove_ops() -> Path:
    """Delete the module from mmcv's folder, and return its path.

    Raises:
        StackError: There is none, or the file there is not ours.
    """
    target = mmcv_folder() / '_ext.py'
    if not target.exists():
        raise StackError(f'{target}: there is nothing to remove')
    if 'FROM_WHEELS' not in target.read_text(encoding='utf-8', errors='replace'):
        raise StackError(f'{target} was not written by `mmlape install-ops`: it stays; delete it by hand')
    target.unlink()
    return target
