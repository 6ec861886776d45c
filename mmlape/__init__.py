"""LaPE and Dual PatchNorm backbones, and a ViT-Adapter that carries both, for OpenMMLab.

Importing the package is cheap: models, datasets and hooks are imported by the registries when a config names them.
"""

__version__ = '0.1.0'
