"""InstaBoost (arXiv 1908.07801), which moves the objects of an image a little.

Its package is no part of the stack.
"""

from mmcv.transforms import BaseTransform

from mmlape.errors import ConfigError
from mmlape.lab.environment.packages import importable
from mmlape.registry import TRANSFORMS


@TRANSFORMS.register_module()
class InstaBoost(BaseTransform):
    """MMDetection's transform of this name; without its package, one line says so.

    Args:
        aug_ratio: The share of images that are changed; 0 changes none, and needs no package.
        **kwargs: As MMDetection's.

    Raises:
        ConfigError: The package is not installed.
    """

    def __init__(self, aug_ratio: float = 0.5, **kwargs) -> None:
        if aug_ratio and not importable('instaboostfast'):
            raise ConfigError(  # of what it requires all is in the stack, but for a second OpenCV
                'InstaBoost needs the package instaboostfast: pip install --no-deps instaboostfast; or train without '
                'it: --cfg-options train_dataloader.dataset.pipeline.N.aug_ratio=0, where N is its place'
            )
        options = dict(type='mmdet.InstaBoost', aug_ratio=aug_ratio, **kwargs)
        self.boost = TRANSFORMS.build(options) if aug_ratio else None

    def transform(self, results: dict) -> dict:
        """Move the objects of some images; images and instances change, semantic maps do not."""
        return self.boost(results) if self.boost else results
