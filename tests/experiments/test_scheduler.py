"""The scheduler on a launcher that trains nothing: order, slots and locks, what others do meanwhile, the time left."""

import json
import os
from dataclasses import dataclass, field
from time import monotonic, time
from types import SimpleNamespace

import pytest
from synthetic import write_run

from mmlape.files import read_json, write_json
from mmlape.lab.experiments import scheduler as module
from mmlape.lab.experiments.launchers import Device, DevicePool, Job, Launcher
from mmlape.lab.experiments.planning import Arm, PlannedRun
from mmlape.lab.experiments.scheduler import Scheduler
from mmlape.lab.runs.record import lock_holder, lock_run, take_lock
from mmlape.lab.runs.run import Run


@dataclass
class Place:
    """A slot that knows whether it was given back."""

    held: list

    def release(self):
        self.held.remove(self)


@dataclass(kw_only=True)
class Done(Job):
    """A run that ends with a status at once."""

    slot: Place
    lock: int
    status: int

    def poll(self):
        return self.status

    def release(self):
        os.close(self.lock)
        self.slot.release()


@dataclass
class Instant(Launcher):
    """Runs that have finished, or failed, as soon as they are started; ``most`` at a time."""

    most: int = 1
    fails: tuple = ()
    started: list = field(default_factory=list)
    held: list = field(default_factory=list)

    def describe(self):
        return ''

    def reserve(self, running):
        if running >= self.most:
            return None
        self.held.append(Place(self.held))
        return self.held[-1]

    def start(self, planned, lock, slot):
        seed = planned.run.seed
        self.started.append((planned.arm.name, seed, planned.action))
        failed = seed in self.fails
        if not failed:
            write_run(planned.folder.parent, seed, 40.0)
        return Done(planned=planned, slot=slot, lock=lock, status=-9 * failed)

    def stop(self, jobs):
        return ''


def planned(tmp_path, seed, action='start', arm='arm'):
    return PlannedRun(Arm(arm, 'a.py'), (), Run(tmp_path / arm / f'seed_{seed}', seed, 'missing'), action)


def run(plan, launcher, **more):
    lines = []
    found = Scheduler(plan, launcher, lines.append, poll_interval=0, **more).run()
    return [one.state for one in found], lines


def free(plan):
    return all(lock_holder(one.log.parent / f'.{one.folder.name}.lock') is None for one in plan)


def test_a_run_is_out_of_memory_if_the_kernel_killed_while_it_ran(tmp_path, monkeypatch):
    monkeypatch.setattr(module, 'oom_kills', lambda: 4)

    class Killed(Instant):
        def start(self, planned, lock, slot):
            job = super().start(planned, lock, slot)
            job.oom_kills = 3 if planned.run.seed == 1 else 4
            return job

    plan = [planned(tmp_path, seed) for seed in (1, 2)]
    assert run(plan, Killed(fails=(1, 2)))[0] == ['failed', 'interrupted']
    kinds = [read_json(one.folder / 'run.json')['failure']['kind'] for one in plan]
    assert kinds[0] == 'out-of-memory' != kinds[1]


def test_runs_are_started_in_the_order_of_the_plan_and_everything_is_given_back(tmp_path):
    """A failure stops no other run, and is neither counted, averaged nor a measure of how long a run takes."""
    plan, seen, lines = [planned(tmp_path, seed) for seed in (3, 1, 2)], [], []
    launcher = Instant(fails=(1,))
    found = Scheduler(plan, launcher, lines.append, poll_interval=0, on_finished=seen.append)
    assert [one.state for one in found.run()] == ['finished', 'interrupted', 'finished']
    assert [seed for _, seed, _ in launcher.started] == [3, 1, 2] and launcher.held == [] and free(plan)
    assert seen == found.finished == [plan[0], plan[2]] and found.failed == [plan[1]] and len(found.durations) == 2
    assert any('interrupted with exit status -9: killed by SIGKILL' in line for line in lines)


