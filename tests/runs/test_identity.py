"""What a run is: what counts, what does not, how differences are named; locks; one work dir, one run."""

import copy
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
import torch
from each import each

from mmlape.cli import main
from mmlape.errors import TrainingError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.config.known_keys import runner_keys
from mmlape.lab.recipe import Recipe
from mmlape.lab.runs.identity import (
    checkpoint_keys,
    collect,
    differences,
    digest,
    joined_digest,
    named_differences,
    read_identity,
    settings,
)
from mmlape.lab.runs.record import lock_run, running_in
from mmlape.lab.runs.schema import StartWeights
from mmlape.lab.training.trainer import train

PLAN = dict(world_size=1, total_batch=2)
DETECTOR = 'mmlape::mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco'


def identity_of(path, *options, seed=3, plan=PLAN, policy='recipe'):
    return collect(Recipe.of(load_config(path, list(options))), seed, **plan, batch_policy=policy)


def _everything():
    """A value for every key of a configuration."""
    dataset = dict(type='D', data_root='data/a', ann_file='data/a/list.txt', pipeline=[dict(type='Resize', scale=8)])
    loader = dict(batch_size=2, num_workers=1, sampler=dict(type='S', shuffle=True), dataset=dataset)
    wrapper = dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=0.1), accumulative_counts=1)
    return dict(
        default_scope='mmseg',
        model=dict(type='M', backbone=dict(type='B', with_cp=False, init_cfg=dict(checkpoint='a.pth'))),
        data_preprocessor=dict(type='P', mean=[1.0]),
        train_dataloader=loader,
        val_dataloader=copy.deepcopy(loader),
        test_dataloader=copy.deepcopy(loader),
        val_evaluator=dict(type='E', metric='m', collect_device='cpu', outfile_prefix='a'),
        test_evaluator=dict(type='E', metric='m'),
        train_cfg=dict(max_iters=6, val_interval=3),
        val_cfg=dict(type='ValLoop'),
        test_cfg=dict(type='TestLoop'),
        optim_wrapper=wrapper,
        param_scheduler=[dict(type='PolyLR', end=6)],
        load_from='b.pth',
        load_fresh=['head.'],
        load_strict=True,
        sync_bn='torch',
        efficient_conv_bn_eval=True,
        cache_features=dict(views=4, dtype='float16', per_seed=True, cache_dir='c'),
        data_fraction='1/4',
        data_fraction_seed=1,
        auto_scale_lr=dict(enable=True, base_batch_size=8),
        randomness=dict(seed=1, deterministic=False, diff_rank_seed=False),
        custom_hooks=[dict(type='EMAHook', momentum=0.1), dict(type='mmlape.GradientNormHook', interval=5)],
        default_hooks=dict(logger=dict(type='LoggerHook', interval=1), checkpoint=dict(interval=3)),
        work_dir='w', experiment_name='e', log_level='INFO', log_processor=dict(by_epoch=False), launcher='none',
        visualizer=dict(type='V'), vis_backends=[dict(type='B')], env_cfg=dict(cudnn_benchmark=False), resume=False,
        distributed='ddp', model_wrapper_cfg=dict(type='W'), find_unused_parameters=False, compile=False,
        compile_backbone=False, activation_checkpointing=['b'], custom_imports=dict(imports=['a']), data_root='data/a',
        tta_model=dict(type='T'), tta_pipeline=[dict(type='R')], own_keys=['model.a'], mini_data_options='--objects',
    )  # fmt: skip


COUNTS = (
    'default_scope', 'model.type', 'model.backbone.type', 'data_preprocessor.mean.0',
    'train_dataloader.sampler.shuffle', 'train_dataloader.dataset.type',
    'train_dataloader.dataset.pipeline.0.scale', 'train_dataloader.dataset.ann_file',
    'val_dataloader.batch_size', 'val_dataloader.dataset.pipeline.0.scale', 'val_evaluator.metric',
    'train_cfg.max_iters', 'train_cfg.val_interval', 'val_cfg.type', 'optim_wrapper.optimizer.lr',
    'optim_wrapper.optimizer.type', 'optim_wrapper.accumulative_counts', 'param_scheduler.0.type',
    'param_scheduler.0.end', 'load_fresh.0', 'load_strict', 'sync_bn', 'efficient_conv_bn_eval', 'data_fraction',
    'data_fraction_seed', 'auto_scale_lr.enable', 'auto_scale_lr.base_batch_size', 'randomness.diff_rank_seed',
    'custom_hooks.0.type', 'custom_hooks.0.momentum', 'cache_features.views', 'cache_features.dtype',
    'cache_features.per_seed',
)  # fmt: skip
COUNTS_NOT = (
    'model.backbone.with_cp', 'model.backbone.init_cfg.checkpoint', 'train_dataloader.batch_size',
    'train_dataloader.num_workers', 'val_dataloader.num_workers', 'test_dataloader.batch_size',
    'test_dataloader.dataset.type', 'val_evaluator.collect_device', 'val_evaluator.outfile_prefix',
    'test_evaluator.metric', 'test_cfg.type', 'optim_wrapper.type', 'load_from', 'randomness.seed',
    'randomness.deterministic', 'custom_hooks.1.interval', 'default_hooks.logger.interval',
    'default_hooks.checkpoint.interval', 'work_dir', 'experiment_name', 'log_level', 'log_processor.by_epoch',
    'launcher', 'visualizer.type', 'vis_backends.0.type', 'env_cfg.cudnn_benchmark', 'resume', 'distributed',
    'model_wrapper_cfg.type', 'find_unused_parameters', 'compile', 'compile_backbone', 'activation_checkpointing.0',
    'custom_imports.imports.0', 'data_root', 'tta_model.type', 'tta_pipeline.0.type',
    'own_keys.0', 'mini_data_options', 'cache_features.cache_dir',
)  # fmt: skip
OTHERS = {
    'optim_wrapper.type': 'AmpOptimWrapper', 'train_dataloader.dataset.ann_file': 'data/a/other.txt',
    'data_fraction': '1/2', 'randomness.diff_rank_seed': None, 'data_root': 'data/b',
}  # fmt: skip


