#!/usr/bin/env python
"""Keep the left half of what `mmlape new data/wood --out wood.py` wrote: `python docs/results/views.py wood_data`."""

import json
import sys
from pathlib import Path

from PIL import Image

WIDTH = 1150

folder = Path(sys.argv[1])
for part in ('train', 'val'):
    file = folder / f'{part}.json'
    content = json.loads(file.read_text())
    (image,) = content['images']
    path = folder / 'parts' / part / image['file_name']
    with Image.open(path) as photograph:
        photograph.crop((0, 0, WIDTH, photograph.height)).save(path)
    image['width'] = WIDTH
    content['annotations'] = [one for one in content['annotations'] if one['bbox'][0] + one['bbox'][2] <= WIDTH]
    file.write_text(json.dumps(content))
    print(f'{part}: {WIDTH} x {image["height"]}, {len(content["annotations"])} trees')
