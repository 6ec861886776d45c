"""The time left of a job of several parts: steady from the first line on, and true in the end; a run's line."""

import logging
import sys
from types import SimpleNamespace

import pytest
import torch

from mmlape.lab.engine.hooks import ProgressHook
from mmlape.lab.engine.hooks import run as line
from mmlape.lab.experiments import scheduler as module
from mmlape.lab.experiments.scheduler import Progress

PARTS = (20.0, 60.0, 60.0, 90.0, 30.0, 30.0, 30.0, 80.0, 12.0, 12.0)


def simulated(monkeypatch, factor, skipped=0):
    """Run parts one after the other, ``factor`` times as slow as planned; yield (time, estimate) every second."""
    now = [1000.0]
    monkeypatch.setattr(module.time, 'monotonic', lambda: now[0])
    share = [0.0]
    progress = Progress(sum(PARTS), print, lambda: share[0], started=now[0])
    for cost in PARTS[:skipped]:
        progress.skip(cost)
    for cost in PARTS[skipped:]:
        begun = now[0]
        while now[0] < begun + cost * factor:
            now[0] += 1
            share[0] = min(cost, (now[0] - begun) / factor)
            yield progress.seconds, progress.left()
        share[0] = 0.0
        progress.finish(cost)


@pytest.mark.parametrize(('factor', 'skipped'), [(1.0, 0), (1.8, 0), (0.6, 0), (1.3, 4)])
def test_time_left_is_steady_and_approaches_the_truth(monkeypatch, factor, skipped):
    seen = list(simulated(monkeypatch, factor, skipped))
    end = seen[-1][0]
    for (time, left), (later, then) in zip(seen, seen[1:]):
        assert abs((later + then) - (time + left)) < 6, 'the expected end moves by seconds only'
    planned = sum(PARTS[skipped:])
    for time, left in seen:
        assert abs(time + left - end) < abs(planned - end) + 2, 'never further off than the plan was'
    time, left = seen[len(seen) // 2]
    assert abs(time + left - end) < 0.6 * abs(planned - end) + 2, 'and closer half-way'
    assert seen[-1][1] < 2


def test_finished_parts_say_nothing_about_the_pace(monkeypatch):
    lines = []
    monkeypatch.setattr(module.time, 'monotonic', lambda: 0.0)
    progress = Progress(600, lines.append, started=0.0)
    progress.log('first')
    progress.skip(300)
    progress.log('skipped')
    progress.finish(300)
    progress.log('last')
    assert lines == ['[0:00:00, about 0:10:00 left] first', '[0:00:00, about 0:05:00 left] skipped', '[0:00:00] last']


@pytest.mark.parametrize('terminal', [True, False])
def test_the_line_of_a_run_is_for_terminals(terminal, monkeypatch, capsys):
    """It says how far the part that runs here is; what is logged comes after it is cleared."""
    now = [100.0]
    monkeypatch.setattr(line.time, 'monotonic', lambda: now[0])
    monkeypatch.setattr(sys.stdout, 'isatty', lambda: terminal)
    logger = logging.Logger('progress')
    logger.addHandler(logging.StreamHandler(sys.stdout))
    runner, hook = SimpleNamespace(iter=10, max_iters=40, logger=logger), ProgressHook()
    hook.before_train(runner)
    for runner.iter in range(10, 20):
        now[0] += 0.25
        hook.after_train_iter(runner, 0, outputs=dict(loss=torch.tensor(1.5)))
    logger.info('a step')
    hook.after_train(runner)
    logger.info('the end')
    shown = capsys.readouterr().out
    clear = '\r\x1b[K'
    if not terminal:
        assert shown == 'a step\nthe end\n'
        return
    lines = shown.split(clear)
    assert lines[1] == 'iteration 11 of 40, loss 1.5, 4 a second, 0:00:07 left\r'
    later = ((13, '0:00:07'), (15, '0:00:06'), (17, '0:00:06'), (19, '0:00:05'))
    shown = [f'iteration {n} of 40, loss 1.5, 4 a second, {left} left\r' for n, left in later]
    assert lines[2:7] == [*shown, 'a step\n']
    assert lines[-1] == 'the end\n' and len(logger.handlers) == 1
