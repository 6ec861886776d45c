"""LaPE and Dual PatchNorm backbones, and a ViT-Adapter that carries both, for OpenMMLab.

Importing the package imports neither torch nor a model: the registries import models, datasets and hooks when a config
names them.
"""

from mmlape.mim import config_path, register_prefix
from mmlape.mmcv_ops import lend_ops

__version__ = '0.1.0'
__all__ = ['__version__', 'config_path']

lend_ops()
register_prefix()
