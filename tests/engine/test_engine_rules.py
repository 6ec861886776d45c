"""Rules of training in function calls: scaled rates, finite numbers, seeds, counts, evaluations that are due."""

import itertools
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from mmcv.cnn.bricks.transformer import MultiheadAttention
from mmengine.config import Config
from mmengine.dataset import DefaultSampler
from mmengine.hooks import EarlyStoppingHook as MMEngineHook
from torch import nn

from mmlape.errors import NotFiniteError, TrainingError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.inference.evaluator import _result
from mmlape.lab.runs import record
from mmlape.lab.runs.schema import Cost
from mmlape.lab.training import seeding
from mmlape.lab.training.hooks import EarlyStoppingHook, NaNGuardHook, PerClassHook
from mmlape.lab.training.hooks.run import finite
from mmlape.lab.training.optim import InitialModel, build_model
from mmlape.lab.training.runner import Runner


def test_every_groups_rate_is_multiplied_by_the_share_of_the_batch():
    groups = [dict(lr=0.4), dict(lr=0.1)]
    wrapper = SimpleNamespace(optimizer=SimpleNamespace(param_groups=groups))
    plan = SimpleNamespace(batch=SimpleNamespace(total=16))
    runner = SimpleNamespace(plan=plan, logger=SimpleNamespace(info=lambda text: None))
    Runner.scale_lr(runner, wrapper, dict(enable=True, base_batch_size=64))
    assert [group['lr'] for group in groups] == pytest.approx([0.1, 0.025])
    Runner.scale_lr(runner, wrapper, dict(enable=False, base_batch_size=64))
    Runner.scale_lr(runner, wrapper, None)
    assert [group['lr'] for group in groups] == pytest.approx([0.1, 0.025])


def test_a_model_is_that_of_a_new_process_whatever_was_built_before():
    """MMCV makes the dropout of an attention, as DETR's, the default of every later one."""
    segmenter = load_config(str(tiny.ROOT / 'configs/segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade.py'))
    before = build_model(segmenter)
    with pytest.warns(DeprecationWarning, match='dropout'):
        assert MultiheadAttention(8, 2, dropout=0.1).dropout_layer.p == MultiheadAttention(8, 2).dropout_layer.p == 0.1
    assert repr(build_model(segmenter)) == repr(before)
    assert not any(module.p for module in before.decode_head.modules() if isinstance(module, torch.nn.Dropout))


