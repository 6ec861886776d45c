"""mmdet's PipelineSwitchHook on our dataset: every sample from the switch on comes from the new pipeline."""

import logging
from types import SimpleNamespace

import pytest
import torch
from mmdet.engine.hooks import PipelineSwitchHook
from mmengine.dataset import BaseDataset
from mmengine.runner import Runner as MMRunner

from mmlape.lab.engine.seeding import SeededDataset, seeded_dataloader


class Numbers(BaseDataset):
    def load_data_list(self):
        return [dict(value=value) for value in range(6)]


def with_mark(mark):
    """A transform that returns the number and ``mark``."""
    return lambda sample: torch.tensor([sample['value'], mark])


def build_loader(workers, persistent):
    cfg = dict(
        batch_size=2,
        num_workers=workers,
        persistent_workers=persistent,
        sampler=dict(type='DefaultSampler', shuffle=True),
        dataset=dict(type=Numbers, pipeline=[with_mark(1)]),
        collate_fn=dict(type='default_collate'),
    )
    return MMRunner.build_dataloader(seeded_dataloader(cfg), seed=5)


@pytest.mark.parametrize(('workers', 'persistent'), [(0, False), (2, False), (2, True)])
def test_the_pipeline_is_switched_for_the_rest_of_the_run(workers, persistent):
    loader = build_loader(workers, persistent)
    assert isinstance(loader.dataset, SeededDataset) and loader.persistent_workers is persistent
    hook = PipelineSwitchHook(switch_epoch=2, switch_pipeline=[with_mark(2)])
    runner = SimpleNamespace(train_dataloader=loader, logger=logging.getLogger('switch'))
    marks, orders = [], []
    for runner.epoch in range(4):
        loader.batch_sampler.sampler.set_epoch(runner.epoch)
        hook.before_train_epoch(runner)
        samples = torch.cat(list(loader))
        marks.append(set(samples[:, 1].tolist()))
        orders.append(samples[:, 0].tolist())
    assert marks == [{1}, {1}, {2}, {2}]
    assert all(sorted(order) == list(range(6)) for order in orders)


def test_attributes_of_the_inner_dataset_are_set_through_the_wrapper():
    inner = Numbers(pipeline=[with_mark(1)])
    dataset = SeededDataset(inner)
    dataset.lazy_init = 'changed'
    assert inner.lazy_init == 'changed' and set(vars(dataset)) == {'dataset'}