def test_which_keys_are_part_of_what_a_run_is():
    """Each by itself: another value is another run, or it is not."""
    for key in each([*COUNTS, *COUNTS_NOT]):
        cfg, other = _everything(), _everything()
        *path, last = key.split('.')
        node = other
        for part in path:
            node = node[int(part) if part.isdecimal() else part]
        value = node[int(last) if last.isdecimal() else last]
        changed = not value if isinstance(value, bool) else value + 1 if isinstance(value, int | float) else 'another'
        node[int(last) if last.isdecimal() else last] = OTHERS.get(key, changed)
        mine, theirs = settings(Recipe.of(cfg)), settings(Recipe.of(other))
        assert (digest(mine) != digest(theirs)) == (key in COUNTS)
        if key in COUNTS:
            assert any(
                line.startswith(key.split('.')[0].removesuffix('_seed')) for line in named_differences(mine, theirs)
            )


def test_no_key_of_a_configuration_is_forgotten():
    """Those above are all that the runner takes, and what this package adds."""
    named = {key.split('.')[0] for key in (*COUNTS, *COUNTS_NOT)}
    assert named == set(_everything())
    assert runner_keys() <= named, runner_keys() - named


def test_one_data_root_may_be_inside_another():
    def of(everything, one):
        dataset = dict(data_root=f'{one}/', ann_file=f'{one}/list.txt')
        other = dict(ann_file=f'{everything}/other.txt')
        return settings(Recipe.of(dict(data_root=everything, train_dataloader=dict(datasets=[dataset, other]))))

    kept = of('/data', '/data/one')
    assert kept == of('/home/me', '/scratch/one')
    assert kept['train_dataloader']['datasets'][0] == dict(data_root='DATA', ann_file='DATA/list.txt')


def test_settings_survive_json_and_the_order_of_keys(config):
    cfg = load_config(config)
    kept = settings(Recipe.of(cfg))
    assert json.loads(json.dumps(kept)) == kept
    assert digest(dict(reversed(kept.items()))) == digest(kept)
    assert settings(Recipe.of(load_config(DETECTOR)))['train_dataloader']['dataset']['data_root'] == 'DATA'


def test_weights_are_compared_by_their_bytes(tmp_path):
    first, second, same = (tmp_path / name for name in ('a.pth', 'b.pth', 'c.pth'))
    first.write_bytes(b'one'), second.write_bytes(b'two'), same.write_bytes(b'one')
    found = {}
    for path in (first, second, same, tmp_path / 'missing.pth', tmp_path / 'x' / 'a.pth'):
        found[path] = identity_of(DETECTOR, f'model.backbone.init_cfg.checkpoint={path}')
    assert found[first].checkpoint == StartWeights(name='a.pth', sha256=hashlib.sha256(b'one').hexdigest())
    assert found[tmp_path / 'missing.pth'].checkpoint == StartWeights(name='missing.pth')
    assert differences(found[first], found[same], for_resume=True) == []
    assert differences(found[first], found[second], for_resume=True) == [
        f'checkpoint: a.pth ({hashlib.sha256(b"one").hexdigest()[:8]}) -> '
        f'b.pth ({hashlib.sha256(b"two").hexdigest()[:8]})'
    ]
    assert differences(found[first], found[tmp_path / 'x' / 'a.pth'], for_resume=True) == [], 'its name has to do'
    cfg = dict(load_from=str(first), model=dict(teacher_checkpoint=str(second)))
    assert joined_digest(dict(checkpoint_keys(cfg)).values()).name == 'a.pth + b.pth'


