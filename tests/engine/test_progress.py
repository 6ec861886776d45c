"""The time left of a job of several parts: of what is planned, at the pace so far."""

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
