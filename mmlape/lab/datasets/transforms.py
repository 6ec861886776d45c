"""Loading transforms whose errors name the file, also from a data loader's worker process; windows of large images."""

import math
from collections.abc import Mapping

import mmcv
import numpy as np
from mmcv.transforms import BaseTransform
from mmengine import Config
from mmengine.dataset import BaseDataset, ClassBalancedDataset
from mmengine.structures import BaseDataElement

from mmlape.errors import DataError
from mmlape.lab.datasets.formats import iter_sources
from mmlape.lab.datasets.formats.base import default_argument
from mmlape.lab.datasets.formats.segmentation import LabelIds, annotated_by_map, read_label_map, require_image_size
from mmlape.lab.datasets.images import (
    Annotated,
    ImageLoader,
    LoadedImage,
    require_annotated_size,
    require_size,
    shown_size,
)
from mmlape.lab.registry import DATASETS, TRANSFORMS, class_of, resolve_class

__all__ = ['LoadImageFromFile', 'LoadSegAnnotations']


def guard_loading(cfg: Config) -> None:
    """Replace the loading transforms of ``cfg``, in place, by those of this module.

    This is for the config that the runner gets. Config files keep the plain names, which other
    tools look for.
    """
    load_image = dict(type='mmlape.LoadImageFromFile', smallest=patch_size(cfg))
    for source in iter_sources(cfg):
        guarded = {'LoadImageFromFile': load_image, 'mmlape.LoadImageFromFile': load_image}
        guarded |= source.guarded_transforms()
        scope = cfg.get('default_scope')
        options = {resolve_class(name, scope, 'TRANSFORMS'): part for name, part in guarded.items()}
        for cls, step in source.steps:
            step.update(options.get(cls or object, {}))


def loads(step: Mapping, default_scope: str | None, what: str = '') -> bool:
    """Return whether a transform has the name of those of OpenMMLab that load something, or one of its bases has."""
    bases = getattr(class_of(step, default_scope, 'TRANSFORMS'), '__mro__', ())
    return any(base.__name__.startswith('Load') and base.__name__.endswith(what) for base in bases)


def patch_size(cfg: Mapping) -> int:
    """Return the side of the backbone's patches, its default where the config has none.

    1 without patches.
    """
    backbone = (cfg.get('model') or {}).get('backbone') or {}
    size = backbone.get('patch_size')
    if size is None and 'type' in backbone:
        cls = class_of(backbone, cfg.get('default_scope'), 'MODELS')
        size = default_argument(cls, 'patch_size') if cls else None
    return max(size) if isinstance(size, (list, tuple)) else size or 1


