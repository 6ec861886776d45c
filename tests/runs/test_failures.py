"""Runs that fail, most for real: kind and reason in run.json, one line through the command, the exit status."""

import errno
import os
import re
import shutil
import signal
import time
import types

import cv2
import pytest
import tiny
import torch
import trouble

from mmlape.cli import main
from mmlape.errors import DataError, MissingCheckpointError, MMLaPEError, NotFiniteError, TrainingError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.runs.failures import diagnose, explain, failure_kind, last_part, record_diagnosis, record_failure
from mmlape.lab.runs.record import RESERVE, Recorder
from mmlape.lab.runs.run import read_run
from mmlape.lab.runs.schema import Failure, RunRecord, write_record
from mmlape.lab.runs.signals import ECHO, Interrupted
from mmlape.lab.training.optim import build_model

TOOLS = tiny.ROOT / 'tools'
SHORT = ('--cfg-options', 'train_cfg.max_iters=4', 'train_cfg.val_interval=4', 'default_hooks.checkpoint.interval=2')
TOGETHER = (*SHORT, 'auto_scale_lr.base_batch_size=4')


def failed(work_dir, kind, *parts):
    record = tiny.record(work_dir)
    state = 'interrupted' if kind == 'interrupted' else 'failed'
    assert record['state'] == state and record['failure']['kind'] == kind, record['reason']
    assert record['reason'] == record['failure']['reason']
    for part in parts:
        assert part in record['reason']
    return record


@pytest.mark.parametrize(
    ('error', 'kind'),
    [
        (torch.cuda.OutOfMemoryError('CUDA out of memory. Tried to allocate 2 GiB'), 'out-of-memory'),
        (MemoryError(), 'out-of-memory'),
        (cv2.error('OpenCV(5) alloc.cpp:73: error: (-4:Insufficient memory) Failed to allocate'), 'out-of-memory'),
        (NotFiniteError('the loss is not finite'), 'not-finite'),
        (DataError('a box is not finite'), 'error'),
        (ValueError('in a worker:\n  except MemoryError:'), 'error'),
        (OSError('Connection reset by peer'), 'error'),
        (ConnectionError('closed by peer'), 'lost-worker'),
        (MissingCheckpointError('a.pth: there is no such file'), 'missing-checkpoint'),
        (OSError(errno.ENOSPC, 'No space left on device'), 'disk-full'),
        (OSError(errno.EDQUOT, 'Disk quota exceeded'), 'disk-full'),
        (OSError(errno.EMFILE, 'Too many open files'), 'too-many-files'),
        (RuntimeError('Too many open files. Communication with the workers is no longer'), 'too-many-files'),
        (OSError(errno.ENOENT, 'No such file'), 'error'),
        (RuntimeError('[../gloo/transport/tcp/pair.cc:525] Read error: Connection reset by peer'), 'lost-worker'),
        (RuntimeError('DataLoader worker (pid 3) is killed by signal: Killed. '), 'lost-worker'),
        (RuntimeError('DataLoader worker (pid(s) 3) exited unexpectedly'), 'lost-worker'),
        (RuntimeError('The size of tensor a (3) must match'), 'error'),
        (KeyboardInterrupt(), 'interrupted'),
        (Interrupted(), 'interrupted'),
    ],
)
def test_a_failure_has_a_kind_and_one_line(error, kind):
    assert failure_kind(error) == kind
    line = explain(error, 'in iteration 3')
    assert line and '\n' not in line
    assert isinstance(error, MMLaPEError) or 'in iteration 3' in line


@pytest.mark.parametrize(
    ('status', 'lines', 'starved', 'kind', 'reason'),
    [
        (137, ['Iter(train) [1/6]'], False, 'interrupted', 'killed by SIGKILL'),
        (-9, [], True, 'out-of-memory', 'the kernel killed a process'),
        (-11, [], False, 'error', 'killed by SIGSEGV'),
        (
            137,
            ['E1129 api.py:1003] failed (exitcode: -9) local_rank: 3 (pid: 7) of binary: python'],
            False,
            'lost-worker',
            'process 3 was killed by',
        ),
        (1, ['mmlape: error: first', 'mmlape: error: last'], False, 'error', 'last'),
        (1, ['mmlape: error: load_from=a: there is no such file'], False, 'missing-checkpoint', 'load_from=a'),
        (
            1,
            ['OSError: [Errno 28] No space left on device', ' f'],
            False,
            'disk-full',
            'exit status 1: OSError: [Errno',
        ),
        (1, ['DataLoader worker (pid 5) is killed by signal'], True, 'out-of-memory', 'the kernel killed a process'),
        (2, ['nothing known'], False, 'error', 'exit status 2: nothing known'),
        (None, [], False, 'error', 'ended without a message'),
        (-35, [], False, 'error', 'killed by signal 35'),
    ],
)
def test_exit_status_and_log_tell_what_a_run_could_not_record(status, lines, starved, kind, reason):
    found = diagnose(status, lines, starved)
    assert found.kind == kind and found.reason.startswith(reason)


