"""A file of a run that is damaged or another's never passes for a missing one, nor changes what is said of the run."""

import copy
import json
import os
import re
import shutil
from dataclasses import replace

import pytest
import synthetic
import tiny
from hypothesis import given
from hypothesis import strategies as st
from properties import VALUES, examples, places, with_value

from mmlape.cli import main
from mmlape.errors import DataError, MMLaPEError, TrainingError
from mmlape.files import read_json, write_json
from mmlape.lab.config.config_file import load_config
from mmlape.lab.decoding import decode
from mmlape.lab.experiments import status
from mmlape.lab.experiments.planning import Arm, Study
from mmlape.lab.experiments.report import arms, data, report_content, tables
from mmlape.lab.experiments.report.document import setting_lines
from mmlape.lab.runs.curves import read_curves
from mmlape.lab.runs.identity import with_settings
from mmlape.lab.runs.record import Recorder
from mmlape.lab.runs.resume import acquire
from mmlape.lab.runs.run import read_arms
from mmlape.lab.runs.schema import (
    HISTORY,
    RECORD,
    SETTINGS,
    Identity,
    RunRecord,
    read_evaluations,
    read_record,
    write_record,
)
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


def report(folder):
    runs = read_arms(folder)
    built = report_content.build([arms.average(name, found) for name, found in runs.items()], 'title')
    setting_lines(built)
    tables.print_results(built)
    tables.cost_table(built)
    tables.provenance_table(built)
    return json.dumps(data.report_data(built))


def show_status(folder):
    rows = status.rows(folder)
    status.print_rows(rows)
    return json.dumps(status.as_json(rows))


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
    readers = (resume, lambda study: report(study[0]), lambda study: show_status(study[0]), planned)
    expected = {read: read(study) for read in readers}
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


# any JSON value in any field: each reader works with it, or names the file and the field in one line

ENTRY = dict(step=300, epoch=3, metrics=dict(mIoU=38.5, aAcc=77.0), per_class=dict(IoU=dict(cat=1.0)))
IDENTITY = synthetic.identity(121, code=dict(version='0.2.0', source='s' * 64, commit='c' * 40))
RECORD_OF_A_RUN = dict(
    config='configs/segmenter/segmenter_deit-tiny_4xb2-160k_ade20k.py', mmlape='0.2.0', seed=121, world_size=4,
    images_per_process=2, accumulation=1, total_batch=8, distributed='ddp', identity=IDENTITY,
    software_changes=['stack: torch 2.10 -> 2.11'], host='node7', device='NVIDIA H200', started='2026-01-01T00:00:00',
    iter=300, max_iters=300, epoch=3, max_epochs=3, last=ENTRY, best=dict(ENTRY, key='mIoU'), state='finished',
    cost=dict(parameters=6_713_388, peak_memory_mib=9000.5, memory_kind='allocated on one GPU', seconds_per_iter=0.2,
              train_seconds=60.0, gpu_hours=0.1),
    parts=['20260101_000000'], reason=None, failure=dict(kind='error', reason='broken'), updated=1.8e9, loss=0.5,
    stopped=dict(hook='EarlyStoppingHook', cause='no gain', iter=300), eta=0, finished='2026-01-01T00:01:00',
)  # fmt: skip
"""With every field that a run writes."""
SHORT = ('--cfg-options', 'train_cfg.max_iters=2', 'train_cfg.val_interval=2')
STATES = ('finished', 'running', 'failed')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """An arm of two runs, of which a test changes the first."""
    folder = tmp_path_factory.mktemp('arms')
    for seed in (121, 122):
        run = folder / 'arm' / f'seed_{seed}'
        run.mkdir(parents=True)
        record = dict(RECORD_OF_A_RUN, seed=seed, identity=dict(IDENTITY, seed=seed))
        (run / RECORD).write_text(json.dumps(record))
        (run / HISTORY).write_text(json.dumps(ENTRY) + '\n')
        (run / 'settings.json').write_text(json.dumps(synthetic.settings()))
        synthetic.write_log(run, [dict(loss=1.0, iter=1, step=1)])
    return folder


