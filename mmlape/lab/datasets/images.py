"""Images as training decodes them: by the backend of the pipeline, and turned as their annotations are.

A camera stores pixels as its sensor lies, and writes into a tag of EXIF how they are to be turned. OpenCV and Pillow
turn an image when they load it. Its boxes or its label map are of the image as it is shown, or of the stored pixels:
their size tells which, unless both have one size.
"""

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import mmcv
import numpy as np
from mmengine import fileio
from PIL import Image

from mmlape.errors import DataError

AGAIN = 'Download or unpack it again, or remove it from the dataset.'
MOST_PIXELS = 2**30  # which OpenCV reads by default
TAIL_BYTES = 4096  # some cameras append data after the end marker
JPEG, PNG, TIFF = b'\xff\xd8', b'\x89PNG', (b'II*\0', b'MM\0*')
JPEG_2000 = (b'\0\0\0\x0cjP  ', b'\xff\x4f\xff\x51')  # a file, and pixels alone
END_MARKERS = {JPEG: b'\xff\xd9', PNG: b'IEND'}
ORIENTATION = 0x112
WITHOUT_TAG = 'exiftool -all:Orientation= FILE'
Size = tuple[int, int]
"""Width and height."""
STORED, EITHER = 'stored', 'either'  # the pixels that annotations are of

# Pillow refuses images of twice this number, and warns of those above it: it is to read what OpenCV reads
Image.MAX_IMAGE_PIXELS = MOST_PIXELS
# of its lines about a broken file, none has the file's name; the error has the reason
cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


def open_header(path: str | Path, content: bytes | None = None) -> Image.Image:
    """Open an image by Pillow, without decoding it.

    Raises:
        DataError: The file is missing, empty, too large or no image; the message names it.
    """
    try:
        image = Image.open(path if content is None else io.BytesIO(content))
    except Exception as error:  # whatever a decoder raises
        reason = str(error)
        if isinstance(error, Image.UnidentifiedImageError):
            reason = 'cannot identify image file'  # without the object that was read from
        raise DataError(f'Image {path} cannot be read: {reason}. {AGAIN}') from error
    if image.width * image.height > MOST_PIXELS:
        raise DataError(
            f'Image {path} is {image.width} x {image.height} pixels, more than the 2^30 that '
            'OpenCV reads: cut it into parts.'
        )
    return image


def open_image(path: str, content: bytes | None = None) -> Image.Image:
    """Decode a complete image by Pillow, which is strict.

    Raises:
        DataError: As `open_header`; or it is truncated, or its pixels are floats.
    """
    image = open_header(path, read_bytes(path) if content is None else content)
    try:
        image.load()
    except Exception as error:  # whatever a decoder raises
        raise DataError(f'Image {path} cannot be read: {error}. {AGAIN}') from error
    if image.mode == 'F':
        raise DataError(f'Image {path} has pixels that are floats: save it with 8 bits a channel.')
    return image


def shown_size(path: str | Path) -> tuple[int, int]:
    """Return width and height of an image as programs show it, turned by its EXIF orientation.

    Raises:
        DataError: As `open_header`.
    """
    with open_header(path) as image:
        width, height = image.size
        turned = image.format == 'JPEG' and image.getexif().get(ORIENTATION) in range(5, 9)
    return (height, width) if turned else (width, height)


def read_bytes(path: str, backend_args: dict | None = None) -> bytes:
    """Read a file, which may be in an archive or elsewhere; raise DataError if it is missing or empty."""
    try:
        content = fileio.get(path, backend_args=backend_args)
    except FileNotFoundError as error:
        reason = f' ({error})' if '://' in path else ''
        raise DataError(f'Image {path} does not exist{reason}. {AGAIN}') from error
    except Exception as error:  # those of a storage
        raise DataError(f'Image {path} cannot be read: {error}. {AGAIN}') from error
    if not content:
        raise DataError(f'Image {path} is empty (0 bytes). {AGAIN}')
    return content


def decode(content: bytes, path: str, color_type: str, backend: str) -> np.ndarray:
    """Decode an image as MMCV's loading transforms do.

    OpenCV 4 fills the missing part of a truncated file with grey, so a file without its end marker
    is decoded once more by Pillow.

    Raises:
        DataError: It is broken, or the backend does not read such files.
    """
    try:
        pixels = mmcv.imfrombytes(content, flag=color_type, backend=backend)
    except Exception as error:  # whatever a decoder raises
        open_image(path, content)  # its message has the clearest reason
        raise DataError(f'Image {path} cannot be decoded by {backend}: {error!r}.') from error
    if pixels is None:
        known = open_image(path, content)
        raise DataError(
            f'Image {path} is a {known.format} ({known.mode}) that Pillow reads and OpenCV does '
            'not, by which images are loaded: save it as PNG or JPEG, with 8 bits a channel.'
        )
    if color_type == 'color' and pixels.ndim != 3:  # a portable float map
        raise DataError(f'Image {path} has one channel of floats: save it with 8 bits a channel.')
    if lacks_end(content):
        open_image(path, content)
    return pixels


def largest_of_16_bits(path: str) -> int | None:
    """Return the largest value of an image of 16 bits a channel; None for other images."""
    content = read_bytes(path)
    try:
        with Image.open(io.BytesIO(content)) as image:
            is_wide = image.mode.startswith('I')
    except Exception:  # of a format that OpenCV reads alone
        return None
    if is_wide or (content.startswith(PNG) and content[24] == 16):  # the depth in its header
        return int(decode(content, path, 'unchanged', 'cv2').max())
    return None


