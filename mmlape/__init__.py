"""LaPE and Dual PatchNorm backbones, and a ViT-Adapter that carries both, for OpenMMLab.

Importing the package is cheap: models, datasets and hooks are imported by the registries when a config names them.
"""

from mmlape.prefix_hook import install as _read_prefix

__version__ = '0.1.0'

_read_prefix()  # configs are then found as `mmlape::folder/name.py`
