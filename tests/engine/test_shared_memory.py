"""Batches that do not fit into /dev/shm are refused before the first step; those that do not come end the run."""

import multiprocessing
import shutil
import types

import numpy as np
import pytest
import tiny
import torch
import trouble
from mmdet.structures.bbox import HorizontalBoxes
from mmdet.structures.mask import BitmapMasks
from torch.utils.data import DataLoader

from mmlape.cli import main
from mmlape.errors import TrainingError
from mmlape.lab.training import workers
from mmlape.lab.training.seeding import random_states

IMAGE = 3 * 400 * 300


class Images(torch.utils.data.Dataset):
    """The last one is the largest."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        torch.rand(1)
        return dict(inputs=torch.zeros(3, 400, 300 * (1 + (index == 7)), dtype=torch.uint8), path='a.png')


def test_what_the_workers_hold_ready_must_fit(monkeypatch):
    """Workers x batches x images x the largest image, to the byte; random states stay."""
    free = types.SimpleNamespace(free=0)
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: free)
    loader = DataLoader(Images(), batch_size=4, num_workers=3, prefetch_factor=5)
    before = str(random_states())
    free.free = 3 * 5 * 4 * 2 * IMAGE
    workers.require_shared_memory(loader, 'train_dataloader')
    free.free -= 1
    with pytest.raises(TrainingError, match='--shm-size.*train_dataloader.num_workers=0'):
        workers.require_shared_memory(loader, 'train_dataloader')
    assert str(random_states()) == before
    workers.require_shared_memory(DataLoader(Images(), batch_size=4), 'train_dataloader')


def test_tensors_alone_are_counted():
    """Masks of NumPy are pickled beside them."""
    sample = dict(boxes=HorizontalBoxes(torch.zeros(5, 4)), masks=BitmapMasks(np.zeros((20, 64, 64)), 64, 64))
    assert (
        workers.tensor_bytes([dict(inputs=torch.zeros(3, 2, 2), sample=sample, name='a')]) == 3 * 2 * 2 * 4 + 5 * 4 * 4
    )


LONG = """
train_dataloader.update(num_workers=2, persistent_workers=True, timeout=2)
train_cfg.update(max_iters=1000, val_interval=1000)
train_pipeline.insert(0, dict(type='Stall'))
"""


def test_a_run_whose_images_do_not_come_ends_by_the_loader_s_timeout(config, tmp_path, capsys):
    stalling = tiny.write_config(config.parent, config.parent / 'data', trouble.CONFIG + LONG, 'stalling')
    assert main(['train', str(stalling), '--work-dir', str(tmp_path / 'run')]) == 1
    record, line = tiny.record(tmp_path / 'run'), capsys.readouterr().err.strip().splitlines()[-1]
    assert record['failure']['kind'] == 'lost-worker' and record['reason'] in line and '/dev/shm' in line
    assert not [child for child in multiprocessing.active_children() if child.daemon]
