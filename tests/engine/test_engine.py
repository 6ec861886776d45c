"""Configurations and overrides, work dirs, processes, hooks and precision."""

import os

import pytest
import tiny
import torch
from mmengine.config import ConfigDict
from mmengine.runner import get_priority

from mmlape.errors import CheckpointError, ConfigError, TrainingError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.recipe import Recipe
from mmlape.lab.runs.record import Recorder
from mmlape.lab.runs.resume import acquire, find_checkpoint
from mmlape.lab.runs.schema import Failure, Identity, RunRecord
from mmlape.lab.training import hooks
from mmlape.lab.training.optim import set_amp
from mmlape.lab.training.trainer import train


@pytest.fixture
def config_file(tmp_path):
    return tiny.write_config(tmp_path, tmp_path / 'data')


# configurations


OWN = """
import torch
from each import each
from mmengine.hooks import Hook
from mmengine.registry import HOOKS, MODELS

@HOOKS.register_module()
class ChekpointHook(Hook):
    def __init__(self, intervall=1):
        self.interval = intervall

@MODELS.register_module()
class AnyBackbone(torch.nn.Module):
    def __init__(self, **kwargs):
        super().__init__()
"""


def test_a_files_own_variables_keys_and_classes_are_taken(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / 'own_classes.py').write_text(OWN)
    base = tiny.write_config(
        tmp_path, tmp_path / 'data', "crop = 32\nmodel_size = 'tiny'\nval_pipeline = test_pipeline\n"
    )
    base.write_text(base.read_text() + "val_dataloader['dataset']['pipeline'] = val_pipeline\ntest_pipelines = []\n")
    child = tmp_path / 'child.py'
    child.write_text(
        "_base_ = './tiny.py'\n"
        "custom_imports = dict(imports=['own_classes'])\n"
        "custom_hooks = [dict(type='ChekpointHook', intervall=3, priority='LOW')]\n"
        'train_pipelines = _base_.test_pipelines\n'
        "model = dict(backbone=dict(_delete_=True, type='AnyBackbone', num_layer=3), neck=train_pipelines)\n"
    )
    assert load_config(child).custom_hooks[0].intervall == 3
    child.write_text(f'{child.read_text()}optim_wraper = 3\n')
    with pytest.raises(ConfigError, match=r"if it is meant: own_keys=\['optim_wraper'\]"):
        load_config(child)
    child.write_text(f"{child.read_text()}own_keys = ['optim_wraper', 'train_dataloader.batchsize']\n")
    child.write_text(f'{child.read_text()}train_dataloader = dict(batchsize=3)\n')
    load_config(child)


# work dirs and records


def checkpoint(path, value=0):
    torch.save(dict(state_dict=dict(w=torch.full((200,), float(value)))), path)
    return path


def test_a_run_without_a_checkpoint_keeps_its_work_dir_while_it_lasts(tmp_path):
    Recorder(tmp_path, RunRecord(config='a.py', iter=3)).write()
    with pytest.raises(TrainingError, match=r'already used .*a\.py that is running at iteration 3.*--resume'):
        find_checkpoint(tmp_path, False)
    Recorder(tmp_path, RunRecord(config='a.py')).fail(Failure(kind='error'))
    assert find_checkpoint(tmp_path, False) is None, 'nothing was lost'


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    checkpoint(tmp_path / 'iter_9.pth')
    whole = checkpoint(tmp_path / 'iter_10.pth').read_bytes()
    (tmp_path / 'iter_20.pth').write_bytes(whole[: len(whole) // 2])
    flipped = bytearray(whole)
    flipped[whole.index(b'\0' * 64)] ^= 1
    (tmp_path / 'iter_15.pth').write_bytes(flipped)
    (tmp_path / '.iter_30.123.pth').write_bytes(whole)
    printed = []
    assert find_checkpoint(tmp_path, True, printed.append) == tmp_path / 'iter_10.pth'
    assert 'iter_20.pth is damaged' in printed[0] and 'iter_15.pth is damaged' in printed[1]
    for name, message in (('iter_20.pth', 'damaged'), ('iter_11.pth', 'no such file')):
        with pytest.raises(CheckpointError, match=message):
            find_checkpoint(tmp_path, str(tmp_path / name))


def test_what_a_kill_left_half_written_is_deleted(tmp_path):
    partial = tmp_path / '.iter_30.123.pth'
    partial.write_bytes(b'half')
    start = acquire(tmp_path, Identity(), None, resume=False)
    os.close(start.lock)
    assert not partial.exists() and start.checkpoint is None and isinstance(start.identity.seed, int)


# processes, batch, precision


def test_hooks_are_put_in_once():
    cfg = ConfigDict(custom_hooks=[dict(type='mmlape.NaNGuardHook', priority=0)])
    for _ in range(2):
        hooks.install(Recipe.of(cfg), *hooks.ALWAYS)
    assert sorted(hook['type'] for hook in cfg['custom_hooks']) == sorted(f'mmlape.{name}' for name in hooks.ALWAYS)
    assert cfg['default_hooks']['checkpoint']['type'] == 'mmlape.CheckpointHook'
    priorities = [get_priority(getattr(hooks, name).priority) for name in hooks.ALWAYS]
    assert priorities == sorted(priorities), 'they are named in their order'


def test_fp16_needs_a_gpu_and_bf16_does_not(config_file):
    cfg = load_config(config_file)
    set_amp(Recipe.of(cfg), 'bf16')
    assert cfg.optim_wrapper.type == 'mmlape.BFloat16OptimWrapper' and 'paramwise_cfg' in cfg.optim_wrapper
    set_amp(Recipe.of(cfg), 'fp16')  # on a login node, for jobs that have GPUs
    assert (cfg.optim_wrapper.type, cfg.optim_wrapper.dtype) == ('AmpOptimWrapper', 'float16')
    assert cfg.optim_wrapper.loss_scale == 'dynamic'
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match='fp16 needs a GPU'):
            train(cfg, amp='fp16')
    with pytest.raises(ConfigError, match='cannot replace'):
        set_amp(Recipe.of(dict(optim_wrapper=dict(type='DeepSpeedOptimWrapper'))), 'bf16')