def test_what_another_command_has_locked_is_watched_and_its_slot_is_free(tmp_path, monkeypatch):
    plan = [planned(tmp_path, seed) for seed in (1, 2)]
    plan[0].log.parent.mkdir(parents=True)
    lock = take_lock(plan[0].log.parent / '.seed_1.lock')

    def others_end(seconds):
        if lock_holder(plan[0].log.parent / '.seed_1.lock'):
            write_run(tmp_path / 'arm', 1, 41.0)
            os.close(lock)

    monkeypatch.setattr(module, 'time', SimpleNamespace(sleep=others_end, monotonic=monotonic, time=time))
    launcher = Instant()
    states, lines = run(plan, launcher)
    assert launcher.started == [('arm', 2, 'start')] and launcher.held == [] and states == ['finished'] * 2
    assert any('just started by another command' in line for line in lines)


def test_what_another_command_has_abandoned_is_started_or_resumed_here(tmp_path):
    write_run(tmp_path / 'arm', 2, None, state='running', iter=3)
    launcher = Instant()
    write_run(tmp_path / 'arm', 3, None, state='failed', reason='broken')
    states, lines = run([planned(tmp_path, seed, 'watch') for seed in (1, 2, 3)], launcher)
    assert launcher.started == [('arm', 1, 'start'), ('arm', 2, 'resume')]
    assert states == ['finished', 'finished', 'failed'] and 'arm, seed 3: failed elsewhere: broken' in lines
    assert sum('abandoned elsewhere, continues here' in line for line in lines) == 2


def test_what_has_finished_meanwhile_is_not_trained_again(tmp_path):
    """Planned as missing, finished when its turn comes: neither its slot nor its lock is kept."""
    plan = [planned(tmp_path, seed) for seed in (1, 2)]
    write_run(tmp_path / 'arm', 1, 41.0)
    launcher, seen = Instant(), []
    states, lines = run(plan, launcher, on_finished=seen.append)
    assert launcher.started == [('arm', 2, 'start')] and launcher.held == [] and free(plan)
    assert states == ['finished'] * 2 and [one.run.seed for one in seen] == [1, 2]
    assert any(line == 'arm, seed 1: finished elsewhere' for line in lines)


def test_a_run_that_somebody_trains_by_hand_is_waited_for(tmp_path, monkeypatch):
    plan = [planned(tmp_path, 1)]
    folder = write_run(tmp_path / 'arm', 1, None, state='running', iter=3)
    lock = lock_run(folder)

    def ends(seconds):
        if json.loads((folder / 'run.json').read_text())['state'] == 'running':
            write_run(tmp_path / 'arm', 1, 41.0)
            os.close(lock)

    monkeypatch.setattr(module, 'time', SimpleNamespace(sleep=ends, monotonic=monotonic, time=time))
    launcher = Instant()
    assert run(plan, launcher)[0] == ['finished'] and launcher.started == [] and launcher.held == []


@pytest.mark.parametrize(
    ('etas', 'waiting', 'durations', 'left'),
    [
        ((100, 300), 0, [], '0:05:00'),  # the longest
        ((100, 300), 4, [50.0, 150.0], '0:06:40'),  # (400 + 4 * 100) / 2
        ((600,), 2, [], '0:32:00'),  # 600 + 2 * (60 + 600): no run has ended, so the one that runs is the measure
        ((100, None), 3, [50.0], ''),
        ((), 0, [50.0], ''),
    ],
)
def test_the_time_left(tmp_path, monkeypatch, etas, waiting, durations, left):
    monkeypatch.setattr(module.time, 'monotonic', lambda: 1060.0)
    jobs = []
    for seed, eta in enumerate(etas):
        one = planned(tmp_path, seed)
        write_json(one.folder / 'run.json', dict(seed=seed, state='running', eta=eta))
        jobs.append(SimpleNamespace(planned=one, started=1000.0))
    found = Scheduler([], Instant())
    found.jobs, found.waiting, found.durations = jobs, [None] * waiting, durations
    assert found._time_left() == (f', about {left} left' if left else '')


def test_fewer_gpus_than_a_run_needs_are_none(tmp_path):
    pool = DevicePool([Device(str(index), f'GPU-{index}') for index in range(3)], tmp_path)
    first = pool.acquire(2)
    assert first.visible == '0,1' and [device.name for device in pool.free()] == ['2']
    assert pool.acquire(2) is None and [device.name for device in pool.free()] == ['2'], 'the third is free again'
    second = pool.acquire(1)
    assert second.visible == '2' and pool.acquire(1) is None
    first.release()
    assert [device.name for device in pool.free()] == ['0', '1']
    second.release()
