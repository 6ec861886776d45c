"""One side of the suite 'trainer': trains a few iterations, prints the mean seconds of one.

python -m benchmarks.training RUNNER ITERATIONS SETTINGS
"""

import json
import sys
import tempfile

import numpy as np
import torch
from mmengine.config import Config
from mmengine.logging import MessageHub

from benchmarks.comparison import Settings
from benchmarks.suites.loading import mini_data
from benchmarks.suites.trainer import CONFIG
from mmlape.lab.engine.config import load_config

SKIPPED = 5


def main() -> None:
    runner, iterations, settings = sys.argv[1], int(sys.argv[2]), Settings(**json.loads(sys.argv[3]))
    root = mini_data(settings).absolute() / 'ade'
    schedule = dict(max_iters=iterations, val_interval=iterations + 1)
    changes = [f'data_root={root}/', *(f'train_cfg.{key}={value}' for key, value in schedule.items())]
    changes += [f'param_scheduler.{key}={iterations // 2}' for key in ('0.end', '1.begin')]
    cfg = load_config(f'mmlape::{CONFIG}', [*changes, 'model.backbone.init_cfg=None'])
    with tempfile.TemporaryDirectory() as folder:
        (_ours if runner == 'mmlape' else _theirs)(cfg, folder)
    times = MessageHub.get_current_instance().get_scalar('train/time').data[0]
    print(float(np.mean(times[SKIPPED:])))


def _ours(cfg: Config, folder: str) -> None:
    from mmlape.lab.engine.trainer import train

    train(cfg, folder, seed=0)


def _theirs(cfg: Config, folder: str) -> None:
    from mmengine.runner import Runner

    torch.set_flush_denormal(True)  # as our trainer does
    cfg.work_dir, cfg.randomness = folder, dict(seed=0)
    Runner.from_cfg(cfg).train()


if __name__ == '__main__':
    main()
