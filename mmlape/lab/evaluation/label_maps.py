"""Predicted label maps as PNG files, with the values of the annotation files."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from mmlape.files import write_bytes


def save_label_map(
    path: str | Path, labels: Tensor, num_classes: int, zero_is_unlabelled: bool, palette: Sequence | None = None
) -> None:
    """Write the labels of an image: in 8 bits, or in 16 bits and without colours where 8 do not hold all classes.

    Args:
        path: Its folder is made.
        labels: (H, W), classes from 0.
        num_classes: Number of classes.
        zero_is_unlabelled: Whether the annotation files have 0 for unlabelled pixels and classes
            from 1.
        palette: Colours of the classes.
    """
    values = labels.cpu().numpy().astype(np.int64) + zero_is_unlabelled
    largest = max(num_classes - 1 + zero_is_unlabelled, values.max(initial=0))
    image = Image.fromarray(values.astype(np.uint8 if largest <= 255 else np.uint16))
    if palette and largest <= 255:
        colours = [(0, 0, 0), *palette] if zero_is_unlabelled else palette
        image = image.convert('P')
        image.putpalette(np.asarray(colours, np.uint8).ravel().tolist())
    encoded = io.BytesIO()
    image.save(encoded, 'PNG')
    write_bytes(path, encoded.getvalue())
