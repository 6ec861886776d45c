"""Data loading: images a second of the COCO and ADE20K pipelines by workers, beside what a training step eats.

The images are generated in the sizes of the datasets, 640 x 480 and 683 x 512, with seven polygons or a map of
classes. A line passes if some number of workers loads as fast as ViT-Adapter-Ti trains in bf16 at that recipe.
"""

import json
import os
import time
from functools import partial
from pathlib import Path

from benchmarks.checks import Check, Found, Options
from benchmarks.comparison import Settings
from benchmarks.models import complete_model

CONFIGS = {
    'COCO': 'mask_rcnn/mask-rcnn_deit-tiny-adapter_4xb2-3x_coco.py',
    'ADE20K': 'upernet/upernet_deit-tiny-adapter_4xb2-160k_ade20k.py',
}


def checks(options: Options) -> list[Check]:
    """Return a check per dataset; ADE20K's alone if quick."""
    names = ('ADE20K',) if options.quick else CONFIGS
    return [Check(f'{name} pipeline', partial(_loading, options, name)) for name in names]


def _loading(options: Options, name: str) -> Found:
    from mmlape.lab.engine.config import load_config

    count = 16 if options.quick else 64
    root = Path(options.scratch) / name
    (write_coco if name == 'COCO' else write_ade)(root, count)
    cfg = load_config(f'mmlape::{CONFIGS[name]}', [f'data_root={root}/', 'model.backbone.init_cfg=None'])
    cores = len(os.sched_getaffinity(0))
    workers = [0, 1] if options.quick else [number for number in (0, 1, 2, 4, 8, 16) if number <= cores]
    rates = {number: images_per_second(cfg, number, 2 if options.quick else 6) for number in workers}
    eaten = _eaten(options, name)
    return judged(rates, eaten)


def judged(rates: dict[int, float], eaten: float | None) -> Found:
    """Judge the rates of loading by the rate of training, where that was measured."""
    best = max(rates.values())
    figure = ', '.join(f'{number} workers {rate:.3g}/s' for number, rate in rates.items())
    if eaten is not None:
        figure += f'; a training step of ViT-Adapter-Ti in bf16 eats {eaten:.3g}/s'
    return Found(eaten is None or best >= eaten, figure, dict(rates=rates, eaten=eaten))


def images_per_second(cfg, workers: int, seconds: float) -> float:
    """Return how many images a training data loader gives in a second, after a first batch."""
    from mmengine.registry import init_default_scope
    from mmengine.runner import Runner

    init_default_scope(cfg.default_scope)
    loader = dict(cfg.train_dataloader, num_workers=workers, persistent_workers=workers > 0)
    loader['sampler'] = dict(type='InfiniteSampler', shuffle=True)
    batches = iter(Runner.build_dataloader(loader, seed=0))
    size = len(next(batches)['inputs'])
    for _ in range(2 * workers):  # what workers have ready
        next(batches)
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        next(batches)
        count += size
    return count / (time.perf_counter() - started)


def _eaten(options: Options, name: str) -> float | None:
    """Return the images a second of the recipe's training step; None on the CPU, where it is not worth the time."""
    if options.device == 'cpu':
        return None
    from benchmarks.timing import interleave, spread

    size = 1024 if name == 'COCO' else 512
    settings = Settings(options.device, batch=2)
    model, batch, wrapper = complete_model(CONFIGS[name], 'lape', settings, size)
    model.train()

    def step() -> None:
        with settings.autocast('bf16'):
            data = model.data_preprocessor(batch, True)
            loss, _ = model.parse_losses(model(**data, mode='loss'))
        wrapper.update_params(loss)

    (samples,) = interleave([step], options.device, 9, 5.0)
    return 2 / spread(samples)['median']


def _image(number: int, width: int, height: int):
    """Return an image that compresses like a photograph: noise over smooth colours."""
    import numpy as np
    from PIL import Image

    random = np.random.RandomState(number)
    smooth = Image.fromarray(random.randint(0, 256, (8, 8, 3), dtype=np.uint8)).resize((width, height))
    noisy = np.asarray(smooth, np.int16) + random.randint(-12, 13, (height, width, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8)), random


def write_ade(root: Path, count: int) -> None:
    """Write images and maps of classes of ADE20K's sizes, in its layout."""
    import numpy as np
    from PIL import Image

    for split in ('training', 'validation'):
        for kind in ('images', 'annotations'):
            (root / kind / split).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            image, random = _image(number, 683, 512)
            image.save(root / 'images' / split / f'{number:04}.jpg', quality=90)
            classes = Image.fromarray(random.randint(0, 151, (16, 16), dtype=np.uint8)).resize((683, 512), 0)
            classes.save(root / 'annotations' / split / f'{number:04}.png')


def write_coco(root: Path, count: int) -> None:
    """Write images and polygons of COCO's sizes, in its layout."""
    images, annotations = [], []
    for split in ('train2017', 'val2017'):
        (root / split).mkdir(parents=True, exist_ok=True)
    (root / 'annotations').mkdir(exist_ok=True)
    for number in range(count):
        image, random = _image(number, 640, 480)
        name = f'{number:012}.jpg'
        for split in ('train2017', 'val2017'):
            image.save(root / split / name, quality=90)
        images.append(dict(id=number, file_name=name, width=640, height=480))
        for _ in range(7):
            x, y, w, h = (float(value) for value in (*random.uniform(0, 300, 2), *random.uniform(30, 180, 2)))
            polygon = [x, y, x + w, y, x + w, y + h, x + w / 2, y + h / 2, x, y + h]
            annotations.append(
                dict(id=len(annotations), image_id=number, category_id=int(random.randint(80)), bbox=[x, y, w, h],
                     area=w * h, iscrowd=0, segmentation=[polygon])
            )  # fmt: skip
    from mmdet.datasets import CocoDataset

    categories = [dict(id=number, name=name) for number, name in enumerate(CocoDataset.METAINFO['classes'])]
    content = json.dumps(dict(images=images, annotations=annotations, categories=categories))
    for split in ('train2017', 'val2017'):
        (root / 'annotations' / f'instances_{split}.json').write_text(content)
