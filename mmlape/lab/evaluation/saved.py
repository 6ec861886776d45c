"""Predictions as files: rows of JSON, as COCO's result files have them, and label maps."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from mmengine.structures import InstanceData
from PIL import Image
from torch import Tensor

from mmlape.files import atomic_path, write_bytes


def object_rows(objects: InstanceData, image_id: int, category_ids: Sequence[int] | None) -> list[dict]:
    """Return for each object ``image_id, category_id, bbox`` (x, y, width, height), ``score`` and ``segmentation``.

    Args:
        objects: The predicted ``bboxes`` (corners), ``scores`` and ``labels``, and ``masks`` of
            models that have them, as arrays (N, H, W) or encoded, which become run lengths.
        image_id: Of the image in COCO's file.
        category_ids: Of the labels 0, 1, ...; None for the labels themselves.
    """
    from pycocotools import mask as coco_mask

    rows = []
    boxes, scores, labels = (objects[name].tolist() for name in ('bboxes', 'scores', 'labels'))
    for i, (box, score, label) in enumerate(zip(boxes, scores, labels)):
        left, top, right, bottom = box
        row = dict(
            image_id=image_id,
            category_id=label if category_ids is None else category_ids[label],
            bbox=[round(value, 3) for value in (left, top, right - left, bottom - top)],
            score=score,
        )
        if 'masks' in objects:
            mask = objects.masks[i]
            if not isinstance(mask, dict):
                mask = coco_mask.encode(np.asfortranarray(torch.as_tensor(mask).cpu(), np.uint8))
            counts = mask['counts']
            text = counts.decode() if isinstance(counts, bytes) else counts
            row['segmentation'] = dict(size=[int(side) for side in mask['size']], counts=text)
        rows.append(row)
    return rows


def write_rows(path: str | Path, rows: list[dict]) -> None:
    """Write a list as JSON, a row a line."""
    with atomic_path(path) as partial:
        partial.write_text(f'{row_lines(rows)}\n', encoding='utf-8')


def row_lines(rows: list[dict]) -> str:
    """Return a list as JSON, a row a line."""
    lines = ',\n'.join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f'[\n{lines}\n]'


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
