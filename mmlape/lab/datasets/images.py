"""Images as training decodes them: by the backend of the pipeline, and turned as their annotations are.

A camera stores pixels as its sensor lies, and writes into a tag of EXIF how they are to be turned. A decoder is asked
for the stored pixels, which are turned here, in every format alike; of TIFF, whose tag is another, decoders turn them.
Boxes or a label map are of the image as it is shown, or of the stored pixels: their size tells which, unless both
have one size.
"""

import io
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import mmcv
import numpy as np
from mmengine import fileio
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from mmlape.errors import DataError

SAVE_IT = 'save it as PNG or JPEG, with three bands of 8 bits'
AGAIN = 'Download or unpack it again, or remove it from the dataset.'
MOST_PIXELS = 2**30  # which OpenCV reads by default
TAIL_BYTES = 4096  # some cameras append data after the end marker
JPEG, PNG, TIFF = b'\xff\xd8', b'\x89PNG', (b'II*\0', b'MM\0*')
JPEG_2000 = (b'\0\0\0\x0cjP  ', b'\xff\x4f\xff\x51')  # a file, and pixels alone
END_MARKERS = {JPEG: b'\xff\xd9', PNG: b'IEND'}
ORIENTATION, EXTRA_SAMPLES = 0x112, 338
FLIPS = {2: 1, 3: -1, 4: 0, 6: 1, 7: -1, 8: 0}
"""OpenCV's code of the flip that a tag of EXIF asks for; those from 5 on exchange rows and columns before."""
NEVER_TURN = ('turbojpeg', 'tifffile')  # backends that know no flag for it
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
        DataError: As `open_header`; or it is truncated.
    """
    image = open_header(path, read_bytes(path) if content is None else content)
    try:
        image.load()
    except Exception as error:  # whatever a decoder raises
        raise DataError(f'Image {path} cannot be read: {error}. {AGAIN}') from error
    return image


def shown_size(path: str | Path) -> Size:
    """Return width and height of an image as `ImageLoader` loads it without annotations, from its header.

    Raises:
        DataError: As `open_header`.
    """
    with open_header(path) as image:
        return image.size[::-1] if _tag_of(image) >= 5 else image.size


def read_bytes(path: str, backend_args: dict | None = None) -> bytes:
    """Read a file, from elsewhere only where ``backend_args`` say so; raise DataError if it is missing or empty."""
    try:
        content = fileio.get(path, backend_args=backend_args or dict(backend='local'))
    except FileNotFoundError as error:
        reason = f' ({error}; addresses are read where backend_args=dict(backend=...))' if '://' in path else ''
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

    def decoded(flag: str) -> np.ndarray | None:
        try:
            return mmcv.imfrombytes(_without_alpha(content), flag=flag, backend=backend)
        except Exception as error:  # whatever a decoder raises
            open_image(path, content)  # its message has the clearest reason
            raise DataError(f'Image {path} cannot be decoded by {backend}: {error!r}.') from error

    pixels = decoded(color_type)
    if pixels is None and (deep := decoded('unchanged')) is not None:
        raise DataError(f'Image {path} has pixels of {deep.dtype}: {SAVE_IT}.')
    if pixels is None:
        known = 'TIFF' if content.startswith(TIFF) else open_image(path, content).format
        raise DataError(
            f'Image {path} is a {known} that OpenCV does not read, by which images are loaded, as one of more than '
            f'four bands: {SAVE_IT}.'
        )
    if color_type.startswith('color') and pixels.ndim != 3:  # a portable float map
        raise DataError(f'Image {path} has one channel of floats: {SAVE_IT}.')
    if lacks_end(content):
        open_image(path, content)
    return pixels


def _without_alpha(content: bytes) -> bytes:
    """Return a TIFF whose fourth band is not called alpha, by which OpenCV multiplies the others; else the content."""
    if not content.startswith(TIFF):
        return content
    order = '<' if content.startswith(TIFF[0]) else '>'
    (start,) = struct.unpack_from(f'{order}I', content, 4)
    (count,) = struct.unpack_from(f'{order}H', content, start)
    for entry in range(start + 2, start + 2 + 12 * count, 12):
        if struct.unpack_from(f'{order}HHIH', content, entry) == (EXTRA_SAMPLES, 3, 1, 2):
            return content[: entry + 8] + bytes(2) + content[entry + 10 :]
    return content


def stored_type(path: str) -> np.dtype:
    """Return the type of an image's values, as the file has them; DataError for floats, which have no upper bits."""
    content = read_bytes(path)
    kind = np.dtype(np.uint8) if content.startswith(JPEG) else decode(content, path, 'unchanged', 'cv2').dtype
    if kind.kind == 'f':
        raise DataError(f'Image {path} has pixels of {kind}: {SAVE_IT}.')
    return kind


