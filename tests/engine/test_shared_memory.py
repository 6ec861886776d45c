"""Batches that do not fit into /dev/shm are refused before the first step; those that do not come end the run."""

import multiprocessing
import shutil
import types

import pytest
import tiny
import torch
import trouble
from mmdet.structures.bbox import HorizontalBoxes
from mmengine.structures import InstanceData, PixelData
from mmseg.structures import SegDataSample
from torch.utils.data import DataLoader

from mmlape.cli import main
from mmlape.errors import TrainingError
from mmlape.lab.engine import runner, shared_memory
from mmlape.lab.engine.seeding import random_states

WORKERS = ('train_dataloader.num_workers=2', 'train_dataloader.persistent_workers=True')
SHORT = ('--cfg-options', 'train_cfg.max_iters=4', 'train_cfg.val_interval=4', *WORKERS)
IMAGE = 3 * 40 * 30


class Images(torch.utils.data.Dataset):
    """The last one is the largest."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        torch.rand(1)
        return dict(inputs=torch.zeros(3, 40, 30 * (1 + (index == 7)), dtype=torch.uint8), path='a.png')


@pytest.fixture
def free(monkeypatch):
    """The bytes that are free in /dev/shm, as the check reads them."""
    known = types.SimpleNamespace(free=0)
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: known)
    return known


def test_what_the_workers_hold_ready_must_fit(free):
    """Workers x batches x images x the largest image, to the byte; random states stay."""
    loader = DataLoader(Images(), batch_size=4, num_workers=3, prefetch_factor=5)
    needed, before = 3 * 5 * 4 * 2 * IMAGE, random_states()
    for missing in (1, 0, -1):
        free.free = needed - missing
        if missing > 0:
            with pytest.raises(TrainingError, match=r'3 processes x 5 batches x 4 images.*--shm-size.*train_d'):
                shared_memory.require_shared_memory(loader, 'train_dataloader')
        else:
            shared_memory.require_shared_memory(loader, 'train_dataloader')
    assert torch.equal(torch.get_rng_state(), before[-1]) or str(random_states()) == str(before)
    free.free = 0
    shared_memory.require_shared_memory(DataLoader(Images(), batch_size=4), 'train_dataloader')


def test_tensors_are_counted_wherever_they_are():
    boxes, mask = torch.zeros(5, 4), torch.zeros(1, 6, 7, dtype=torch.uint8)
    sample = SegDataSample(gt_sem_seg=PixelData(data=mask))
    sample.objects = InstanceData(bboxes=HorizontalBoxes(boxes), labels=torch.zeros(5, dtype=torch.int64))
    found = shared_memory.tensor_bytes(dict(inputs=[torch.zeros(3, 2, 2)], data_samples=(sample,), name='a'))
    assert found == 3 * 2 * 2 * 4 + 5 * 4 * 4 + 6 * 7 + 5 * 8


def test_training_without_room_is_one_line_before_the_first_step(config, tmp_path, monkeypatch, capsys):
    usage = shutil.disk_usage
    small = types.SimpleNamespace(free=1000)
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: small if path == shared_memory.SHARED else usage(path))
    assert main(['train', str(config), '--work-dir', str(tmp_path / 'run'), *SHORT]) == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith('mmlape: error: /dev/shm has 0.0 MiB free') and 'train_dataloader.num_workers=0' in line
    record = tiny.record(tmp_path / 'run')
    assert (record['state'], record['iter']) == ('failed', 0) and record['reason'] in line


LONG = """
train_dataloader.update(num_workers=2, persistent_workers=True)
train_cfg.update(max_iters=1000, val_interval=1000)
"""


def test_a_run_whose_images_do_not_come_ends_by_the_loader_s_timeout(config, tmp_path, capsys):
    """By the one of the config; where it has none, by one that is longer than any batch takes."""
    extra = LONG + "\ntrain_dataloader.update(timeout=2)\ntrain_pipeline.insert(0, dict(type='Stall'))\n"
    stalling = tiny.write_config(config.parent, config.parent / 'data', trouble.CONFIG + extra, 'stalling')
    assert main(['train', str(stalling), '--work-dir', str(tmp_path / 'run')]) == 1
    record, line = tiny.record(tmp_path / 'run'), capsys.readouterr().err.strip().splitlines()[-1]
    assert record['state'] == 'failed' and record['reason'] in line
    assert 'no batch came from the processes of the data loader' in line and 'train_dataloader.timeout' in line
    assert not [child for child in multiprocessing.active_children() if child.daemon]
    assert runner.BATCH_TIME > 60