@TRANSFORMS.register_module()
class LoadImageFromFile(mmcv.transforms.LoadImageFromFile):
    """MMCV's transform of this name.

    A missing, empty, truncated or too small image, and one of another size than its annotations
    say, is an error that names it. An image is turned by its EXIF tag, as MMCV's is, unless its
    annotations are of the stored pixels: see `mmlape.lab.datasets.images`.

    Args:
        *args: As MMCV's.
        smallest: A side below this is an error; use the model's patch size.
        cache_mib: Memory of each worker for images that stay decoded, of which crops are taken again and again.
        **kwargs: As MMCV's.
    """

    def __init__(self, *args, smallest: int = 1, cache_mib: int = 0, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.smallest = smallest
        self.cache_mib = cache_mib
        self.cached: dict[str, LoadedImage] = {}  # the latest last
        backend_args = self.backend_args or self.file_client_args
        self.loader = ImageLoader(self.color_type, self.imdecode_backend, backend_args)

    def transform(self, results: dict) -> dict | None:
        """Load an image; raise DataError if it cannot be trained on."""
        path = str(results['img_path'])
        try:
            image = self._load(path, results)
            require_size(path, *image.size, self.smallest)
            if (recorded := _recorded(results)) is not None:
                require_annotated_size(path, image.size, recorded.size, 'its annotation file')
        except DataError:
            if self.ignore_empty:
                return None
            raise
        results['img'] = image.pixels.astype(np.float32) if self.to_float32 else image.pixels
        results['img_shape'] = results['ori_shape'] = image.pixels.shape[:2]
        results['scale_factor'] = (1.0, 1.0)  # which MMDetection asks for also where nothing is resized
        return results

    def _load(self, path: str, results: dict) -> LoadedImage:
        """Return an image whose pixels may be changed, decoded if it is not kept."""
        image = self.cached.pop(path, None) or self.loader.load(path, lambda: _annotated(results))
        self.cached[path] = image
        while sum(one.pixels.nbytes for one in self.cached.values()) > self.cache_mib << 20:
            del self.cached[next(iter(self.cached))]
        return image._replace(pixels=image.pixels.copy()) if self.cached else image


def _recorded(results: dict) -> Annotated | None:
    """Return the size of an image with boxes, as its annotation file has it."""
    if not {'instances', 'width', 'height'} <= results.keys():
        return None
    return Annotated((results['width'], results['height']))


def _annotated(results: dict) -> Annotated | None:
    """Return the size that boxes or a label map say of a sample's image."""
    return _recorded(results) or annotated_by_map(results.get('seg_map_path'))


def load_again(sample: BaseDataElement) -> np.ndarray:
    """Return the image of a sample, (H, W, 3), RGB, turned as it was when it was loaded."""
    height, width = sample.ori_shape[:2]
    image = ImageLoader().load(
        sample.img_path, lambda: annotated_by_map(sample.get('seg_map_path')) or Annotated((width, height))
    )
    return image.pixels[..., ::-1]


@TRANSFORMS.register_module()
class LoadSegAnnotations(BaseTransform):
    """MMSegmentation's `LoadAnnotations`, which takes ids modulo 256.

    A label map that is broken, of another size than its image, or has an id outside the classes is
    an error. Such an id would end training with a failed assertion in a CUDA kernel.

    Args:
        num_classes: So many ids are valid, from 0, or from 1 with ``reduce_zero_label``.
        ignore_index: A further valid id, beside 255, which `reduce_zero_label` gives.
        reduce_zero_label: As MMSegmentation's; None for the dataset's.
        imdecode_backend: As MMSegmentation's.
        backend_args: As MMSegmentation's.
    """

    def __init__(
        self,
        num_classes: int,
        ignore_index: int = 255,
        reduce_zero_label: bool | None = None,
        imdecode_backend: str = 'pillow',
        backend_args: dict | None = None,
    ) -> None:
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        self.reduce_zero_label = reduce_zero_label
        self.imdecode_backend = imdecode_backend
        self.backend_args = backend_args

    def transform(self, results: dict) -> dict:
        """Load a label map; raise DataError if it cannot be trained on."""
        path, reduced = str(results['seg_map_path']), self.reduce_zero_label
        if reduced is None:
            reduced = bool(results['reduce_zero_label'])
        ids = LabelIds(self.num_classes, reduced, self.ignore_index)
        stored = read_label_map(path, self.imdecode_backend, self.backend_args)
        if 'ori_shape' in results:
            require_image_size(path, stored, results['ori_shape'][:2][::-1])
        ids.require(path, stored)
        labels = stored.astype(np.uint8)  # those that are left are at most 255
        if reduced:
            labels = np.where((labels == 0) | (labels == 255), np.uint8(255), labels - np.uint8(1))
        if results.get('label_map') is not None:
            old = labels.copy()
            for label, new in results['label_map'].items():
                labels[old == label] = new
        results['gt_seg_map'] = labels
        results['seg_fields'].append('gt_seg_map')
        return results


def count_windows(width: int, height: int, side: int) -> int:
    """Return how many square windows cover an image: ceil(W / side) * ceil(H / side)."""
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
