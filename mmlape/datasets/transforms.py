"""Loading transforms whose errors name the file, also from a data loader's worker process."""

from collections.abc import Callable, Sequence

import mmcv
import numpy as np
from mmcv.transforms import BaseTransform
from mmengine import Config

from mmlape.datasets.formats import iter_sources
from mmlape.datasets.formats.base import DataSource, looks_truncated, open_image, require_size
from mmlape.datasets.formats.segmentation import ignored_ids, unknown_labels_message
from mmlape.datasets.sources import patch_size
from mmlape.errors import DataError
from mmlape.registry import TRANSFORMS

__all__ = ['LoadImageFromFile', 'LoadSegAnnotations']


def guard_loading(cfg: Config, sources: Sequence[DataSource] | None = None) -> None:
    """Replace the loading transforms of ``cfg``, in place, by those of this module.

    This is for the config that the runner gets. Config files keep the plain names, which other
    tools look for.
    """
    load_image = dict(type='mmlape.LoadImageFromFile', smallest=patch_size(cfg))
    for source in iter_sources(cfg) if sources is None else sources:
        guarded = {'LoadImageFromFile': load_image, 'mmlape.LoadImageFromFile': load_image}
        guarded |= source.guarded_transforms()
        for step in source.cfg.get('pipeline') or ():
            step.update(guarded.get(step.get('type'), {}))


class BrokenSampleError(DataError):
    """One file of a dataset cannot be used.

    PyTorch re-raises a worker's exception with the worker's traceback in its message. This class
    keeps the part after it, which names the file.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message.rpartition(f'{type(self).__name__}: ')[2].strip())


@TRANSFORMS.register_module()
class LoadImageFromFile(mmcv.transforms.LoadImageFromFile):
    """MMCV's transform of this name.

    A missing, empty, truncated or too small image is an error that names it. OpenCV may fill the
    missing part of a truncated file with grey, so a file without its end marker is decoded once
    more by Pillow, which is strict.

    Args:
        *args: As MMCV's.
        smallest: A side below this is an error; use the model's patch size.
        **kwargs: As MMCV's.
    """

    def __init__(self, *args, smallest: int = 1, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.smallest = smallest

    def transform(self, results: dict) -> dict | None:
        """Load an image; raise BrokenSampleError where MMCV's raises anything, or returns a truncated image."""
        path = str(results['img_path'])
        loaded = _load(path, super().transform, results)
        if loaded is None:  # ignore_empty
            return None
        height, width = loaded['ori_shape']
        try:
            if looks_truncated(path):
                open_image(path)
            require_size(path, width, height, self.smallest)
        except DataError as error:
            raise BrokenSampleError(str(error)) from error
        return loaded


@TRANSFORMS.register_module()
class LoadSegAnnotations(BaseTransform):
    """MMSegmentation's `LoadAnnotations`.

    A label map that is broken or has an id outside the classes is an error. Such an id would end
    training with a failed assertion in a CUDA kernel.

    Args:
        num_classes: Ids 0 to num_classes - 1, after `reduce_zero_label`, are valid.
        ignore_index: A further valid id, beside 255, which `reduce_zero_label` gives.
        **kwargs: As MMSegmentation's.
    """

    def __init__(self, num_classes: int, ignore_index: int = 255, **kwargs) -> None:
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        self.load = TRANSFORMS.build(dict(type='mmseg.LoadAnnotations', **kwargs))

    def transform(self, results: dict) -> dict:
        """Load a label map; raise BrokenSampleError if it is broken or has an id outside the classes."""
        path = str(results['seg_map_path'])
        loaded = _load(path, self.load, results)
        labels = loaded['gt_seg_map']
        unknown = np.unique(
            labels[(labels >= self.num_classes) & (labels != self.ignore_index) & (labels != 255)]
        )
        if unknown.size:
            reduced = bool(results.get('reduce_zero_label', False))
            stored = [int(label) + reduced for label in unknown]
            ignored = ignored_ids(self.ignore_index, reduced)
            raise BrokenSampleError(
                unknown_labels_message(path, stored, self.num_classes, reduced, ignored)
            )
        return loaded


def _load(path: str, load: Callable[[dict], dict | None], results: dict) -> dict | None:
    """Run a transform; turn whatever it raises into a BrokenSampleError."""
    try:
        return load(results)
    except BrokenSampleError:
        raise
    except Exception as error:  # whatever a decoder may raise
        try:
            if '://' not in path:  # a member of an archive is no file
                open_image(path)  # its message has the clearest reason
        except DataError as known:
            raise BrokenSampleError(str(known)) from error
        raise BrokenSampleError(f'{path} cannot be read or decoded: {error!r}.') from error
