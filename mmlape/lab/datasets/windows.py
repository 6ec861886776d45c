"""Large images in training: each counts as often as square windows of one side cover it.

count = ceil(W / side) * ceil(H / side)
"""

import math

from mmengine.dataset import BaseDataset, ClassBalancedDataset

from mmlape.lab.datasets.images import shown_size
from mmlape.lab.registry import DATASETS


def count_windows(width: int, height: int, side: int) -> int:
    """Return how many windows cover an image."""
    return math.ceil(width / side) * math.ceil(height / side)


@DATASETS.register_module()
class WindowDataset(ClassBalancedDataset):
    """A dataset that has each image as often as windows cover it; its pipeline crops another one each time.

    Args:
        dataset: Of the images.
        side: Of a window, in pixels.
        lazy_init: As MMEngine's.
    """

    def __init__(self, dataset: BaseDataset | dict, side: int, lazy_init: bool = False) -> None:
        super().__init__(dataset, side, lazy_init)

    def _get_repeat_factors(self, dataset: BaseDataset, repeat_thr: float) -> list[float]:
        infos = map(dataset.get_data_info, range(len(dataset)))
        sizes = [(i['width'], i['height']) if 'width' in i else shown_size(i['img_path']) for i in infos]
        return [count_windows(width, height, int(repeat_thr)) for width, height in sizes]
