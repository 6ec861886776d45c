"""The packages of the stack and what of them is installed; nothing is imported.

Each MM package has distributions with one import name: of the maintained fork, and the original's.
"""

import importlib.util
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True)
class Package:
    """A package of the stack."""

    module: str  # import name
    # names under which it is distributed: the pinned one, the original one, and what else has its
    # modules
    distributions: tuple[str, ...]
    oldest: str  # oldest supported version, which ``tests/floors.sh`` tests

    @property
    def installed(self) -> list[str]:
        """The distributions that are installed."""
        return [name for name in self.distributions if _version(name)]

    @property
    def original(self) -> str:
        """The requirement of the original distribution that needs no compiler and fits the others."""
        return f'mmcv-lite=={self.oldest}' if self.module == 'mmcv' else self.distributions[1]


SAFE_TORCH = '2.10.0'
"""The first torch in which ``weights_only=True`` keeps a checkpoint from corrupting memory
(CVE-2026-24747)."""

# torch: `fully_shard`, and weights_only=True that runs no code, which CVE-2025-32434 made it do up
# to 2.5.1; others: the oldest that were run with it (the wheel of mmseg 1.2.0 lacks a file;
# mmengine 0.10.0 resumes EMA weights wrongly)
PACKAGES = {
    package.module: package
    for package in (
        Package('torch', ('torch',), '2.6.0'),
        Package('torchvision', ('torchvision',), '0.21.0'),
        Package('mmengine', ('onedl-mmengine', 'mmengine'), '0.10.7'),
        Package('mmcv', ('onedl-mmcv', 'mmcv', 'mmcv-lite'), '2.1.0'),
        Package('mmdet', ('onedl-mmdetection', 'mmdet'), '3.2.0'),
        Package('mmseg', ('onedl-mmsegmentation', 'mmsegmentation'), '1.2.1'),
        Package('mmpretrain', ('onedl-mmpretrain', 'mmpretrain'), '1.1.0'),
        Package('timm', ('timm',), '0.9.2'),
    )
}

OF_OPENMMLAB = ('mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain')
EXPERIMENTS = (
    'jinja2', 'matplotlib', 'pandas', 'PIL', 'portalocker', 'rich', 'scipy', 'shtab', 'sklearn', 'statsmodels', 'yaml',
)  # fmt: skip
"""Modules of the extra [experiments]."""
CORE_LIBRARIES = ('numpy', 'packaging', 'safetensors')
"""Modules of the libraries that models and checkpoints import."""
LIBRARIES = (
    'addict', 'cv2', 'einops', 'ftfy', 'imageio', 'jinja2', 'mat4py', 'matplotlib', 'modelindex', 'numpy', 'onnx',
    'onnxruntime', 'onnxscript', 'packaging', 'pandas', 'PIL', 'prettytable', 'pycocotools', 'regex', 'rich',
    'safetensors', 'scipy', 'shapely', 'six', 'skimage', 'sklearn', 'statsmodels', 'tensorboard', 'termcolor',
    'terminaltables', 'tqdm', 'yaml', 'yapf',
)  # fmt: skip
"""Modules of the libraries that mmlape and the MM packages import."""


def is_original_stack() -> bool:
    """Return whether the MM packages that are installed are the original ones, beside which the fork's cannot be."""
    packages = [package for package in PACKAGES.values() if len(package.distributions) > 1]
    fork = any(_version(package.distributions[0]) for package in packages)
    return not fork and any(package.installed for package in packages)


def importable(module: str) -> bool:
    """Return whether Python finds a module, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def installed(module: str) -> tuple[str, str] | None:
    """Return the distribution and the version of an installed package of the stack, or None.

    A package that is on the path without having been installed (a checkout) has the version '?'.
    """
    if not importable(module):
        return None
    for name in PACKAGES[module].installed:
        return name, _version(name) or '?'
    return f'{module} (not installed, on the path only)', '?'


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
