"""Data loading: images per second of the mini configurations' own pipelines, by the number of workers."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.comparison import Comparison, Settings, Side

CONFIGS = {
    'deit/deit-mini-lape_1xb32-5e_mini-digits.py': 'digits',
    'segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade.py': 'ade',
    'mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py': 'coco',
}
WORKERS = (0, 1, 2)


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per configuration; the reference loads in the process itself."""
    images = 64 if settings.quick else 512
    return [
        Comparison(
            suite='loading',
            case=config.rpartition('/')[2].split('_1xb')[0],
            work='load and transform',
            shape=f'{images} images',
            dtype='-',
            sides=[Side(f'{workers} workers', _side(settings, config, workers, images)) for workers in WORKERS],
            items=images,
            timed=False,
            counted=False,
            note='workers live on between rounds; each may have one batch of 16 ready when a round starts',
        )
        for config in CONFIGS
    ]


def mini_data(settings: Settings) -> Path:
    """Return the folder of the mini data, which is made where it is missing."""
    folder = Path(settings.data or 'data/mini')
    if not (folder / 'mini_data.json').is_file():
        subprocess.run(
            [sys.executable, '-m', 'mmlape', 'make-mini-data', str(folder)], check=True, capture_output=True
        )
    return folder


def _side(settings: Settings, config: str, workers: int, images: int) -> Callable:
    def build():
        from mmengine.registry import init_default_scope
        from mmengine.runner import Runner

        from mmlape.lab.engine.config import load_config

        root = mini_data(settings) / CONFIGS[config]
        cfg = load_config(f'mmlape::{config}', [f'data_root={root}/', f'train_dataloader.num_workers={workers}'])
        loader_cfg = dict(
            cfg.train_dataloader,
            batch_size=16,
            **(dict(persistent_workers=True, prefetch_factor=1) if workers else dict(persistent_workers=False)),
        )
        loader_cfg['sampler'] = dict(type='InfiniteSampler', shuffle=True)
        loader_cfg.pop('batch_sampler', None)
        init_default_scope(cfg.default_scope)
        batches = iter(Runner.build_dataloader(loader_cfg, seed=0))

        def work():
            for _ in range(images // 16):
                next(batches)

        return work

    return build
