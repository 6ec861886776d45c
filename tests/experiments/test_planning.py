"""What a study refuses, and what it plans from what is on the disk."""

import json
import os

import pytest
import tiny

from mmlape.errors import ConfigError, TrainingError
from mmlape.files import write_json
from mmlape.lab.decoding import encode
from mmlape.lab.experiments.launchers import LocalLauncher
from mmlape.lab.experiments.multi_seed import run_study
from mmlape.lab.experiments.planning import Arm, Study, on_fractions, require_startable
from mmlape.lab.runs.record import lock_run, take_lock
from mmlape.lab.runs.run import start_lock


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp('study')
    return tiny.write_config(folder, tiny.write_data(folder / 'data'))


def _place(study, state='finished', seed=4, **identity):
    """A run's folder as training leaves it."""
    arm = study.arms[0]
    known = study._identity(arm, seed)
    folder = study.folder(arm) / f'seed_{seed}'
    said = encode(known) | identity
    last = dict(step=6, metrics=dict(mIoU=1.0))
    write_json(folder / 'run.json', dict(seed=seed, state=state, iter=6, max_iters=6, last=last, identity=said))
    write_json(folder / 'settings.json', known.settings)
    return folder


def _only(study):
    (planned,) = study.plan()
    return planned.action, planned.reason


def test_a_study_has_arms_and_seeds(config):
    for error, arms, seeds in (('--seeds: none given', [Arm.of(config)], ()), ('arms: none given', [], (4,))):
        with pytest.raises(ConfigError, match=error):
            Study(arms, seeds)


def test_a_missing_checkpoint_is_named_with_arm_key_and_file(config, tmp_path):
    here = tmp_path / 'weights.pth'
    here.touch()
    key = 'model.backbone.init_cfg'
    arms = [
        Arm(name, str(config), (f'{key}.type=Pretrained', f'{key}.checkpoint={path}'))
        for name, path in (('good', here), ('far', 'https://somewhere/weights.pth'), ('bad', '/no/weights.pth'))
    ]
    study = Study(arms, (4,), tmp_path)
    require_startable(Study(arms[:2], (4,), tmp_path).plan())
    assert [one.missing for one in study.plan()] == [(), (), ((f'{key}.checkpoint', '/no/weights.pth'),)]
    assert run_study(study, LocalLauncher(devices=()), dry_run=True) == 0
    with pytest.raises(ConfigError, match='arm bad: '):
        run_study(study, LocalLauncher(devices=()))
    resumed = Study(arms[2:], (4,), tmp_path / 'before')
    _place(resumed, state='failed')
    assert _only(resumed)[0] == 'resume'
    with pytest.raises(ConfigError, match='arm bad: '):
        run_study(resumed, LocalLauncher(devices=()))
    assert not (tmp_path / 'bad').exists()
    with pytest.raises(ConfigError, match=r'arm bad: model\.backbone\.init_cfg\.checkpoint=/no/weights\.pth: there'):
        require_startable(study.plan())
    loading = Arm('loading', str(config), ('load_from=/no/where.pth',))
    with pytest.raises(ConfigError, match=r'arm loading: load_from=/no/where\.pth'):
        require_startable(Study([loading], (4,), tmp_path).plan())


def test_the_plan_follows_from_the_folders_alone_and_changes_nothing(config, tmp_path):
    study = Study([Arm.of(config), Arm('other', str(config), ('train_cfg.max_iters=5',))], (4, 5), tmp_path / 'work')
    assert [(one.arm.name, one.run.seed, one.action) for one in study.plan()] == [
        ('tiny', 4, 'start'), ('other', 4, 'start'), ('tiny', 5, 'start'), ('other', 5, 'start'),
    ]  # fmt: skip
    assert not (tmp_path / 'work').exists()
    study = Study([Arm.of(config)], (4,), tmp_path)
    for state, action in (('finished', 'skip'), ('failed', 'resume'), ('running', 'resume')):
        _place(study, state)
        assert _only(study)[0] == action
    assert 'broken' in _only(study)[1]
    lock = lock_run(tmp_path / 'tiny' / 'seed_4')
    assert _only(study) == ('watch', f'process {os.getpid()} on {os.uname().nodename}')
    os.close(lock)
    (planned,) = study.plan()
    planned.log.parent.mkdir()
    lock = take_lock(start_lock(planned.folder))
    assert _only(study)[0] == 'watch' and planned.acquire() is None
    os.close(lock)
    assert _only(study)[0] == 'resume'