def count_pages(path: str) -> int:
    """Return the number of images in a TIFF; 1 for other files, whose further ones are previews or frames."""
    try:
        with Image.open(path, formats=['TIFF']) as image:
            return image.n_frames
    except Exception:  # whatever a decoder raises
        return 1


def lacks_end(content: bytes) -> bool:
    """Return whether a JPEG or PNG file lacks its end marker."""
    return any(content.startswith(start) and end not in content[-TAIL_BYTES:] for start, end in END_MARKERS.items())


def orientation(content: bytes) -> int:
    """Return the tag of EXIF by which stored pixels are turned when they are shown, 2 to 8; 1 for none."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            return _tag_of(image)
    except Exception:  # of a format that OpenCV reads alone
        return 1


def _tag_of(image: Image.Image) -> int:
    exif = Image.Exif()
    try:
        if isinstance(image, PngImageFile) and 'exif' not in image.info and _has_late_exif(image):
            image.load()
        exif.load(image.info.get('exif') or b'')
        tag = exif.get(ORIENTATION)
    except Exception:  # broken metadata
        return 1
    return tag if tag in range(2, 9) else 1


def _has_late_exif(image: PngImageFile) -> bool:
    """Return whether a PNG may have the tag behind its pixels, which Pillow decodes to read it."""
    place = image.fp.tell()
    found = b'eXIf' in image.fp.read()
    image.fp.seek(place)
    return found


def turn(pixels: np.ndarray, tag: int) -> np.ndarray:
    """Return stored pixels as a tag of EXIF shows them."""
    turned = cv2.transpose(pixels) if tag >= 5 else pixels
    return cv2.flip(turned, FLIPS[tag]) if tag in FLIPS else turned


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
    def of(cls, given: Mapping[str, Any]) -> 'ImageLoader':
        """Return the loader of a transform's configuration."""
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
        if self.color_type not in ('color', 'grayscale'):  # which MMCV does not turn
            return LoadedImage(decode(content, path, self.color_type, self.imdecode_backend))
        ignoring = '_ignore_orientation' * (self.imdecode_backend not in NEVER_TURN)
        stored = LoadedImage(decode(content, path, self.color_type + ignoring, self.imdecode_backend))
        tag = orientation(content)
        shown = LoadedImage(turn(stored.pixels, tag))
        known = annotated() if annotated is not None and tag > 1 else None
        if known is None:
            return shown
        if known.tag == tag or known.size == stored.size != shown.size:
            return LoadedImage(stored.pixels, tag, STORED)
        either = known.size == shown.size == stored.size
        return LoadedImage(shown.pixels, tag, EITHER if either else '')


def require_annotated_size(path: str, size: tuple[int, int], annotated: tuple[int, int], where: str) -> None:
    """Raise DataError if an image has another size, (width, height), than its annotations in ``where`` say."""
    if size != annotated:
        exchanged = ': width and height are exchanged' * (size[::-1] == annotated)
        raise DataError(
            f'Image {path} is {size[0]} x {size[1]} pixels, but {where} has {annotated[0]} x '
            f'{annotated[1]}{exchanged}. Correct the annotations, or replace the image.'
        )
