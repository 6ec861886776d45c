"""Runs that fail, each for real: kind and reason in run.json, one line through the command, the exit status."""

import errno
import os
import resource
import signal
import subprocess
import sys

import pytest
import tiny
import torch
import trouble

from mmlape.cli import main
from mmlape.errors import MissingCheckpointError, NotFiniteError, TrainingError
from mmlape.files import write_json
from mmlape.runs.failures import Interrupted, kind_of, record_failure
from mmlape.runs.record import NOTES, RESERVE, RunRecord

TOOLS = tiny.ROOT / 'tools'
SHORT = ('--cfg-options', 'train_cfg.max_iters=4', 'train_cfg.val_interval=4', 'default_hooks.checkpoint.interval=2')
TOGETHER = (*SHORT, 'auto_scale_lr.base_batch_size=4')


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp('tiny')
    return tiny.write_config(folder, tiny.write_data(folder / 'data'), trouble.CONFIG)


def failed(work_dir, kind, *parts):
    record = tiny.record(work_dir)
    assert record['state'] == 'failed' and record['failure']['kind'] == kind, record['reason']
    assert record['reason'] == record['failure']['reason']
    for part in parts:
        assert part in record['reason']
    assert not (work_dir / RESERVE).exists()
    return record


@pytest.mark.parametrize(
    ('error', 'kind'),
    [
        (torch.cuda.OutOfMemoryError('CUDA out of memory. Tried to allocate 2 GiB'), 'out-of-memory'),
        (MemoryError(), 'out-of-memory'),
        (NotFiniteError('the loss is not finite'), 'not-finite'),
        (MissingCheckpointError('a.pth: there is no such file'), 'missing-checkpoint'),
        (OSError(errno.ENOSPC, 'No space left on device'), 'disk-full'),
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
    found = kind_of(error)
    assert found.name == kind
    line = found.explain(error, 'in iteration 3')
    assert line and '\n' not in line


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


def test_sigterm_interrupts_a_run_and_it_resumes(config, tmp_path):
    words = (TOOLS / 'train.py', config, '--work-dir', tmp_path / 'run', *SHORT)
    running = tiny.start(*words, cwd=config.parent, TROUBLE='pause:4:0')
    for line in running.stdout:
        if line.startswith('waiting'):
            break
    running.send_signal(signal.SIGTERM)
    printed = running.stdout.read()
    assert running.wait(timeout=tiny.GUARD) == 143
    assert 'mmlape: interrupted in iteration 4' in printed and 'Traceback' not in printed
    failed(tmp_path / 'run', 'interrupted', '--resume')
    tiny.train(config, tmp_path / 'run', '--resume', *SHORT)
    record = tiny.record(tmp_path / 'run')
    assert (record['state'], record['reason'], record['failure'], record['iter']) == ('finished', None, None, 4)


def full(path):
    """A file system of one MiB, if this user may mount one."""
    path.mkdir()
    done = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=1M', 'none', path], capture_output=True)
    return done.returncode == 0


def test_a_full_disk_is_recorded(config, tmp_path):
    """A tmpfs too small for a checkpoint; without root a limit on the size of files stands for it."""
    work_dir, limit = tmp_path / 'small', None
    mounted = full(work_dir)
    if not mounted:
        limit = 200_000
    words = [sys.executable, TOOLS / 'train.py', config, '--work-dir', work_dir / 'run', *SHORT]
    words += ['model.decode_head.channels=96'] if mounted else []
    try:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=config.parent,
            env=tiny.environment(),
            text=True,
            capture_output=True,
            preexec_fn=limit and (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))),
        )
        assert done.returncode == 1, done.stderr[-3000:]
        assert 'the disk is full in iteration' in done.stderr.splitlines()[-1]
        failed(work_dir / 'run', 'disk-full', '--resume')
        assert not list((work_dir / 'run').glob('.*.pth')), 'the partial checkpoint is deleted'
    finally:
        if mounted:
            subprocess.run(['umount', work_dir], check=True)


class Dying(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_loading_process_is_a_lost_worker(tmp_path):
    record = RunRecord(tmp_path, dict(iter=3))
    record.begin()
    with pytest.raises(TrainingError, match=r'a data loader process was killed .*num_workers'), record_failure(record):
        list(torch.utils.data.DataLoader(Dying(), num_workers=1))
    failed(tmp_path, 'lost-worker', 'before the first iteration')


def test_another_process_s_note_is_not_written_over(tmp_path):
    record = RunRecord(tmp_path, dict(iter=3))
    record.begin()
    RunRecord(tmp_path, dict(iter=3)).fail(dict(kind='error', reason='process 1: broken'))
    write_json(tmp_path / NOTES / '1.json', dict(kind='error', reason='broken'))
    record.update(iter=4)
    failed(tmp_path, 'error', 'process 1: broken')
    again = RunRecord(tmp_path, dict(iter=3))
    again.begin()
    assert tiny.record(tmp_path)['state'] == 'running' and tiny.record(tmp_path)['failure'] is None


# several processes


@pytest.mark.parametrize(
    ('trouble', 'kind', 'parts'),
    [
        ('bug:3:1', 'error', ('process 1: LookupError', 'nobody expects this')),
        ('kill:3:1', 'lost-worker', ()),
    ],
)
def test_what_ends_another_process_is_the_run_s_reason(config, tmp_path, trouble, kind, parts):
    words = (config, '2', '--work-dir', tmp_path / 'run', *TOGETHER)
    printed = tiny.run(
        TOOLS / 'dist_train.sh', *words, cwd=config.parent, status=137 if kind == 'lost-worker' else 1, TROUBLE=trouble
    )
    failed(tmp_path / 'run', kind, *parts)
    assert 'failed first, with exit status' in printed