def test_a_folder_that_holds_another_run_is_refused_with_the_difference(config, tmp_path):
    study = Study([Arm.of(config)], (4,), tmp_path)
    folder = _place(study)
    assert _only(study)[0] == 'skip'
    longer = Study([Arm('tiny', str(config), ('train_cfg.max_iters=7',))], (4,), tmp_path)
    action, why = _only(longer)
    assert action == 'refuse' and 'config: train_cfg.max_iters 6 -> 7' in why
    with pytest.raises(TrainingError, match=r'nothing was started.*\n  tiny, seed 4: .*max_iters 6 -> 7'):
        require_startable(longer.plan())
    _place(study, total_batch=16)
    assert _only(study) == ('refuse', _only(study)[1]) and 'total_batch: 16 -> 2' in _only(study)[1]
    _place(study, world_size=2)
    assert 'world_size: 2 -> 1' in _only(study)[1]
    _place(study, 'failed', world_size=2)
    assert _only(study)[0] == 'resume', 'a run may go on with other processes if the batch is the same'
    record = json.loads((folder / 'run.json').read_text())
    write_json(folder / 'run.json', record | dict(seed=9))
    assert _only(study)[0] == 'refuse' and 'holds a run with seed 9, not 4' in _only(study)[1]
    del record['identity']
    write_json(folder / 'run.json', record)
    (folder / 'iter_3.pth').touch()
    assert 'has no identity in its run.json' in _only(study)[1]
    (folder / 'run.json').unlink()
    assert 'holds iter_3.pth, but no run.json' in _only(study)[1]


def test_other_software_is_refused_only_where_runs_would_mix(config, tmp_path):
    code = dict(code=dict(version='0.0.1', source='other', commit=None))
    done = Study([Arm.of(config)], (4,), tmp_path)
    _place(done, **code)
    assert _only(done)[0] == 'skip'
    mixed = Study([Arm.of(config)], (4, 5), tmp_path)
    first, second = mixed.plan()
    assert (first.action, second.action) == ('refuse', 'start')
    assert 'code: mmlape 0.0.1' in first.reason and '-- --allow-different-software' in first.reason
    _place(done, 'failed', **code)
    assert _only(done)[0] == 'refuse'
    allowed = Study([Arm.of(config)], (4, 5), tmp_path, extra=['--allow-different-software'])
    assert [planned.action for planned in allowed.plan()] == ['resume', 'start']


def test_arms_on_fractions(config):
    arm = Arm.of(config, ('train_cfg.max_iters=3',))
    found = on_fractions([arm], ['1/16', '0.25', '1'])
    assert [one.name for one in found] == ['tiny+1of16', 'tiny+1of4', 'tiny']
    study = Study(found, (4,))
    assert [one.get('data_fraction') for one in study.configs.values()] == ['1/16', '1/4', 1]
    assert study.plan()[0].train_args[-2:] == ('train_cfg.max_iters=3', 'data_fraction=1/16')
    assert len({study._identity(one, 4).settings_sha256 for one in found}) == 3
    assert study._identity(found[-1], 4) == Study([arm], (4,))._identity(arm, 4)
    with pytest.raises(ConfigError, match='data_fraction=2: give a number above 0'):
        on_fractions([arm], ['1', '2'])
    with pytest.raises(ConfigError, match=r'arms: tiny\+1of4 given twice'):
        Study(on_fractions([arm], ['0.25', '1/4']), (4,))
