"""The first losses of the recipes on the mini data, in `golden/losses.json`: what changes training changes them.

`python tests/golden_losses.py [NAME ...]` writes the file, for a change of training that is meant, or a new lock.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from config_helpers import CONFIGS
from mmengine.config import Config

from benchmarks.machine import processor
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data
from mmlape.lab.runs.identity import stack_versions
from mmlape.lab.training.trainer import train

FILE = Path(__file__).with_name('golden') / 'losses.json'
STEPS, SEEDS = 20, (1,)
DATA = {'ade': 'ade', 'coco': 'coco', 'digits': 'digits'}
RECIPES = {path.stem: path for path in CONFIGS if path.stem.endswith(tuple(f'_mini-{name}' for name in DATA))}


def make_data(folder: Path) -> None:
    """Make the images that the recipes are trained on."""
    options = MiniOptions(train=4, val=2, digits=50, size=(64, 64), digit_size=(20, 30), per_scene=(2, 4))
    make_mini_data(folder / 'mini', options)


def machine() -> dict[str, str]:
    """Return what decides the last digits of a loss."""
    return dict(stack_versions(), cpu=f'{processor()}, {torch.backends.cpu.get_cpu_capability()}')


def recipe(name: str, data: Path) -> tuple[Config, float]:
    """Return a recipe on small batches of those images, without weights, and its share that is trained."""
    folder = name.rpartition('_mini-')[2]
    cfg = load_config(RECIPES[name], {'data_root': f'{data}/mini/{folder}/', 'model.backbone.init_cfg': None})
    for split in ('train', 'val'):
        loader = cfg[f'{split}_dataloader']
        loader.update(num_workers=0, persistent_workers=False)
    cfg.train_dataloader.batch_size = 2
    cfg.default_hooks.logger.interval = 1
    cfg.log_processor.window_size = 1  # each loss, not the mean of the last ten
    if 'max_epochs' in cfg.train_cfg:
        return cfg, 1 / cfg.train_cfg.max_epochs  # forty images
    return cfg, STEPS / cfg.train_cfg.max_iters


def first_losses(name: str, data: Path, work_dir: Path, seed: int) -> dict:
    """Train a recipe; return its losses, and the metrics of the evaluation behind them."""
    cfg, share = recipe(name, data)
    record = train(cfg, work_dir, seed=seed, batch='allow-batch-mismatch', share=share)
    [log] = work_dir.rglob('vis_data/scalars.json')
    rows = [json.loads(line) for line in log.read_text(encoding='utf-8').splitlines()]
    losses = [row['loss'] for row in rows if 'loss' in row]
    return dict(losses=losses[:STEPS], metrics=record.last.metrics)


def main(names: list[str]) -> None:
    """Write the losses of recipes, by default of all."""
    known = json.loads(FILE.read_text()) if FILE.exists() and names else dict(recipes={})
    with tempfile.TemporaryDirectory() as folder:
        make_data(Path(folder))
        for name in names or RECIPES:
            runs = {str(seed): first_losses(name, Path(folder), Path(folder, name, str(seed)), seed) for seed in SEEDS}
            known['recipes'][name] = dict(machine=machine(), seeds=runs)
            FILE.write_text(json.dumps(known, indent=1) + '\n')


if __name__ == '__main__':
    main(sys.argv[1:])