def test_a_diagnosis_is_recorded_where_the_run_has_said_nothing_since(tmp_path):
    failure, run = Failure(kind='error', reason='from outside'), tmp_path / 'arm' / 'seed_3'
    assert record_diagnosis(read_run(run, 3), failure, 'config.py', RunRecord()).outcome == 'failed: from outside'
    for state, before, expected in (
        ('failed', RunRecord(), 'its own'),
        ('failed', None, 'from outside'),  # the reason is an earlier attempt's
        ('running', RunRecord(), 'from outside'),  # and nobody holds its lock
        ('finished', RunRecord(), 'its own'),
    ):
        write_record(run, RunRecord(seed=3, state=state, reason='its own', iter=4, max_iters=9))
        before = before or read_run(run, 3).record
        assert record_diagnosis(read_run(run, 3), failure, 'config.py', before).reason == expected
    (tmp_path / 'log').write_text('$ first\nOut of memory\n$ second\n1\n2')
    assert last_part(tmp_path / 'log') == ['1', '2'] and last_part(tmp_path / 'none') == []


def test_out_of_memory_names_the_ways_out(config, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv('TROUBLE', 'memory:3:0')
    assert main(['train', str(config), '--work-dir', str(tmp_path / 'run'), *SHORT]) == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith('mmlape: error: ')
    for part in ('in iteration 3', 'with_cp=True', '--amp bf16', '--accumulate'):
        assert part in line
    failed(tmp_path / 'run', 'out-of-memory', 'with_cp')


def test_a_bug_keeps_its_traceback_and_is_recorded(config, tmp_path, monkeypatch):
    monkeypatch.setenv('TROUBLE', 'bug:3:0')
    with pytest.raises(LookupError, match='nobody expects this'):
        main(['train', str(config), '--work-dir', str(tmp_path / 'run'), *SHORT])
    failed(tmp_path / 'run', 'error', 'LookupError in iteration 3', 'nobody expects this')


WORKERS = """
train_dataloader.update(num_workers=2, persistent_workers=True)
"""
ACCUMULATED = """
optim_wrapper.update(accumulative_counts=2)
auto_scale_lr = dict(base_batch_size=4)
"""
EPOCHS = f"""
{tiny.EPOCHS}
train_cfg.update(max_epochs=2)
randomness = dict(diff_rank_seed=True)
default_hooks.update(checkpoint=dict(type='CheckpointHook', interval=2, max_keep_ckpts=1))
"""
ITERATIONS = """
train_cfg.update(max_iters=8, val_interval=8)
default_hooks['checkpoint'].update(interval=8, max_keep_ckpts=1, save_best=None)
"""


@pytest.mark.parametrize(
    ('extra', 'sent', 'iteration', 'saved', 'last'),
    [
        (ITERATIONS + WORKERS, 'halt', 3, 'iter_3.pth', 'iter_8.pth'),
        pytest.param(ITERATIONS + WORKERS, 'term', 3, 'iter_3.pth', 'iter_8.pth', marks=pytest.mark.release),
        pytest.param(ITERATIONS + WORKERS, 'int', 2, 'iter_2.pth', 'iter_8.pth', marks=pytest.mark.release),
        pytest.param(ITERATIONS + ACCUMULATED, 'term', 3, 'iter_4.pth', 'iter_8.pth', marks=pytest.mark.release),
        (EPOCHS, 'int', 6, 'epoch_1_iter_6.pth', 'epoch_2.pth'),
        pytest.param(EPOCHS, 'term', 4, 'epoch_1.pth', 'epoch_2.pth', marks=pytest.mark.release),
    ],
    ids=['stopped workers', 'workers', 'Ctrl-C', 'accumulated', 'epoch', 'end of an epoch'],
)
def test_a_signal_saves_after_the_next_step(
    config, tmp_path, monkeypatch, capsys, extra, sent, iteration, saved, last
):
    """The run resumes from there, bit for bit; workers that get the signal as well stay, and end with the run."""
    stopped = tiny.write_config(config.parent, config.parent / 'data', trouble.CONFIG + extra, f'stop-{saved[:-4]}')
    words = ('train', str(stopped), '--seed', '7', '--work-dir')
    run = tmp_path / os.fsdecode(b'run-\xff')  # a name that is not UTF-8
    assert main([*words, str(tmp_path / 'whole')]) == 0
    monkeypatch.setenv('TROUBLE', f'{sent}:{iteration}:0')
    capsys.readouterr()
    assert main([*words, str(run)]) == (130 if sent == 'int' else 143)
    assert f'mmlape: interrupted in iteration {iteration + (saved == "iter_4.pth") + 1}' in capsys.readouterr().err
    record = failed(run, 'interrupted', '--resume')
    assert record['iter'] == iteration + (saved == 'iter_4.pth')
    assert [path.name for path in run.glob('*.pth')] == [saved]
    monkeypatch.delenv('TROUBLE')
    assert main([*words, str(run), '--resume']) == 0
    record = tiny.record(run)
    assert (record['state'], record['reason'], record['failure'], record['iter']) == ('finished', None, None, 8)
    assert tiny.difference(run / last, tmp_path / 'whole' / last) == 0
    assert evaluated(run) == evaluated(tmp_path / 'whole')
    logs = {path.parts[-3] for path in run.glob('*/vis_data/scalars.json')}
    assert len(record['parts']) == 2 and set(record['parts']) == logs
    assert [path.name for path in run.glob('*.pth')] == [last], 'the other one is not needed any more'


def evaluated(work_dir):
    return [(entry['step'], entry['metrics']) for entry in tiny.evaluations(work_dir)]


@pytest.mark.parametrize('number', [signal.SIGHUP, pytest.param(signal.SIGUSR1, marks=pytest.mark.release)])
def test_a_signal_ends_an_evaluation_of_saved_weights_at_once(config, tmp_path, number):
    words = (TOOLS / 'train.py', config, '--work-dir', tmp_path / 'run', *SHORT)
    running = tiny.start(*words, cwd=config.parent, TROUBLE='wait:4')
    for line in running.stdout:
        if line.startswith('waiting'):
            break
    running.send_signal(number)
    printed = running.stdout.read()
    assert running.wait(timeout=tiny.GUARD) == 128 + number
    assert 'mmlape: interrupted after the last iteration' in printed and 'Traceback' not in printed
    failed(tmp_path / 'run', 'interrupted', number.name, '--resume')


def test_a_second_ctrl_c_stops_at_once(config, tmp_path):
    words = (TOOLS / 'train.py', config, '--work-dir', tmp_path / 'run', *SHORT)
    running = tiny.start(*words, cwd=config.parent, TROUBLE='pause:2:0')
    for text, seconds in (('waiting', 0), ('Ctrl-C again stops at once', ECHO + 0.1)):
        assert any(text in line for line in running.stdout)
        time.sleep(seconds)
        running.send_signal(signal.SIGINT)
    printed = running.stdout.read()
    assert running.wait(timeout=tiny.GUARD) == 130
    assert 'mmlape: interrupted in iteration 2: continue with --resume' in printed and 'Traceback' not in printed
    assert failed(tmp_path / 'run', 'interrupted')['iter'] == 1 and not list((tmp_path / 'run').glob('*.pth'))


def test_checkpoints_that_do_not_fit_are_refused_before_the_first_step(config, tmp_path, monkeypatch, capsys):
    """Weights, and twice as much of AdamW: 0.24 MB; at most three at a time, and the best."""
    size = 12 * sum(value.numel() for value in build_model(load_config(config)).parameters())
    free = types.SimpleNamespace(free=3.9 * size)
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: free)
    options = ('--cfg-options', 'default_hooks.checkpoint.interval=1', 'train_cfg.max_iters=9')
    assert main(['train', str(config), '--work-dir', str(tmp_path / 'run'), *options]) == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(r'but 4 checkpoints of \d+(\.\d)? kB', line) and 'max_keep_ckpts=1' in line
    assert failed(tmp_path / 'run', 'disk-full', 'checkpoints')['iter'] == 0
    free.free = 5 * size
    assert main(['train', str(config), '--work-dir', str(tmp_path / 'run'), *options]) == 0
    assert len(list((tmp_path / 'run').glob('*.pth'))) == 3


