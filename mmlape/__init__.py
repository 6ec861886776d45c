"""LaPE and Dual PatchNorm backbones, and a ViT-Adapter that carries both, for OpenMMLab.

Importing the package imports neither torch nor a model: the registries import models, datasets and hooks when a config
names them.
"""

from importlib import import_module

from mmlape.mim import config_path, load_yaml_safely, register_prefix
from mmlape.mmcv_ops import lend_ops

__version__ = '0.1.0'
__all__ = ['__version__', 'add_dual_patchnorm', 'add_lape', 'config_path', 'get_model', 'list_models']

_LAZY = {
    'add_dual_patchnorm': 'timm.dual_patchnorm',
    'add_lape': 'timm.lape',
    'get_model': 'names',
    'list_models': 'names',
}

lend_ops()
register_prefix()
load_yaml_safely()


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(f'mmlape.models.{_LAZY[name]}'), name)
