"""Image files that can be decoded, and errors that name those that are empty, truncated or no image."""

import os

from PIL import Image

from mmlape.errors import DataError

HINT = 'Download or unpack it again, or remove it from the dataset.'
END_MARKERS = {'.jpg': b'\xff\xd9', '.jpeg': b'\xff\xd9', '.png': b'IEND'}
TAIL_BYTES = 4096  # some cameras append data after the end marker


def open_image(path: str) -> Image.Image:
    """Decode a complete image.

    Raises:
        DataError: The file is missing, empty, truncated or no image, or its pixels are floats; the message names it.
    """
    try:
        if os.path.getsize(path) == 0:
            raise DataError(f'Image {path} is empty (0 bytes). {HINT}')
        image = Image.open(path)
        image.load()
    except FileNotFoundError as error:
        raise DataError(f'Image {path} does not exist. {HINT}') from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = str(error).partition(':')[0] if isinstance(error, Image.UnidentifiedImageError) else str(error)
        raise DataError(f'Image {path} cannot be read: {reason}. {HINT}') from error
    if image.mode == 'F':
        raise DataError(f'Image {path} has pixels that are floats: save it with 8 bits a channel.')
    return image


def looks_truncated(path: str) -> bool:
    """Return whether a local JPEG or PNG file lacks its end marker; cheap, to be confirmed with `open_image`."""
    marker = END_MARKERS.get(os.path.splitext(path)[1].lower())
    if marker is None or not os.path.isfile(path):
        return False
    with open(path, 'rb') as file:
        file.seek(max(0, os.path.getsize(path) - TAIL_BYTES))
        return marker not in file.read()


def require_size(path: str, width: int, height: int, smallest: int) -> None:
    """Raise DataError if a side of an image is below ``smallest``, the side of a model's patch."""
    if min(width, height) < smallest:
        raise DataError(
            f'Image {path} is {width} x {height} pixels, smaller than one {smallest} x {smallest} patch. '
            'Enlarge it, or remove it from the dataset.'
        )