def test_a_full_disk_is_recorded(config, tmp_path):
    """A limit on the size of files stands for it."""
    printed = tiny.train(config, tmp_path / 'run', *SHORT, status=1, TROUBLE='disk:1:0')
    assert 'OSError in iteration' in printed.splitlines()[-1] and 'free some space' in printed.splitlines()[-1]
    failed(tmp_path / 'run', 'disk-full', '--resume')
    assert not (tmp_path / 'run' / RESERVE).exists()
    assert not list((tmp_path / 'run').glob('.*.pth')), 'the partial checkpoint is deleted'


class Dying(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_loading_process_is_a_lost_worker(tmp_path):
    recorder = Recorder(tmp_path, RunRecord(iter=3))
    recorder.begin()
    with pytest.raises(TrainingError, match=r'DataLoader worker .*num_workers'), record_failure(recorder):
        list(torch.utils.data.DataLoader(Dying(), num_workers=1))
    failed(tmp_path, 'lost-worker', 'before the first iteration')


def test_another_process_s_failure_is_not_written_over(tmp_path):
    recorder = Recorder(tmp_path, RunRecord(iter=3))
    recorder.begin()
    Recorder(tmp_path, RunRecord(iter=3)).fail(Failure(kind='error', reason='process 1: broken'))
    recorder.record.iter = 4
    recorder.write()
    failed(tmp_path, 'error', 'process 1: broken')
    with pytest.raises(TrainingError, match='process 1: broken'), record_failure(recorder):
        raise ConnectionError('closed by peer')
    failed(tmp_path, 'error', 'process 1: broken')
    again = Recorder(tmp_path, RunRecord(iter=3))
    again.begin()
    assert tiny.record(tmp_path)['state'] == 'running' and tiny.record(tmp_path)['failure'] is None


def test_sigterm_does_not_stop_a_failure_from_being_recorded(tmp_path):
    """torchrun sends it as soon as another process has ended."""

    class Signalled(Recorder):
        def fail(self, failure):
            os.kill(os.getpid(), signal.SIGTERM)
            super().fail(failure)

    recorder = Signalled(tmp_path, RunRecord(iter=3))
    recorder.begin()
    with pytest.raises(LookupError), record_failure(recorder):
        raise LookupError('broken')
    failed(tmp_path, 'error', 'broken')


# several processes


@pytest.mark.release
def test_sigterm_for_one_process_stops_all_after_the_same_step(config, tmp_path):
    """And the run resumes bit for bit."""
    extra = ITERATIONS + 'auto_scale_lr = dict(base_batch_size=4)\n'
    stopped = tiny.write_config(config.parent, config.parent / 'data', trouble.CONFIG + extra, 'stopped')
    words = (TOOLS / 'dist_train.sh', stopped, '2', '--seed', 7, '--work-dir')
    tiny.run(*words, tmp_path / 'whole', cwd=config.parent)
    printed = tiny.run(*words, tmp_path / 'run', cwd=config.parent, status=1, TROUBLE='term:3:1')
    assert printed.count('mmlape: interrupted') == 1
    assert failed(tmp_path / 'run', 'interrupted', 'iteration 4')['iter'] == 3
    assert [path.name for path in (tmp_path / 'run').glob('*.pth')] == ['iter_3.pth']
    tiny.run(*words, tmp_path / 'run', '--resume', cwd=config.parent)
    assert tiny.difference(tmp_path / 'run' / 'iter_8.pth', tmp_path / 'whole' / 'iter_8.pth') == 0


@pytest.mark.release
def test_torchrun_passes_sigusr1_on(config, tmp_path):
    """Which Slurm's ``--signal`` sends it; a run then saves as at SIGTERM."""
    words = (TOOLS / 'dist_train.sh', config, '2', '--work-dir', tmp_path / 'run', *TOGETHER)
    running = tiny.start(*words, cwd=config.parent, TROUBLE='rest:3:0')
    assert any(line.startswith('waiting') for line in running.stdout)
    running.send_signal(signal.SIGUSR1)
    printed = running.stdout.read()
    assert running.wait(timeout=tiny.GUARD) == 1 and printed.count('mmlape: interrupted') == 1
    assert failed(tmp_path / 'run', 'interrupted', 'SIGUSR1')['iter'] == 3
    assert (tmp_path / 'run' / 'iter_3.pth').is_file()


@pytest.mark.parametrize(
    ('trouble', 'kind', 'parts'),
    [
        pytest.param('bug:3:1', 'error', ('process 1: LookupError', 'nobody expects this'), marks=pytest.mark.release),
        ('kill:3:1', 'lost-worker', ()),
    ],
)
def test_what_ends_another_process_is_the_run_s_reason(config, tmp_path, trouble, kind, parts):
    words = (config, '2', '--work-dir', tmp_path / 'run', *TOGETHER)
    printed = tiny.run(TOOLS / 'dist_train.sh', *words, cwd=config.parent, status=1, TROUBLE=trouble)
    failed(tmp_path / 'run', kind, *parts)
    assert ('Signal 9 (SIGKILL) received' if kind == 'lost-worker' else 'nobody expects this') in printed
