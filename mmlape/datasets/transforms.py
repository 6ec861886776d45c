"""Loading transforms whose errors name the file, also when they happen in a data loader's worker process."""

from collections.abc import Callable

import mmcv
import numpy as np
from mmcv.transforms import BaseTransform

from mmlape.datasets.image_files import looks_cut_off, open_image, require_size
from mmlape.errors import DataError
from mmlape.registry import TRANSFORMS


class BrokenSampleError(DataError):
    """One file of a data set cannot be used.

    PyTorch re-raises a worker's exception with the worker's whole traceback as its text. This class keeps the message
    after the traceback, which is the one that names the file.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message.rpartition(f'{type(self).__name__}: ')[2].strip())


@TRANSFORMS.register_module()
class LoadImageFromFile(mmcv.transforms.LoadImageFromFile):
    """MMCV's transform of this name; an image that is missing, empty, cut off or too small is an error that names it.

    OpenCV may fill what is missing from a file that was cut off with grey. So a file without its end mark is decoded
    once more, by Pillow, which is strict.

    Args:
        smallest: A side below this is an error; use the model's patch size.
        **kwargs: As MMCV's.
    """

    def __init__(self, *args, smallest: int = 1, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.smallest = smallest

    def transform(self, results: dict) -> dict | None:
        """Raises BrokenSampleError where MMCV's raises anything, or gives half an image."""
        path = str(results['img_path'])
        loaded = _naming(path, super().transform, results)
        if loaded is None:  # ignore_empty
            return None
        height, width = loaded['ori_shape']
        try:
            if looks_cut_off(path):
                open_image(path)
            require_size(path, width, height, self.smallest)
        except DataError as error:
            raise BrokenSampleError(str(error)) from error
        return loaded


@TRANSFORMS.register_module()
class LoadSegAnnotations(BaseTransform):
    """MMSegmentation's `LoadAnnotations`; a label map that is broken or holds an id outside the classes is an error.

    Without it such an id shows as a failed assertion in a CUDA kernel.

    Args:
        num_classes: Ids 0 to num_classes - 1, after `reduce_zero_label`, are valid.
        ignore_index: The one id besides that is valid.
        **kwargs: As MMSegmentation's.
    """

    def __init__(self, num_classes: int, ignore_index: int = 255, **kwargs) -> None:
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        self.load = TRANSFORMS.build(dict(type='mmseg.LoadAnnotations', **kwargs))

    def transform(self, results: dict) -> dict:
        """Raises BrokenSampleError that names the label map."""
        path = str(results['seg_map_path'])
        loaded = _naming(path, self.load, results)
        labels = loaded['gt_seg_map']
        strange = np.unique(labels[(labels >= self.num_classes) & (labels != self.ignore_index)])
        if strange.size:
            reduced = bool(results.get('reduce_zero_label', False))
            stored = [int(label) + reduced for label in strange]
            raise BrokenSampleError(strange_labels(path, stored, self.num_classes, reduced))
        return loaded


def strange_labels(path: str, labels: list[int], num_classes: int, reduce_zero_label: bool) -> str:
    """The message about label ids, as stored in the file, that no class has."""
    first, last = int(reduce_zero_label), num_classes - 1 + int(reduce_zero_label)
    ids = ', '.join(map(str, labels[:8])) + (', ...' if len(labels) > 8 else '')
    unlabelled = '0 and 255' if reduce_zero_label else '255'
    return (
        f'Label map {path} holds the label id {ids}, but the data set has {num_classes} classes: '
        f'ids {first} to {last} are allowed, and {unlabelled} for unlabelled pixels. '
        'Correct the label map, or the classes and reduce_zero_label of the data set.'
    )


def _naming(path: str, load: Callable[[dict], dict | None], results: dict) -> dict | None:
    try:
        return load(results)
    except BrokenSampleError:
        raise
    except Exception as error:  # whatever a decoder may raise
        try:
            open_image(path)  # says best what is wrong with it
        except DataError as known:
            raise BrokenSampleError(str(known)) from error
        raise BrokenSampleError(f'{path} cannot be loaded: {error!r}.') from error
