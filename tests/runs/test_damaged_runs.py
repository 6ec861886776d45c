"""A file of a run that is damaged or another's never passes for a missing one, nor changes what is said of the run."""

import copy
import json
import os
import shutil
from dataclasses import replace

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from mmlape.errors import DataError, MMLaPEError, TrainingError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.experiments import status
from mmlape.lab.experiments.planning import Arm, Study
from mmlape.lab.experiments.report import arms, data, report_content
from mmlape.lab.runs.resume import acquire
from mmlape.lab.runs.run import read_arms
from mmlape.lab.runs.schema import HISTORY, RECORD, SETTINGS
from mmlape.lab.training.plan import plan_run
from mmlape.lab.training.trainer import train

CHECKPOINT = 'iter_3.pth'
FILES = (RECORD, SETTINGS, HISTORY, 'scalars.json')


@pytest.fixture(scope='module')
def study(tmp_path_factory):
    """Two arms of one seed that differ in the learning rate; the first was interrupted behind iteration 3."""
    folder = tmp_path_factory.mktemp('study')
    config = tiny.write_config(folder, tiny.write_data(folder / 'data', train=4, val=2, side=40))
    plans, named = {}, []
    for arm, rate in (('a', 0.001), ('b', 0.002)):
        options = [f'optim_wrapper.optimizer.lr={rate}']
        cfg = load_config(config, options)
        named.append(Arm(arm, str(config), tuple(options)))
        plans[arm] = plan_run(copy.deepcopy(cfg), 1)
        train(cfg, folder / 'runs' / arm / 'seed_1', seed=1)
    run = folder / 'runs/a/seed_1'
    (run / 'iter_6.pth').unlink()
    (run / RECORD).write_text(json.dumps(dict(tiny.record(run), state='interrupted')))
    return folder / 'runs', plans, Study(named, [1], folder / 'runs')


def resume(study, arm='a'):
    """How the first run resumes, with the rate of an arm."""
    folder, plans, _ = study
    start = acquire(folder / 'a/seed_1', replace(plans[arm].identity, seed=1), 'tiny.py', True)
    os.close(start.lock)
    return start.checkpoint.path, start.iteration, start.evaluations


def report(study):
    found = [arms.average(name, runs) for name, runs in read_arms(study[0]).items()]
    return json.dumps(data.report_data(report_content.build(found, 'title')), default=str)


def shown(study):
    return json.dumps(status.as_json(status.rows(study[0])), default=str)


def planned(study):
    """What `multi-seed` does next; an error where it would start nothing."""
    plan = study[2].plan()
    if reasons := [one.reason for one in plan if one.action == 'refuse']:
        raise DataError(reasons[0])
    return [(one.action, one.reason, one.run.record.iter) for one in plan]


def outcome(read, study):
    try:
        return read(study)
    except MMLaPEError as error:
        return error


def place(study, arm, name):
    return next((study[0] / arm / 'seed_1').rglob(name))


def forms(text: bytes, other: bytes, at: int):
    """What a disk, a kill or a slip makes of a file."""
    at %= len(text)
    structure = [place for place, byte in enumerate(text) if byte in b'{}[]":,']
    flipped = structure[at % len(structure)]
    yield from (text[:at], text[: text.rfind(b'\n', 0, at) + 1], b'', bytes(len(text)), b'[' * 10**5, other)
    yield text[:flipped] + bytes([text[flipped] ^ 0x80]) + text[flipped + 1 :]


@examples(max_examples=8)
@given(name=st.sampled_from(FILES), at=st.integers(1, 10**6))
def test_a_damaged_file_is_an_error_that_names_it_or_changes_nothing(study, name, at):
    file = place(study, 'a', name)
    kept = file.read_bytes()
    expected = {read: read(study) for read in (resume, report, shown, planned)}
    for text in forms(kept, place(study, 'b', name).read_bytes(), at):
        file.write_bytes(text)
        try:
            for read, sound in expected.items():
                found = outcome(read, study)
                named = isinstance(found, MMLaPEError) and str(file) in str(found) and 'restore' in str(found)
                assert named or found == sound, (read, text[:200], found)
            assert isinstance(outcome(lambda one: resume(one, 'b'), study), MMLaPEError), 'another rate'
        finally:
            file.write_bytes(kept)


def test_a_checkpoint_tells_of_which_run_it_is(study, tmp_path):
    """Also where the record was deleted, or all files beside it are of another run of the seed."""
    expected, copied = resume(study), (shutil.copytree(study[0], tmp_path / 'runs'), *study[1:])
    run = copied[0] / 'a/seed_1'
    (run / RECORD).unlink()
    checkpoint, *position = resume(copied)
    assert (checkpoint, position) == (str(run / CHECKPOINT), list(expected[1:]))
    for name in (RECORD, SETTINGS, HISTORY):
        shutil.copy(copied[0] / 'b/seed_1' / name, run)
    (run / RECORD).write_text(json.dumps(dict(tiny.record(run), state='interrupted')))
    with pytest.raises(TrainingError, match=rf'{CHECKPOINT} holds a run that differs .*lr 0.001 -> 0.002'):
        resume(copied, 'b')
    (run / RECORD).unlink()
    with pytest.raises(TrainingError, match=rf'{CHECKPOINT} holds a run that differs .*lr 0.001 -> 0.002'):
        resume(copied, 'b')
