"""Tells a picture that can be read from one that is empty, cut off or not a picture at all."""

import os

from PIL import Image

from mmlape.errors import DataError

WAY_OUT = 'Fetch or unpack it again, or take it out of the data set.'
END_MARKS = {'.jpg': b'\xff\xd9', '.jpeg': b'\xff\xd9', '.png': b'IEND'}
TAIL_BYTES = 4096  # some cameras append notes after the end mark


def open_image(path: str) -> Image.Image:
    """Decodes a whole picture.

    Raises:
        DataError: The file is missing, empty, cut off or no picture; the message names it.
    """
    try:
        if os.path.getsize(path) == 0:
            raise DataError(f'Image {path} is empty (0 bytes). {WAY_OUT}')
        image = Image.open(path)
        image.load()
    except FileNotFoundError as error:
        raise DataError(f'Image {path} does not exist. {WAY_OUT}') from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = str(error).partition(':')[0] if isinstance(error, Image.UnidentifiedImageError) else str(error)
        raise DataError(f'Image {path} cannot be read: {reason}. {WAY_OUT}') from error
    return image


def looks_cut_off(path: str) -> bool:
    """Whether a local JPEG or PNG file lacks its end mark; cheap, and to be confirmed with `open_image`."""
    mark = END_MARKS.get(os.path.splitext(path)[1].lower())
    if mark is None or not os.path.isfile(path):
        return False
    with open(path, 'rb') as file:
        file.seek(max(0, os.path.getsize(path) - TAIL_BYTES))
        return mark not in file.read()


def require_size(path: str, width: int, height: int, smallest: int) -> None:
    """Refuses a picture with a side below `smallest`, the side of a model's patch.

    Raises:
        DataError: Names the file, its size and the patch.
    """
    if min(width, height) < smallest:
        raise DataError(
            f'Image {path} is {width} x {height} pixels, smaller than one {smallest} x {smallest} patch. '
            'Enlarge it, or take it out of the data set.'
        )
