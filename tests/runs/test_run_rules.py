"""What a run keeps over an interruption, what a refused start leaves, what is started beside others and again."""

import json
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import portalocker
import pytest
import tiny
import torch
import trouble
from mmengine.runner import IterBasedTrainLoop
from synthetic import STACK, identity, settings, write_run

from mmlape.checkpoint import read_checkpoint
from mmlape.errors import CheckpointError, TrainingError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.decoding import decode
from mmlape.lab.experiments.multi_seed import average_arms
from mmlape.lab.experiments.planning import Arm
from mmlape.lab.runs import record
from mmlape.lab.runs.identity import read_identity
from mmlape.lab.runs.record import Recorder, lock_run, running_in
from mmlape.lab.runs.resume import acquire
from mmlape.lab.runs.schema import Identity, RunRecord
from mmlape.lab.training.hooks import RunRecordHook
from mmlape.lab.training.trainer import train

CHANGES = """
custom_hooks += [
    dict(type='EMAHook', momentum=0.05),
    dict(type='mmlape.SecondEvaluationHook', name='again', changes=dict(PackSegInputs=dict())),
]
train_cfg.update(max_iters=6, val_interval=2)
default_hooks['checkpoint'].update(interval=1, max_keep_ckpts=2, save_best='mIoU', rule='greater')
optim_wrapper['optimizer']['lr'] = 0.02
"""
EARLIER = 5000.0  # seconds that a part before is said to have taken


@pytest.fixture(scope='module')
def resumed(tmp_path_factory):
    """Records and files of a run that ended with an error before iteration 4, then as it was resumed to its end."""
    folder = tmp_path_factory.mktemp('rules')
    config = tiny.write_config(folder, tiny.write_data(folder / 'data', 4, 3), trouble.CONFIG + CHANGES)
    out, patch = folder / 'out', pytest.MonkeyPatch()
    with patch.context() as context:
        context.setenv('TROUBLE', 'bug:4:0')
        with pytest.raises(LookupError):
            train(load_config(config), out, seed=3)
    before, files = tiny.record(out), sorted(path.name for path in out.glob('iter_*.pth'))
    (out / 'run.json').write_text(json.dumps(before | dict(cost=before['cost'] | dict(train_seconds=EARLIER))))
    train(load_config(config), out, resume=True)
    return SimpleNamespace(out=out, before=before, files=files, after=tiny.record(out), config=config)


def test_a_resumed_run_goes_on_deleting_the_checkpoints_of_the_part_before(resumed):
    assert resumed.files == ['iter_2.pth', 'iter_3.pth']
    assert sorted(path.name for path in resumed.out.glob('iter_*.pth')) == ['iter_5.pth', 'iter_6.pth']
    assert read_checkpoint(resumed.out / 'iter_6.pth')['message_hub']['runtime_info']['keep_ckpt_ids'] == [5, 6]


def test_the_costs_of_all_parts_are_added(resumed):
    assert 0 < resumed.before['cost']['train_seconds'] < EARLIER
    assert EARLIER < resumed.after['cost']['train_seconds'] < 2 * EARLIER
    assert 0 < resumed.after['cost']['seconds_per_iter'] < EARLIER / 10, 'the mean of the iterations of this part'
    hours = pytest.approx(resumed.after['cost']['train_seconds'] / 3600, rel=1e-4)
    assert resumed.after['cost']['gpu_hours'] == (hours if torch.cuda.is_available() else None)


def test_the_best_evaluation_is_that_of_the_rule(resumed):
    found = {entry['step']: entry['metrics']['mIoU'] for entry in tiny.evaluations(resumed.out)}
    assert list(found) == [2, 4, 6]
    assert resumed.after['last']['step'] == 6 and len(set(found.values())) == 3
    assert resumed.after['best']['metrics']['mIoU'] == max(found.values()) > min(found.values())
    (best,) = resumed.out.glob('best_mIoU_iter_*.pth')
    assert best.stem == f'best_mIoU_iter_{resumed.after["best"]["step"]}'


def test_the_second_evaluation_sees_the_averaged_weights(resumed):
    """The same pipeline again, so the same numbers, at the last validation only."""
    *earlier, last = tiny.evaluations(resumed.out)
    again = {key.removeprefix('again/'): value for key, value in last['metrics'].items() if key.startswith('again/')}
    assert again == {key: last['metrics'][key] for key in again} and {'mIoU', 'aAcc', 'mAcc'} <= set(again)
    assert not any(key.startswith('again/') for entry in earlier for key in entry['metrics'])
    content = read_checkpoint(resumed.out / 'iter_6.pth')
    plain = {name.removeprefix('module.'): value for name, value in content['ema_state_dict'].items()}
    moved = [float((plain[name] - value).abs().max()) for name, value in content['state_dict'].items()]
    assert max(moved) > 0.01, 'other weights than the average would show'


def _at(folder, done):
    """A runner after so many iterations of 11; it validates every second from the fourth on, and at the end."""
    loop = IterBasedTrainLoop.__new__(IterBasedTrainLoop)
    vars(loop).update(_iter=done, _max_iters=11, val_begin=4, dynamic_milestones=[0], dynamic_intervals=[2])
    vars(loop).update(dataloader=SimpleNamespace(dataset=[]))
    recorder, model = Recorder(folder, RunRecord(identity=Identity())), torch.nn.Linear(1, 1)
    return SimpleNamespace(
        iter=done, max_iters=11, train_loop=loop, cfg={}, recorder=recorder, model=model, logger=Mock(), hooks=[]
    )