def test_what_must_be_equal_depends_on_the_purpose(config):
    mine = identity_of(config)
    seeds = identity_of(config, seed=4)
    assert differences(mine, seeds, for_resume=False) == []
    assert differences(mine, seeds, for_resume=True) == ['seed: 3 -> 4']
    assert differences(mine, mine, for_resume=True) == []
    assert differences(mine, mine, for_resume=False) == ['seed: both have 3']
    processes = identity_of(config, plan=dict(world_size=2, total_batch=2))
    assert differences(mine, processes, for_resume=True) == []
    assert 'world_size: 1 -> 2' in differences(mine, processes, for_resume=False)
    batch = identity_of(config, plan=dict(world_size=1, total_batch=4), policy='allow-batch-mismatch')
    lines = ['total_batch: 2 -> 4', 'batch_policy: recipe -> allow-batch-mismatch']
    assert differences(mine, batch, for_resume=True) == lines
    interval = identity_of(config, 'train_cfg.val_interval=7')
    assert differences(mine, interval, for_resume=True) == []
    assert differences(mine, interval, for_resume=False)[0].startswith('config: train_cfg.val_interval ')


# locks


def test_a_training_s_work_dir_is_locked_while_it_lasts(config, tmp_path, capsys):
    words = (tiny.ROOT / 'tools' / 'train.py', config, '--work-dir', tmp_path / 'run', '--seed', 1)
    running = tiny.start(*words, cwd=config.parent, TROUBLE='wait:3')
    for line in running.stdout:
        if line.startswith('waiting'):
            break
    holder = running_in(tmp_path / 'run')['pid']
    assert str(tmp_path / 'run') in Path(f'/proc/{holder}/cmdline').read_text(), 'the process that trains'
    assert main(['train', str(config), '--work-dir', str(tmp_path / 'run'), '--resume']) == 1
    assert f'is in use by process {holder}' in capsys.readouterr().err
    os.kill(holder, 9)
    running.wait()
    assert running_in(tmp_path / 'run') is None
    assert tiny.record(tmp_path / 'run')['state'] == 'running', 'nobody was there to write'


def test_a_forked_worker_does_not_keep_the_lock(tmp_path):
    """What a killed training leaves behind must not keep its work dir."""
    script = (
        'import os, sys, time\n'
        'from mmlape.lab.runs.record import lock_run\n'
        f'lock_run({str(tmp_path)!r})\n'
        'if os.fork() == 0:\n'
        '    time.sleep(1800)\n'
        'print("locked", flush=True)\n'
        'time.sleep(1800)\n'
    )
    words = [sys.executable, '-c', script]
    running = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env=tiny.environment(), start_new_session=True
    )
    try:
        assert running.stdout.readline() == 'locked\n'
        with pytest.raises(TrainingError, match='is in use'):
            lock_run(tmp_path)
        os.kill(running.pid, 9)
        running.wait()
        os.close(lock_run(tmp_path))
    finally:
        os.killpg(running.pid, 9)


# runs


def test_a_run_records_its_identity(config, tmp_path):
    record = train(load_config(config), tmp_path, seed=5)
    identity = read_identity(tmp_path)
    expected = identity_of(config, seed=5)
    assert replace(expected, code=identity.code, data=identity.data) == identity
    assert identity.settings == json.loads((tmp_path / 'settings.json').read_text())
    assert digest(identity.settings) == identity.settings_sha256
    assert record.device and record.host and record.updated > 1.7e9 and record.failure is None
    cost = record.cost
    assert cost.parameters == 28723 and cost.seconds_per_iter > 0 and cost.train_seconds > 0
    assert cost.peak_memory_mib > 1 and (cost.gpu_hours is None) == (not torch.cuda.is_available())
    classes = record.last.per_class['IoU']
    assert list(classes) == list(tiny.CLASSES)
    assert sum(classes.values()) / 3 == pytest.approx(record.last.metrics['mIoU'])
    assert running_in(tmp_path) is None


def test_other_software_resumes_only_when_it_is_allowed(config, tmp_path, capsys):
    cfg = load_config(config)
    train(cfg, tmp_path, seed=5)
    (tmp_path / 'iter_6.pth').unlink()
    content = tiny.record(tmp_path)
    content['state'], content['identity']['stack']['torch'] = 'failed', '1.0'
    (tmp_path / 'run.json').write_text(json.dumps(content))
    with pytest.raises(TrainingError, match=r'stack: torch 1\.0 -> .*--allow-different-software'):
        train(cfg, tmp_path, resume=True)
    words = ['train', str(config), '--work-dir', str(tmp_path), '--resume', '--allow-different-software']
    assert main(words) == 0
    record = tiny.record(tmp_path)
    assert record['state'] == 'finished' and record['iter'] == 6
    assert [line for line in record['software_changes'] if 'torch 1.0 -> ' in line]
    assert main([*words[:-1], '--cfg-options', 'train_cfg.max_iters=3']) == 1, 'a finished run is one run, too'
    assert 'train_cfg.max_iters 6 -> 3' in capsys.readouterr().err


def test_a_run_without_an_identity_is_compared_by_its_seed(config, tmp_path, capfd):
    cfg = load_config(config)
    train(cfg, tmp_path, seed=5)
    content = tiny.record(tmp_path)
    del content['identity']
    content['state'] = 'failed'
    (tmp_path / 'run.json').write_text(json.dumps(content))
    with pytest.raises(TrainingError, match='belongs to a run with seed 5, not 6'):
        train(cfg, tmp_path, resume=True, seed=6)
    assert 'has no identity' in ''.join(capfd.readouterr())
