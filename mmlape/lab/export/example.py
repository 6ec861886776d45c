"""Run the graph beside this file: python example.py IMAGE. Needs onnxruntime, numpy and Pillow."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

folder = Path(__file__).parent
model = json.loads((folder / 'model.json').read_text())
names = (folder / 'labels.txt').read_text(encoding='utf-8').splitlines()
session = onnxruntime.InferenceSession(str(folder / model['file']))
(height, width), channels = model['size'], model['channels']

# the largest size that fits, padded at the right and below with the mean, which the graph makes 0
image = ImageOps.exif_transpose(Image.open(sys.argv[1])).convert('RGB' if channels == 3 else 'L')
scale = min(width / image.width, height / image.height)
image = image.resize((round(image.width * scale), round(image.height * scale)))
padded = np.zeros((height, width, channels), np.float32) + np.float32(model.get('mean', 0))
padded[: image.height, : image.width] = np.atleast_3d(image)
images = np.stack([padded.transpose(2, 0, 1)] * (model['batch'] or 1))  # (B, C, H, W), 0 to 255
found = dict(zip(model['outputs'], session.run(None, {'image': images})))

if model['task'] == 'detection':
    for box, score, label in zip(found['boxes'][0], found['scores'][0], found['labels'][0]):
        if score > 0.3:  # boxes in pixels of the image that was read: left, top, right, bottom
            print(names[label], f'{score:.3f}', *(box / scale).round(1))
elif model['task'] == 'segmentation':
    labels = found['labels'][0] if 'labels' in found else found['logits'][0].argmax(0)
    if 'logits' in found and len(names) == 1:
        labels = (found['logits'][0, 0] > 0).astype(int)
    labels = labels[: image.height, : image.width]
    for label in np.unique(labels):
        print(names[label] if len(names) > 1 else label, f'{(labels == label).mean():.3f}')
else:
    for label in np.argsort(-found['scores'][0], kind='stable')[:5]:
        print(names[label], f'{found["scores"][0, label]:.3f}')
