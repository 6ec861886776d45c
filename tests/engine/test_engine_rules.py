"""Rules of training: scaled rates, finite numbers, seeds, counts, right convolutions, batches that fit and come."""

import itertools
import math
import multiprocessing
import random
import shutil
import types
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
import trouble
from hypothesis import given
from hypothesis import strategies as st
from mmcv.cnn.bricks.transformer import MultiheadAttention
from mmdet.structures.bbox import HorizontalBoxes
from mmdet.structures.mask import BitmapMasks
from mmengine.config import Config
from mmengine.dataset import DefaultSampler
from mmengine.hooks import EarlyStoppingHook as MMEngineHook
from torch import nn
from torch.utils.data import DataLoader

import mmlape.bf16
from mmlape.bf16 import require_right_convolutions
from mmlape.cli import main
from mmlape.errors import ConfigError, NotFiniteError, TrainingError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.distributed import set_model_wrapper
from mmlape.lab.inference.evaluator import _result
from mmlape.lab.runs import record
from mmlape.lab.runs.schema import Cost
from mmlape.lab.training import seeding, workers
from mmlape.lab.training.hooks import EarlyStoppingHook, NaNGuardHook, PerClassHook
from mmlape.lab.training.hooks.run import finite
from mmlape.lab.training.optim import BFloat16OptimWrapper, InitialModel, build_model
from mmlape.lab.training.runner import Runner
from mmlape.lab.training.seeding import random_states
from mmlape.models import TimmViT


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
def test_neither_weights_nor_losses_nor_metrics_are_infinite(value, tmp_path):
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


CONV2D = F.conv2d


def wrong(image, weight, *args):
    """Convolve, wrongly in bfloat16."""
    return CONV2D(image, weight, *args) * (2 if image.dtype == torch.bfloat16 else 1)


@pytest.mark.parametrize('shape', [(3, 16, 16), (4, 16, 16), (16, 4, 4), (8, 14, 14), (32, 3, 2)])
def test_a_shape_is_refused_where_another_input_shows_it_wrong(shape):
    channels, kernel, stride = shape
    conv = nn.Conv2d(channels, 96, kernel, stride, bias=False)
    image = torch.rand(2, channels, 7 * stride + kernel, 7 * stride + kernel)
    with torch.no_grad():
        expected = conv(image)
        found = F.conv2d(image.bfloat16(), conv.weight.bfloat16(), None, stride).float()
    state = torch.random.get_rng_state()
    if (found - expected).norm() > 0.1 * expected.norm():
        with pytest.raises(ConfigError, match=f'0: PyTorch convolves {channels} channels by {kernel} x {kernel}'):
            require_right_convolutions(nn.Sequential(conv))
    else:
        require_right_convolutions(nn.Sequential(conv))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_processes_wait_for_unused_parameters_where_the_config_says_so():
    for wanted in (True, False):
        cfg = Config(dict(launcher='pytorch', find_unused_parameters=wanted))
        set_model_wrapper(cfg)
        assert cfg.model_wrapper_cfg.find_unused_parameters is wanted


def test_training_and_a_frozen_vit_are_refused(monkeypatch):
    monkeypatch.setattr(mmlape.bf16.F, 'conv2d', wrong)
    model = nn.Sequential(nn.Conv2d(3, 8, 4, 4))
    wrapper = BFloat16OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ConfigError, match='ONEDNN_MAX_CPU_ISA'), wrapper.optim_context(model):
        pass
    vit = TimmViT('test_vit', frozen=True, frozen_dtype='bf16', pretrained=False)
    with pytest.raises(ConfigError, match='proj: PyTorch convolves 3 channels'):
        vit(torch.zeros(1, 3, 32, 32))


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