def count_pages(path: str) -> int:
    """Return the number of images in a file; 1 where Pillow does not read it."""
    try:
        with open_header(path, read_bytes(path)) as image:
            return getattr(image, 'n_frames', 1)
    except DataError:
        return 1


def lacks_end(content: bytes) -> bool:
    """Return whether a JPEG or PNG file lacks its end marker."""
    return any(content.startswith(start) and end not in content[-TAIL_BYTES:] for start, end in END_MARKERS.items())


def orientation(content: bytes) -> int:
    """Return the tag by which an image is to be turned when it is shown, 2 to 8; 1 for none."""
    # Pillow decodes a PNG that has no such chunk, as one may follow the pixels
    if content.startswith(PNG) and b'eXIf' not in content:
        return 1
    try:
        with Image.open(io.BytesIO(content)) as image:
            tag = image.getexif().get(ORIENTATION)
    except Exception:  # of a format that OpenCV reads alone, or broken metadata
        return 1
    return tag if tag in range(2, 9) else 1


def require_size(path: str, width: int, height: int, smallest: int) -> None:
    """Raise DataError if a side of an image is below ``smallest``, the side of a model's patch."""
    if min(width, height) < smallest:
        raise DataError(
            f'Image {path} is {width} x {height} pixels, smaller than one {smallest} x {smallest} '
            'patch. Enlarge it, or remove it from the dataset.'
        )


class Annotated(NamedTuple):
    """What an image's annotations say of its pixels."""

    size: tuple[int, int]  # width and height
    tag: int = 1  # of a label map, which is loaded without being turned


class LoadedImage(NamedTuple):
    """An image, as training gets it."""

    pixels: np.ndarray
    tag: int = 1  # by which it was turned, or was not
    # of which pixels the annotations are: '' those of ``pixels``, `STORED` or `EITHER`
    annotated: str = ''

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.pixels.shape[1], self.pixels.shape[0]


@dataclass(frozen=True)
class ImageLoader:
    """Loads images as a pipeline's `LoadImageFromFile` with these options does."""

    color_type: str = 'color'
    imdecode_backend: str = 'cv2'
    backend_args: dict | None = None

    @classmethod
    def of(cls, pipeline: Iterable[Mapping] | None) -> 'ImageLoader':
        """Return the loader of a pipeline's configuration."""
        given = step_of(pipeline, 'LoadImageFromFile')
        return cls(**{key: given[key] for key in cls.__dataclass_fields__ if key in given})

    def load(self, path: str, annotated: Callable[[], Annotated | None] | None = None) -> LoadedImage:
        """Load an image, turned by its tag unless its annotations are of the stored pixels.

        Args:
            path: The file.
            annotated: Returns what the annotations say, where a tag makes it matter; None for
                images without boxes or label maps.

        Raises:
            DataError: The file is missing, broken, or of a format that the backend does not read.
        """
        content = read_bytes(path, self.backend_args)
        pixels = decode(content, path, self.color_type, self.imdecode_backend)
        turns = annotated is not None and self.color_type in ('color', 'grayscale')
        tag = orientation(content) if turns else 1
        known = annotated() if annotated is not None and tag > 1 else None
        if known is None:
            return LoadedImage(pixels)
        shown = LoadedImage(pixels, tag)
        stored_size = shown.size[::-1] if tag >= 5 else shown.size
        fits_stored = known.tag == tag or known.size == stored_size != shown.size
        if not fits_stored and not known.size == shown.size == stored_size:
            return shown
        if content.startswith(TIFF):  # which every backend turns, whatever it is asked
            return shown if fits_stored else LoadedImage(pixels, tag, EITHER)
        ignoring = f'{self.color_type}_ignore_orientation'
        stored = decode(content, path, ignoring, self.imdecode_backend)
        if np.array_equal(stored, pixels):  # the backend does not turn this format
            return LoadedImage(pixels)
        return LoadedImage(stored, tag, STORED) if fits_stored else LoadedImage(pixels, tag, EITHER)


class ImageCache:
    """The images that were loaded last, decoded, as many as fit.

    Args:
        mib: Into so much memory.
    """

    def __init__(self, mib: int) -> None:
        self.size = mib << 20
        self.images: dict[str, LoadedImage] = {}  # the latest last

    def get(self, path: str, load: Callable[[], LoadedImage]) -> LoadedImage:
        """Return an image whose pixels may be changed, loaded if it is not there."""
        image = self.images.pop(path, None) or load()
        self.images[path] = image
        while sum(one.pixels.nbytes for one in self.images.values()) > self.size:
            del self.images[next(iter(self.images))]
        return image._replace(pixels=image.pixels.copy()) if self.images else image


def step_of(pipeline: Iterable[Mapping] | None, name: str) -> Mapping[str, Any]:
    """Return the first transform of this name, of whichever package, of a pipeline; empty for none."""
    for step in pipeline or ():
        if str(step.get('type')).rpartition('.')[2] == name:
            return step
    return {}


def require_annotated_size(path: str, size: tuple[int, int], annotated: tuple[int, int], where: str) -> None:
    """Raise DataError if an image has another size, (width, height), than its annotations in ``where`` say."""
    if size != annotated:
        exchanged = ': width and height are exchanged' * (size[::-1] == annotated)
        raise DataError(
            f'Image {path} is {size[0]} x {size[1]} pixels, but {where} has {annotated[0]} x '
            f'{annotated[1]}{exchanged}. Correct the annotations, or replace the image.'
        )
