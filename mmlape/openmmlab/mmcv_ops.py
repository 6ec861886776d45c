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


def lend_ops() -> None:
    """Let this process import `mmcv._ext` where mmcv has none; the module is executed on its first use.

    It imports torch, which must not be half imported: inspecting all modules, as torch does while it is, is a use.
    """
    try:
        is_there = NAME in sys.modules or installed_ops()
    except (StackError, ImportError, ValueError):  # mmcv is hidden, or a stand-in, which has no spec
        return
    if is_there:
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


def installed_ops() -> Path | None:
    """Return the file of the ops in mmcv's folder, a compiled extension before `install_ops`'s; None if there is none.

    Raises:
        StackError: mmcv is not installed.
    """
    files = (mmcv_folder() / f'_ext{suffix}' for suffix in (*EXTENSION_SUFFIXES, '.py'))
    return next((file for file in files if file.exists()), None)


def install_ops() -> Path:
    """Write the module into mmcv's folder, and return its path."""
    target = mmcv_folder() / '_ext.py'
    target.write_bytes(SOURCE.read_bytes())
    return target
