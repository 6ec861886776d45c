"""The table of runs: each state from what is on the disk."""

import json
import os
import time

import pytest

from mmlape.files import write_json
from mmlape.lab.experiments.status import rows
from mmlape.lab.runs.record import lock_run, take_lock
from mmlape.lab.runs.run import write_order


def _record(folder, seed, state, **more):
    run = folder / f'seed_{seed}'
    write_json(run / 'run.json', dict(seed=seed, state=state, iter=30, max_iters=90, **more))
    return run


@pytest.fixture
def work_dir(tmp_path):
    """One run of each state, seeds 1 to 8; the locks of those that run."""
    arm, now = tmp_path / 'arm', time.time()
    metrics = dict(step=20, metrics={'aAcc': 10.0, 'mIoU': 43.21})
    batch = dict(world_size=4, images_per_process=3, accumulation=2, cost=dict(seconds_per_iter=0.5))
    running = _record(arm, 1, 'running', eta=100, updated=now - 40, host='node7', last=metrics, **batch)
    silent = _record(arm, 2, 'running', eta=100, updated=now - 3600, host='node8')
    _record(arm, 3, 'running')
    _record(arm, 4, 'failed', reason='[/gloo/pair.cc:5] Connection [rank0] closed')
    best = dict(step=10, metrics={'aAcc': 99.0, 'mIoU': 1.0}, key='aAcc')
    _record(arm, 5, 'finished', last=metrics, best=best)
    for seed in (6, 7, 8):
        (arm / f'seed_{seed}').mkdir()
    (arm / 'logs').mkdir()
    locks = [lock_run(running), lock_run(silent), take_lock(arm / 'logs' / '.seed_6.lock')]
    locks.append(lock_run(arm / 'seed_5'))  # its process has not ended yet
    write_json(arm / 'slurm' / 'seed_7.json', dict(job='12', state='PENDING', ended=False))
    write_json(arm / 'slurm' / 'seed_8.json', dict(job='13', state='TIMEOUT', ended=True))  # queued no more
    yield tmp_path
    for lock in locks:
        os.close(lock)


def at(monkeypatch, work_dir, seconds):
    """Set the clock to so many seconds after the first run's last news."""
    updated = json.loads((work_dir / 'arm' / 'seed_1' / 'run.json').read_text())['updated']
    monkeypatch.setattr(time, 'time', lambda: updated + seconds)


def test_every_state_is_told_from_the_disk(work_dir, monkeypatch):
    at(monkeypatch, work_dir, 40)
    found = {row.seed: row for row in rows(work_dir)}
    states = ['running', 'running', 'broken', 'failed', 'finished', 'starting', 'queued', 'missing']
    assert [found[seed].state for seed in range(1, 9)] == states
    assert found[1].eta == 60 and found[1].metric == ('mIoU', 43.21, 20) and found[1].reason is None
    assert found[1].images_per_second == 24 and found[2].images_per_second is None, 'of an iteration, not of a step'
    assert found[1].host == os.uname().nodename and found[6].host == os.uname().nodename
    assert found[2].eta == 0 and found[2].reason.startswith('no news for 1:00:00')
    assert 'resumes it' in found[3].reason and found[4].reason.startswith('[/gloo')
    assert found[5].metric == ('aAcc', 10.0, 20), 'the metric that best is by'
    at(monkeypatch, work_dir, -1000)  # the clock of the machine that trains is ahead
    assert (rows(work_dir)[0].eta, rows(work_dir)[0].reason) == (100, None)
    assert found[7].reason == 'job 12: PENDING'
    assert rows(work_dir / 'arm') == rows(work_dir)


def test_runs_are_found_at_any_depth_each_once(tmp_path):
    """A folder of several experiments, one run of `mmlape train` beside them, and a link that closes a circle."""
    for arm in ('exp/b', 'exp/a', 'sub/other/lr0.1', '.hidden/d'):
        _record(tmp_path / arm, 1, 'finished')
    write_json(tmp_path / 'single' / 'run.json', dict(seed=5, state='finished'))
    (tmp_path / 'single' / '20260101_000000').mkdir()
    (tmp_path / 'sub' / 'circle').symlink_to(tmp_path)
    write_order(tmp_path / 'exp', ['b', 'a'])
    assert [row.arm for row in rows(tmp_path)] == ['exp/b', 'exp/a', 'single', 'sub/other/lr0.1']
    assert [row.arm for row in rows(tmp_path / 'exp')] == ['b', 'a']
