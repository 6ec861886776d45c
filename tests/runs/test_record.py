"""The history of a run's evaluations: appended to, rewound by a resumed run, and whole after a kill at any point."""

import pytest

from mmlape.lab.runs import record
from mmlape.lab.runs.record import Recorder
from mmlape.lab.runs.schema import HISTORY, Evaluation, RunRecord, read_evaluations, read_record

SCORES = ((1, 5.0), (2, 9.0), (3, None), (4, 7.0))


def evaluated(folder, key='mIoU', greater=True, scores=SCORES, **more):
    run = Recorder(folder, RunRecord(config='a.py'))
    run.begin()
    for step, value in scores:
        run.add_evaluation(Evaluation(step=step, metrics={key: value}, **more), key, greater)
    return run


def resumed(folder, end):
    """The run as it continues from a checkpoint, when that is loaded; ``end`` is the first step that it has not."""
    before = read_record(folder)
    record = RunRecord(config='a.py', last=before.last, best=before.best)
    run = Recorder(folder, record, evaluations=read_evaluations(folder))
    run.begin()
    assert read_record(folder).last == before.last, 'a checkpoint that cannot be loaded leaves all as it is'
    run.rewind(end)
    return run


def steps(folder):
    return [entry.step for entry in read_evaluations(folder)]


@pytest.mark.parametrize(
    ('iteration', 'place'),
    [
        (0, 'before the first iteration'),
        (1, 'in iteration 1'),
        (32, 'in iteration 32'),
        (33, 'after the last iteration'),
    ],
)
def test_a_run_of_32_iterations_never_fails_in_another(tmp_path, iteration, place):
    run = Recorder(tmp_path, RunRecord(max_iters=32))
    run.iteration = iteration
    assert run.place == place


@pytest.mark.parametrize(('greater', 'scores', 'best'), [
    (True, (5.0, 9.0, 7.0, 9.5), 2), (False, (5.0, 3.0, 7.0, 2.0), 2), (False, (5.0, 3.0, 7.0, 8.0), 2),
    (True, (5.0, 5.0, 5.0, 5.0), 1), (False, (None, 3.0, None, 2.0), 2),
])  # fmt: skip
def test_a_resumed_run_keeps_what_it_had_at_its_checkpoint(tmp_path, greater, scores, best):
    evaluated(tmp_path, 'score', greater, tuple(enumerate(scores, 1)))
    run = resumed(tmp_path, 4)
    assert run.record.last.step == 3 and run.record.best.step == best
    assert steps(tmp_path) == [1, 2, 3]
    run.add_evaluation(Evaluation(step=4, metrics=dict(score=0.0 if greater else 99.0)), 'score', greater)
    assert steps(tmp_path) == [1, 2, 3, 4] and read_record(tmp_path).best.step == best
    assert resumed(tmp_path, 0).record.best is None


def test_an_evaluation_that_is_repeated_replaces_the_first(tmp_path):
    run = evaluated(tmp_path)
    run.add_evaluation(Evaluation(step=4, metrics=dict(mIoU=10.0)), 'mIoU')
    assert steps(tmp_path) == [1, 2, 3, 4] and read_evaluations(tmp_path)[-1].metrics == dict(mIoU=10.0)
    assert read_record(tmp_path).best.metrics == dict(mIoU=10.0)


def test_a_kill_between_the_two_files_undoes_the_evaluation(tmp_path, monkeypatch):
    run = evaluated(tmp_path)

    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(record, 'write_record', killed)
        run.add_evaluation(Evaluation(step=5, metrics=dict(mIoU=99.0)), 'mIoU')
    assert len((tmp_path / HISTORY).read_text().splitlines()) == 5 and steps(tmp_path) == [1, 2, 3, 4]
    again = resumed(tmp_path, 5)
    assert again.record.last.step == 4 and again.record.best.step == 2
    again.add_evaluation(Evaluation(step=5, metrics=dict(mIoU=8.0)), 'mIoU')
    assert steps(tmp_path) == [1, 2, 3, 4, 5] and read_record(tmp_path).best.step == 2
