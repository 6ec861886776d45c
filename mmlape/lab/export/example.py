"""Run the graph beside this file: python example.py IMAGE. Needs onnxruntime, numpy and Pillow."""

import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

folder = Path(__file__).parent
model = json.loads((folder / 'model.json').read_text())
names = (folder / 'labels.txt').read_text(encoding='utf-8').splitlines()
session = onnxruntime.InferenceSession(str(folder / model['file']))
(height, width), channels, overlap = model['size'], model['channels'], model.get('overlap')


def starts(length, side):
    """Return where tiles begin; one if the image is no larger."""
    last = max(length - side, 0)
    return [*range(0, last, side - overlap), last] if last else [0]


def is_same(box, other):
    """Return whether a box is the other tile's, which goes first: by IoU, or the share of one that a border cuts."""
    shared = (np.minimum(box[2:4], other[2:4]) - np.maximum(box[:2], other[:2])).clip(0).prod()
    area, before = ((one[2:4] - one[:2]).prod() for one in (box, other))
    part = min(area, before) if other[4] else area
    return shared > 0.5 * (part if box[4] else area + before - shared)


# the largest size that fits; of a model of tiles, the image as it is, in tiles that overlap
image = ImageOps.exif_transpose(Image.open(sys.argv[1])).convert('RGB' if channels == 3 else 'L')
scale = min(width / image.width, height / image.height) if overlap is None else 1
image = image.resize((round(image.width * scale), round(image.height * scale)))
pixels = np.asarray(image).reshape(image.height, image.width, channels)
labels = np.zeros(pixels.shape[:2], int)
objects = []
for top, left in product(starts(image.height, height), starts(image.width, width)):
    tile = pixels[top : top + height, left : left + width]
    bottom, right = top + len(tile), left + tile.shape[1]
    # padded at the right and below with the mean, which the graph makes 0
    padded = np.zeros((height, width, channels), np.float32) + np.float32(model.get('mean', 0))
    padded[: len(tile), : tile.shape[1]] = tile
    images = np.stack([padded.transpose(2, 0, 1)] * (model['batch'] or 1))  # (B, C, H, W), 0 to 255
    found = dict(zip(model['outputs'], session.run(None, {'image': images})))
    if model['task'] == 'detection':
        borders = np.float32([left, top, right, bottom])
        inner = np.array([left > 0, top > 0, right < image.width, bottom < image.height])
        for box, score, label in zip(found['boxes'][0], found['scores'][0], found['labels'][0]):
            box = box + np.float32([left, top, left, top])
            objects.append((score, label, (top, left), [*box, (inner & (abs(box - borders) <= 4)).any()]))
    elif model['task'] == 'segmentation':
        predicted = found['labels'][0] if 'labels' in found else found['logits'][0].argmax(0)
        if 'logits' in found and len(names) == 1:
            predicted = (found['logits'][0, 0] > 0).astype(int)
        # half of what tiles share is the earlier one's
        y, x = ((start > 0) * (overlap or 0) // 2 for start in (top, left))
        labels[top + y : bottom, left + x : right] = predicted[y : len(tile), x : tile.shape[1]]

if model['task'] == 'detection':
    kept = []
    for score, label, place, box in sorted(objects, key=lambda one: (one[3][4], -one[0])):  # complete ones first
        box = np.float32(box)
        if not any(label == other[1] and place != other[2] and is_same(box, other[3]) for other in kept):
            kept.append((score, label, place, box))
    for score, label, _, box in sorted(kept, key=lambda one: -one[0]):
        if score > 0.3:  # in pixels of the image that was read: left, top, right, bottom
            print(names[label], f'{score:.3f}', *(box[:4] / scale).round(1))
elif model['task'] == 'segmentation':
    for label in np.unique(labels):
        print(names[label] if len(names) > 1 else label, f'{(labels == label).mean():.3f}')
else:
    for label in np.argsort(-found['scores'][0], kind='stable')[:5]:
        print(names[label], f'{found["scores"][0, label]:.3f}')
