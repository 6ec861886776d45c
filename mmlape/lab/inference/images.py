"""Images to predict on: as pixels, with the values that a file has in training, and as what a model takes."""

import copy
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import cv2
import mmcv
import numpy as np
from mmcv.transforms import Compose
from mmengine import Config
from mmengine.registry import init_default_scope
from PIL import Image, ImageOps
from torch import Tensor

from mmlape.checkpoint.closed_world import as_now
from mmlape.errors import ConfigError, DataError
from mmlape.lab.config.stored_config import preprocessor_of
from mmlape.lab.datasets.folders import IMAGE_SUFFIXES, READ_SUFFIXES, is_image
from mmlape.lab.datasets.transforms import LoadImageFromFile, patch_size
from mmlape.lab.registry import TRANSFORMS, class_of

ImageLike: TypeAlias = str | Path | np.ndarray | Image.Image
"""An image file, an array (H, W, 3), RGB, or (H, W), grey, or an image of Pillow."""


def files_of(folder: str | Path) -> list[Path]:
    """Return the images in a folder and those below it, sorted, without hidden ones; DataError if there are none.

    Beside others, those are left out whose name tells that they cannot be read, such as .heic.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f'{folder}: there is no such folder of images')
    found = sorted(
        path
        for path in folder.rglob('*')
        if is_image(path.name)
        and not any(part.startswith('.') for part in path.relative_to(folder).parts)
        and path.is_file()
    )
    if not found:
        raise DataError(f'{folder}: no images in this folder; their names end with {", ".join(IMAGE_SUFFIXES)}')
    return [path for path in found if path.suffix.lower() in READ_SUFFIXES] or found


def find_images(images: ImageLike | Iterable[ImageLike]) -> Iterator[ImageLike]:
    """Yield one image after the other: the files of folders, the images of lists and stacks."""
    if isinstance(images, str | Path):
        yield from files_of(images) if os.path.isdir(images) else [images]
    elif isinstance(images, Image.Image) or (isinstance(images, np.ndarray) and images.ndim < 4):
        yield images
    elif isinstance(images, Iterable) and not isinstance(images, bytes | dict | Tensor):
        for image in images:
            yield from find_images(image)
    else:
        raise DataError(f'an image is a path, an array or an image of Pillow, not {type(images).__name__}')


def to_array(image: ImageLike) -> np.ndarray:
    """Return an image as (H, W, 3), RGB, uint8, turned as its camera's orientation says; DataError if it is none.

    A file has the values that OpenCV reads, as in training. Arrays and images of Pillow have those
    of a file of them: of 16 bits the upper eight, without transparency. Pillow's inks of printing are
    Pillow's.
    """
    if isinstance(image, str | Path):
        return LoadImageFromFile()(dict(img_path=str(image)))['img'][..., ::-1]
    if isinstance(image, Image.Image):
        return _of_pillow(image)
    return _of_array(image)


def _of_pillow(image: Image.Image) -> np.ndarray:
    try:
        turned = ImageOps.exif_transpose(image)
        is_deep = image.mode == 'F' or image.mode.startswith('I')  # 16 or 32 bits
        values = np.asarray(turned if is_deep else turned.convert('RGB'))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f'an image of Pillow cannot be read: {error}') from error
    if image.mode == 'I' and values.size and values.min() >= 0 and values.max() < 2**16:
        values = values.astype(np.uint16)
    return _of_array(values)


def _of_array(image: np.ndarray) -> np.ndarray:
    values = image
    if image.dtype == bool:
        values = image.astype(np.uint8) * 255
    elif image.dtype.kind == 'u' and image.dtype.itemsize == 2:
        values = (image >> 8).astype(np.uint8)
    if values.ndim == 2:
        values = values[..., None]
    if values.dtype != np.uint8 or values.ndim != 3 or values.shape[2] not in (1, 2, 3, 4):
        raise DataError(
            'an array is an image if it is uint8, 0 to 255, and (H, W, 3), RGB, or (H, W), grey, not '
            f'{image.dtype} and {image.shape}'
        )
    if not values.size:
        raise DataError(f'an image of {values.shape[0]} x {values.shape[1]} has no pixels')
    if values.shape[2] < 3:  # grey, or grey and transparency
        return np.repeat(values[..., :1], 3, axis=2)
    return values[..., :3]


class Preparation:
    """The pipeline of a config's test, for image files and for arrays.

    Args:
        cfg: Its ``test_pipeline`` loads no annotations.
    """

    def __init__(self, cfg: Config) -> None:
        steps = copy.deepcopy(cfg.test_pipeline)
        init_default_scope(cfg.default_scope)
        # not those of a subclass, which loads in its own way
        loading = bool(steps) and class_of(steps[0], cfg.default_scope, 'TRANSFORMS')
        self.loads = loading in (mmcv.transforms.LoadImageFromFile, LoadImageFromFile)
        first = steps[0] if self.loads else {}
        self.dtype = np.float32 if first.get('to_float32') else np.uint8
        channels = len(preprocessor_of(cfg).get('mean') or range(3))
        self.grey = channels == 1 or str(first.get('color_type', '')).startswith('gr')
        self.rest = Compose(steps[1:] if self.loads else steps)
        self.smallest = patch_size(cfg) if self.loads else 1
        load = dict(first, type='mmlape.LoadImageFromFile', smallest=self.smallest)
        self.load = TRANSFORMS.build(load) if self.loads else None
        self.world = as_now()

    def of_file(self, path: str | Path) -> dict:
        """Return the model's input of an image file; DataError if it cannot be read."""
        if self.load is None:
            return self.of_array(to_array(path))
        with self.world():
            loaded = self.load(dict(img_path=str(path), img_id=0))
        return self._prepared(loaded)

    def of_array(self, image: np.ndarray) -> dict:
        """Return the model's input of an image, (H, W, 3), RGB, uint8."""
        if self.grey:
            image = np.asarray(Image.fromarray(image).convert('L'))
        elif self.loads:
            image = image[..., ::-1]  # as MMCV loads files; datasets that are arrays have RGB
        size = image.shape[:2]
        if min(size) < self.smallest:
            raise DataError(
                f'an image of {size[1]} x {size[0]} pixels is smaller than one '
                f'{self.smallest} x {self.smallest} patch: enlarge it'
            )
        image = np.ascontiguousarray(image, self.dtype)
        loaded = dict(img=image, img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0), img_path=None, img_id=0)
        return self._prepared(loaded)

    def _prepared(self, loaded: dict) -> dict:
        height, width = loaded['ori_shape']
        try:
            with self.world():
                packed = self.rest(loaded)
        except (cv2.error, ValueError) as error:  # such as a side that becomes 0 pixels
            reason = str(error).strip().splitlines()[-1]
            raise DataError(
                f'{loaded["img_path"] or "an image"} of {width} x {height} pixels does not fit the '
                f'test pipeline ({reason}): crop or enlarge it'
            ) from error
        if 'inputs' not in packed:
            raise ConfigError('test_dataloader.dataset.pipeline packs no inputs: end it with the Pack... transform')
        return packed