@pytest.mark.parametrize('done', range(12))
def test_a_resumed_run_begins_with_the_validation_that_is_missing(tmp_path, done):
    runner, ran = _at(tmp_path, done), []
    runner.val_loop = SimpleNamespace(run=lambda: ran.append(done), dataloader=SimpleNamespace(dataset=[]))
    RunRecordHook().before_train(runner)
    assert ran == ([done] if done in (4, 6, 8, 10, 11) else [])


def test_the_time_left_follows_from_the_iterations_of_this_part(tmp_path, monkeypatch):
    clock, hook = iter((100.0, 104.0, 104.0)), RunRecordHook()
    monkeypatch.setattr('mmlape.lab.training.hooks.run.time', SimpleNamespace(monotonic=lambda: next(clock)))
    runner = _at(tmp_path, 5)
    runner.val_loop = None
    hook.before_train(runner)
    runner.iter = 6  # the second iteration of this part has just ended: 2 seconds each, 4 are left
    hook.after_train_iter(runner, 0)
    assert (runner.recorder.record.iter, runner.recorder.record.eta) == (7, 8)


# refused starts


def _acquire(folder, seed=None, resume=True):
    return acquire(folder, Identity(seed=seed, settings={}), 'a.py', resume)


def _refusals(resumed, folder):
    """Checkpoints that cannot be resumed, with the seed that is asked for."""
    shutil.copy(resumed.out / 'iter_6.pth', folder / 'iter_6.pth')
    yield 9, TrainingError, 'belongs to a run with seed 3, not 9'
    torch.save(dict(state_dict=dict(w=torch.zeros(1))), folder / 'iter_6.pth')
    yield None, CheckpointError, 'cannot be resumed, it holds no optimizer'
    (folder / 'iter_6.pth').write_bytes(b'')
    (folder / 'named.pth').write_bytes(b'')
    yield None, CheckpointError, 'damaged'


def test_a_refused_start_leaves_no_lock(resumed, tmp_path):
    for seed, error, words in _refusals(resumed, tmp_path):
        with pytest.raises(error, match=words):
            _acquire(tmp_path, seed, str(tmp_path / 'named.pth') if words == 'damaged' else True)
        assert running_in(tmp_path) is None
        os.close(lock_run(tmp_path))


def test_those_who_look_at_a_lock_do_not_see_each_other_and_refuse_nobody(tmp_path, monkeypatch):
    os.close(lock_run(tmp_path))
    reader = os.open(tmp_path / '.lock', os.O_RDONLY)
    portalocker.lock(reader, portalocker.LockFlags.SHARED | portalocker.LockFlags.NON_BLOCKING)
    assert running_in(tmp_path) is None
    monkeypatch.setattr(record.time, 'sleep', lambda seconds: os.close(reader))
    os.close(lock_run(tmp_path))


def test_a_holder_is_named_where_a_longer_one_was(tmp_path):
    (tmp_path / 'lock').write_text(' ' * 999 + '{}')
    lock = record.take_lock(tmp_path / 'lock')
    assert record.lock_holder(tmp_path / 'lock')['pid'] == os.getpid()
    os.close(lock)


@pytest.mark.parametrize(
    ('batch', 'length', 'advice'),
    [
        (8, 300, '--allow-different-software resumes it'),
        (16, 300, 'resume it with its own settings'),
        (8, 400, 'a run keeps its length'),
    ],
)
def test_a_run_with_other_software_is_refused_with_what_helps(tmp_path, batch, length, advice):
    old, new = (settings(train_cfg=dict(max_iters=count)) for count in (300, length))
    work_dir = write_run(tmp_path, 1, 40.0, chosen=old, state='failed')
    other = identity(1, new, total_batch=batch, stack=dict(STACK, torch='1.0'))
    mine = replace(decode(Identity, other, work_dir), settings=new)
    with pytest.raises(TrainingError, match=f'stack: torch 2.11.0 -> 1.0.*: {advice}'):
        acquire(work_dir, mine, 'a.py', True)


def test_a_resumed_run_has_the_seed_and_the_iteration_of_its_checkpoint(resumed, tmp_path):
    shutil.copy(resumed.out / 'iter_5.pth', tmp_path / 'iter_5.pth')
    start = acquire(tmp_path, replace(read_identity(resumed.out), seed=None), 'a.py', True)
    os.close(start.lock)
    assert (start.identity.seed, start.iteration, start.checkpoint.path) == (3, 5, str(tmp_path / 'iter_5.pth'))


# what is averaged, and what a command says of it


@pytest.mark.parametrize(
    ('states', 'status'),
    [(('finished', 'finished'), 0), (('finished', 'failed'), 1), (('finished', None), 1), ((None, None), 1)],
)
def test_the_exit_status_says_whether_every_run_counts(tmp_path, capsys, states, status):
    for seed, state in enumerate(states, 1):
        for arm in ('a', 'b'):
            if state or arm == 'a':
                write_run(tmp_path / arm, seed, 40.0 + seed, state=state if arm == 'b' and state else 'finished')
    arms = [Arm('a', 'a.py'), Arm('b', 'b.py')]
    assert average_arms(arms, tmp_path, (1, 2)) == status
    assert average_arms(arms[:1], tmp_path, (1, 2)) == 0
