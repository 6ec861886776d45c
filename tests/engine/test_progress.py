"""The time left of a job of several parts: of what is planned, at the pace so far; a run's line."""

import logging
import sys
from types import SimpleNamespace

import pytest
import torch

from mmlape.lab.engine.hooks import ProgressHook
from mmlape.lab.engine.hooks import run as line
from mmlape.lab.experiments import scheduler as module
from mmlape.lab.experiments.scheduler import Progress


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
