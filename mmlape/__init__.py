"""ViT backbones with LaPE and Dual PatchNorm, and a ViT-Adapter that carries both, for OpenMMLab, timm and PyTorch.

Importing the package imports neither torch nor a model, and nothing of OpenMMLab: what it offers is imported on first
use, and OpenMMLab's registries import models, datasets and hooks when a config names them.
"""

from mmlape.lazy import attributes

__version__ = '0.1.0'
_LAZY = {
    'SwinTransformer': 'models',
    'TimmViT': 'models',
    'TimmViTAdapter': 'models',
    'VisionTransformer': 'models',
    'ViTAdapter': 'models',
    'add_dual_patchnorm': 'models.timm.dual_patchnorm',
    'add_lape': 'models.timm.lape',
    'config_path': 'openmmlab.mim',
    'get_model': 'models.model_names',
    'list_models': 'models.model_names',
    'load': 'lab.inference.prediction',
    'load_weights': 'checkpoint',
    'param_groups': 'models.param_groups',
    'remove_position': 'models.removal',
    'resize_pos_embed': 'models.pos_embed',
}
__all__ = ['__version__', *_LAZY]
__getattr__, __dir__ = attributes(__name__, _LAZY)
