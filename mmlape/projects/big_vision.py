"""What big_vision's RandAugment does otherwise than the operations of MMPretrain."""

import numpy as np
from mmpretrain.datasets.transforms import Contrast

from mmlape.registry import TRANSFORMS


@TRANSFORMS.register_module()
class BigVisionContrast(Contrast):
    """MMPretrain's ``Contrast``, blended with another grey than the mean of the image.

    big_vision divides the sum of a histogram, which is the number of pixels, by its 256 bins, so
    the grey depends on the size only: 196 at 224 x 224 pixels.
    """

    def transform(self, results: dict) -> dict:
        """Blend an image, and cut the fractions off."""
        if not self.random_disable():
            given = self.random_magnitude() if self.magnitude is None else self.magnitude
            factor, image = 1 + self.random_negative(given), results['img']
            grey = min(image.shape[0] * image.shape[1] // 256, 255)
            changed = np.clip(grey + factor * (image - np.float32(grey)), 0, 255)
            results['img'] = changed.astype(image.dtype)
        return results
