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
        missing = self.missing_package(dict(aug_ratio=aug_ratio))
        if missing:
            raise ConfigError(missing)
        options = dict(type='mmdet.InstaBoost', aug_ratio=aug_ratio, **kwargs)
        self.boost = TRANSFORMS.build(options) if aug_ratio else None

    @staticmethod
    def missing_package(step: dict, place: str = '') -> str:
        """Return what a step of a pipeline lacks, and the fix; an empty text if it lacks nothing.

        Args:
            step: The config of the transform.
            place: Its dotted key in the complete config, for the message.
        """
        if not step.get('aug_ratio', 0.5) or importable('instaboostfast'):
            return ''
        return (  # of what it requires all is in the stack, but for a second OpenCV
            f'{place or "InstaBoost"} needs the package instaboostfast: pip install --no-deps '
            'instaboostfast; or train without InstaBoost: --cfg-options '
            f'{place or "KEY"}.aug_ratio=0'
        )

    def transform(self, results: dict) -> dict:
        """Move the objects of some images; images and instances change, semantic maps do not."""
        return self.boost(results) if self.boost else results