def resumed(folder):
    run = folder / 'arm' / 'seed_121'
    identity = with_settings(decode(Identity, IDENTITY, run), run)
    start = acquire(run, identity, 'a.py', True)
    recorder = Recorder(run, start.previous or RunRecord(), False, start.evaluations)
    recorder.rewind(200)


def curves(folder):
    read_curves(folder / 'arm' / 'seed_121')


READERS = (show_status, report, resumed, curves)


def assert_answered(folder, name, text):
    """Every reader works, or raises one short line."""
    file = folder / 'arm' / 'seed_121' / name
    kept = file.read_text()
    file.write_text(text)
    try:
        for read in READERS:
            try:
                read(folder)
            except MMLaPEError as error:
                assert '\n' not in str(error) and len(str(error)) < 1500
    finally:
        file.write_text(kept)


@examples(max_examples=200)
@given(place=st.sampled_from([*places(RECORD_OF_A_RUN)]), value=st.sampled_from(VALUES), state=st.sampled_from(STATES))
def test_any_value_in_any_field_of_a_record(folder, place, value, state):
    assert_answered(folder, RECORD, json.dumps(with_value(dict(RECORD_OF_A_RUN, state=state), place, value)))


@examples(max_examples=60)
@given(place=st.sampled_from([(), *places(ENTRY)]), value=st.sampled_from(VALUES))
def test_any_value_in_any_field_of_an_evaluation(folder, place, value):
    changed = with_value([ENTRY], (0, *place), value)[0]
    assert_answered(folder, HISTORY, f'{json.dumps(changed)}\n{json.dumps(dict(ENTRY, step=400))}\n')


def test_the_line_names_file_and_field(folder, capsys):
    file = folder / 'arm' / 'seed_121' / RECORD
    kept = file.read_text()
    for place, value, expected in (
        (('last', 'metrics', 'mIoU'), [1], 'last.metrics.mIoU=[1] is not a number'),
        (('iter',), -1, 'iter=-1 is not a whole number of at least 0'),
        (('updated',), float('nan'), 'updated=NaN is not a number of at least 0'),
        (('best', 'key'), 'AP', "best.key='AP' is none of best.metrics, which has mIoU, aAcc"),
        (('last', 'step'), None, 'last.step is missing or null'),
        (('parts', 0), 7, 'parts.0=7 is not a text of one line'),
        (('identity',), 'a' * 99, f'identity="{"a" * 56}... is not an object'),
    ):
        file.write_text(json.dumps(with_value(RECORD_OF_A_RUN, place, value)))
        assert main(['status', str(folder)]) == 1
        expected = f'mmlape: error: {file}: {expected}: restore the file, or move its folder away\n'
        assert capsys.readouterr().err == expected
    file.write_text(kept)
    history = file.with_name(HISTORY)
    history.write_text(f'{json.dumps(ENTRY)}\n7\n')
    with pytest.raises(DataError, match=re.escape(f'{history}: line 2=7 is not an object')):
        read_evaluations(file.parent)


def test_a_record_is_written_as_it_is_read(config, tmp_path):
    """A field that is added has a type, too; what no field is named after stays, and is no reader's."""
    assert main(['train', str(config), '--work-dir', str(tmp_path), '--seed', '1', *SHORT]) == 0
    for written in (read_json(tmp_path / RECORD), dict(RECORD_OF_A_RUN, later=[dict(a=1)])):
        write_json(tmp_path / RECORD, written)
        record = read_record(tmp_path)
        assert record.unknown == ({'later': [dict(a=1)]} if 'later' in written else {})
        write_record(tmp_path, record)
        assert read_json(tmp_path / RECORD) == written
