"""Two processes with sharded weights train, evaluate, save and resume as two with a copy each do."""

import json
import sys

import pytest
import tiny
import torch
from PIL import Image
from torch.distributed.fsdp import FSDPModule

from mmlape.checkpoint import read_checkpoint
from mmlape.errors import ConfigError
from mmlape.lab.engine.config import load_config
from mmlape.lab.engine.evaluator import test as evaluate
from mmlape.lab.engine.plan import plan_run

CAN_SHARD = hasattr(FSDPModule, 'set_force_sum_reduction_for_comms')
needs_torch_2_9 = pytest.mark.skipif(not CAN_SHARD, reason='this torch does not average gradients on the CPU')
TRAIN = tiny.ROOT / 'tools' / 'dist_train.sh'
# windows of an image: how many times a layer runs in an evaluation differs between the processes
EXTRA = """
model['test_cfg'] = dict(mode='slide', crop_size=(32, 32), stride=(32, 32))
optim_wrapper['clip_grad'] = dict(max_norm=0.3)
auto_scale_lr['base_batch_size'] = 4
"""


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp('tiny')
    data = tiny.write_data(folder / 'data')
    for kind in ('images', 'annotations'):
        path = data / kind / 'validation' / '1.png'
        Image.open(path).resize((144, 48), Image.Resampling.NEAREST).save(path)
    return tiny.write_config(folder, data, EXTRA)


def train(config, name, *words, options=()):
    words = ('--work-dir', config.parent / name, '--seed', 5, '--log-grad-norm', 2, *words)
    words += ('--cfg-options', *options) if options else ()
    return tiny.run(TRAIN, config, 2, *words, cwd=config.parent, CUDA_VISIBLE_DEVICES='')


@pytest.fixture(scope='module')
def copies(config):
    train(config, 'ddp')
    return config.parent / 'ddp'


@pytest.fixture(scope='module')
def shards(config):
    if not CAN_SHARD:
        pytest.skip('this torch does not average gradients on the CPU')
    train(config, 'fsdp', options=('distributed=fsdp',))
    return config.parent / 'fsdp'


def leaves(node, key=''):
    """Everything in nested dicts and lists, by its place."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else None
    if children is None:
        return {key: node}
    return {place: leaf for name, child in children for place, leaf in leaves(child, f'{key}.{name}').items()}


def assert_same(first, second):
    """Weights and the optimiser's state: whole, plain, of the same names, and nearly equal."""
    one, two = (read_checkpoint(path) for path in (first, second))
    assert list(one) == list(two)
    for part in ('state_dict', 'optimizer'):
        found, expected = leaves(one[part]), leaves(two[part])
        assert list(found) == list(expected)
        for name, value in expected.items():
            if not isinstance(value, torch.Tensor):
                assert found[name] == value, name
                continue
            assert type(found[name]) is torch.Tensor and found[name].dtype == value.dtype
            torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6, msg=name)


def scalars(work_dir, prefix):
    rows = map(json.loads, next(work_dir.glob('*/vis_data/scalars.json')).read_text().splitlines())
    return [value for row in rows for key, value in sorted(row.items()) if key.startswith(prefix)]


@pytest.mark.release
def test_shards_train_and_evaluate_as_copies(copies, shards):
    for step in (3, 6):
        assert_same(shards / f'iter_{step}.pth', copies / f'iter_{step}.pth')
    run, other = tiny.record(shards), tiny.record(copies)
    assert (run['distributed'], other['distributed']) == ('fsdp', 'ddp')
    assert run['identity']['settings_sha256'] == other['identity']['settings_sha256'], 'their seeds may be averaged'
    assert len(tiny.evaluations(shards)) == 2
    for prefix, count in (('grad_norm', 6 + 4 * 7), ('loss', 6)):  # each step's, and those of the parts and all
        found = scalars(shards, prefix)
        assert len(found) == count
        assert found == pytest.approx(scalars(copies, prefix), rel=1e-4)
    assert min(scalars(shards, 'grad_norm/all')) > 0.3, 'gradients were clipped'


@pytest.mark.release
@needs_torch_2_9
def test_shards_resume_what_copies_started(config, copies):
    train(config, 'crossed', '--resume', copies / 'iter_3.pth', options=('distributed=fsdp',))
    assert_same(config.parent / 'crossed' / 'iter_6.pth', copies / 'iter_6.pth')


def test_one_process_tests_what_shards_trained(config, shards):
    for entry in tiny.evaluations(shards):
        step = entry['step']
        found = evaluate(load_config(config), shards / f'iter_{step}.pth', config.parent / f'test_{step}')
        assert entry['metrics'] == pytest.approx(found['metrics'], rel=1e-6)


@pytest.mark.release
@needs_torch_2_9
def test_models_of_every_form():
    script = tiny.ROOT / 'tests' / 'sharding_processes.py'
    launch = (sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', 2, script)
    assert tiny.run(*launch, cwd=tiny.ROOT, CUDA_VISIBLE_DEVICES='').count('all equal') == 2


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(distributed='zero'), "distributed='zero': choose from ddp, fsdp"),
        (dict(custom_hooks=[dict(type='EMAHook')]), 'EMAHook, which averages full weights'),
        (dict(custom_hooks=[dict(type='mmdet.MeanTeacherHook')]), 'mmdet.MeanTeacherHook'),
        (dict(compile_backbone=True), 'compile_backbone'),
        (dict(find_unused_parameters=True), 'find_unused_parameters'),
        (dict(model_wrapper_cfg=dict(type='MMDistributedDataParallel')), 'model_wrapper_cfg'),
        (dict(optim_wrapper=dict(type='AmpOptimWrapper', dtype='float16')), r'fp16 \(use bf16\)'),
    ],
)
def test_what_shards_cannot_do_is_refused(config, changes, message):
    cfg = load_config(config)
    cfg.merge_from_dict({'distributed': 'fsdp', **changes})
    with pytest.raises(ConfigError, match=message):
        plan_run(cfg, 2)