def test_a_model_built_before_its_runner_is_the_one_that_the_runner_builds(tmp_path):
    """Its weights, and the random numbers after it, which initialise what is not initialised yet."""
    options = dict(work_dir=str(tmp_path), randomness=dict(seed=3), log_level='ERROR', default_scope='mmpretrain')
    cfg = Config(dict(options, model=dict(type='LinearClsHead', num_classes=3, in_channels=4)))
    seen = []
    for initial in (None, InitialModel.build(cfg, 3)):
        runner = Runner.from_cfg(cfg, initial)
        numbers = torch.rand(1).item(), np.random.rand(), random.random()
        seen.append((*numbers, *runner.model.state_dict()['fc.weight'].flatten().tolist()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize('value', [math.nan, math.inf, -math.inf])
def test_neither_weights_nor_losses_nor_metrics_are_infinite(value, monkeypatch, tmp_path):
    model = nn.Linear(2, 2)
    runner = SimpleNamespace(bare_model=model, iter=4, work_dir=str(tmp_path))
    Runner.check_finite(runner)
    with torch.no_grad():
        model.bias[1] = value
    with pytest.raises(NotFiniteError, match='weight bias is not finite after iteration 5'):
        Runner.check_finite(runner)
    hook = NaNGuardHook()
    hook.after_train_iter(runner, 0, outputs=dict(loss=torch.tensor(2.0)))
    with pytest.raises(NotFiniteError, match=rf'not finite at iteration 5: loss = {value}'):
        hook.after_train_iter(runner, 0, outputs=dict(loss=torch.tensor(value)))
    assert finite({'a': value, 'b': 2}) == {'a': None, 'b': 2.0}
    loop = SimpleNamespace(dataloader=SimpleNamespace(dataset=[1]))
    tested = SimpleNamespace(hooks=[PerClassHook()], test_loop=loop)
    tested.hooks[0].values = {'IoU': {'sky': value}}
    result = _result(Config(dict()), 'a.pth', tested, {'a': value, 'b': 2})
    assert result['metrics'] == {'a': None, 'b': 2.0} and result['per_class'] == {'IoU': {'sky': None}}


# seeds


class Noise(torch.utils.data.Dataset):
    """Each sample is what the three generators say."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return index, float(np.random.rand()), torch.rand(1).item()


def _samples(sampler, count):
    dataset = seeding.SeededDataset(Noise())
    return [dataset[index] for index in itertools.islice(iter(sampler), count)]


def test_a_batch_is_its_samples_one_by_one():
    sampler = seeding.SeededSampler(DefaultSampler(Noise(), seed=3), 3)
    alone = _samples(sampler, 12)
    seeding.seed_everything(1)
    expected = np.random.rand(), torch.rand(1)
    seeding.seed_everything(1)
    assert seeding.SeededDataset(Noise()).__getitems__(list(sampler)) == alone
    assert (np.random.rand(), torch.rand(1)) == expected
    seeding.seed_everything(1)
    plain, _ = seeding.SeededDataset(Noise()).__getitems__([3, 4])  # without seeds: the common generators go on
    assert plain[1:] == (expected[0], expected[1].item()) and np.random.rand() != expected[0]


def test_a_dataset_whose_samples_are_stored_does_not_change():
    dataset = seeding.SeededDataset(Noise())
    dataset.read_from(lambda index, view: index)
    with pytest.raises(TrainingError, match='pipeline of a dataset'):
        dataset.pipeline = []


def test_a_pass_after_a_skipped_one_is_complete():
    sampler = seeding.SkippingBatchSampler(seeding.SeededSampler(DefaultSampler(Noise(), shuffle=False, seed=3), 3), 2)
    sampler.skip(4)
    assert [len(list(sampler)) for _ in range(3)] == [2, 6, 6]


# counts


def test_gpu_hours_are_of_all_processes_and_memory_is_in_mebibytes(monkeypatch):
    monkeypatch.setattr('torch.cuda.is_available', lambda: True)
    monkeypatch.setattr('torch.cuda.max_memory_allocated', lambda: 3 * 2**20)
    monkeypatch.setattr('mmengine.dist.get_world_size', lambda: 4)
    found = record.cost(1800.0, 0.25, 7, Cost())
    assert (found.gpu_hours, found.peak_memory_mib, found.train_seconds) == (2.0, 3.0, 1800.0)
    monkeypatch.setattr('mmengine.dist.get_world_size', lambda: 1)
    resumed = record.cost(3600.0, 0.25, 7, found)
    assert (resumed.gpu_hours, resumed.train_seconds) == (3.0, 5400.0)
    assert (found.seconds_per_iter, found.parameters, found.memory_kind) == (0.25, 7, 'allocated on one GPU')
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)
    monkeypatch.setattr(record.resource, 'getrusage', lambda who: SimpleNamespace(ru_maxrss=5 * 2**10))
    found = record.cost(1800.0, None, 7, Cost())
    assert (found.gpu_hours, found.peak_memory_mib) == (None, 5.0)


@given(scores=st.lists(st.sampled_from((0.0, 0.1, 0.2, 0.3)), min_size=1, max_size=12), patience=st.integers(1, 3))
def test_patience_begins_when_the_score_has_left_zero(scores, patience):
    options = dict(monitor='mAP', rule='greater', min_delta=0.0, patience=patience)
    zeros = list(itertools.takewhile(lambda score: score == 0, scores))
    runs = []
    for hook, seen in ((EarlyStoppingHook(**options), scores), (MMEngineHook(**options), scores[len(zeros) :])):
        loop = SimpleNamespace(stop_training=False)
        runner = SimpleNamespace(train_loop=loop, logger=SimpleNamespace(info=str))
        steps = []
        for score in seen:
            hook.after_val_epoch(runner, dict(mAP=score))
            steps.append(loop.stop_training)
        runs.append(steps)
    assert runs[0] == [False] * len(zeros) + runs[1]
