"""`multi_seed` on real trainings: skipping, failing, killing, resuming; and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tiny

from mmlape.errors import ConfigError, DataError, TrainingError
from mmlape.experiments.aggregate import Run
from mmlape.experiments.seeds import Experiment, train_seeds

TOOL = tiny.ROOT / 'tools' / 'multi_seed.py'


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp('seeds')
    return tiny.write_config(folder, tiny.write_data(folder / 'data'))


def _multi_seed(config, work_dir, *options, status=0):
    return tiny.run(TOOL, config.name, '--work-dir', work_dir, *options, cwd=config.parent, status=status)


def _summary(work_dir):
    return json.loads((work_dir / 'tiny' / 'summary.json').read_text())


def _starts(work_dir, seed):
    """How many trainings of a seed were started."""
    return (work_dir / 'tiny' / 'logs' / f'seed_{seed}.log').read_text().count('$ ')


def test_a_failing_seed_stops_no_other_and_finished_ones_are_skipped(config, tmp_path):
    (tmp_path / 'tiny').mkdir()
    obstacle = tmp_path / 'tiny' / 'seed_7'
    obstacle.write_text('a file where a folder should be')
    said = _multi_seed(config, tmp_path, '--seeds', 7, 3, '--cfg-options', 'train_cfg.max_iters=3', status=1)
    assert 'seed 7: FAILED with exit status 1' in said
    assert 'mmlape: error: cannot write into work dir' in said  # the end of its log
    assert 'seed 3: finished' in said
    assert 'not counted: seed 7, missing' in said
    assert _summary(tmp_path)['seeds'] == [3]

    obstacle.unlink()
    said = _multi_seed(config, tmp_path, '--seeds', 7, 3, '--cfg-options', 'train_cfg.max_iters=3')
    assert 'seed 3: finished before, skipped' in said
    assert [_starts(tmp_path, seed) for seed in (7, 3)] == [2, 1]
    records = {seed: tiny.record(tmp_path / 'tiny' / f'seed_{seed}') for seed in (7, 3)}
    assert {seed: record['seed'] for seed, record in records.items()} == {7: 7, 3: 3}
    summary = _summary(tmp_path)
    for which in ('last', 'best'):
        values = [record[which]['metrics']['mIoU'] for record in records.values()]
        assert len(set(values)) == 2
        entry = summary[which]['metrics']['mIoU']
        assert entry['n'] == 2
        assert entry['mean'] == pytest.approx(np.mean(values), rel=1e-12)
        assert entry['std'] == pytest.approx(np.std(values, ddof=1), rel=1e-9)

    said = _multi_seed(config, tmp_path, '--seeds', 3, '--cfg-options', 'train_cfg.max_iters=4', status=1)
    assert 'another recipe (train_cfg.max_iters: 3 -> 4)' in said
    said = _multi_seed(config, tmp_path, '--seeds', 3, '--aggregate-only')
    assert 'not counted: seeds 7' in said
    assert _summary(tmp_path)['last']['metrics']['mIoU']['n'] == 1


def _processes(word: Path) -> list[str]:
    """Command lines of this machine that mention a path."""
    found = []
    for file in Path('/proc').glob('[0-9]*/cmdline'):
        try:
            line = file.read_bytes().replace(b'\0', b' ').decode(errors='replace')
        except OSError:
            continue
        if str(word) in line:
            found.append(line)
    return found


def test_a_killed_run_on_two_processes_leaves_none_behind_and_is_resumed(config, tmp_path):
    options = ['--seeds', '11', '--gpus', '2', '--work-dir', str(tmp_path)]
    options += ['--cfg-options', 'train_cfg.max_iters=40', 'train_cfg.val_interval=40', '--', '--deterministic']
    command = [sys.executable, str(TOOL), config.name, *options]
    work_dir = tmp_path / 'tiny' / 'seed_11'
    first = subprocess.Popen(command, cwd=config.parent, env=tiny.environment(), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not (work_dir / 'iter_3.pth').exists() and not (work_dir / 'iter_6.pth').exists():
        assert first.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    second = subprocess.run(command, cwd=config.parent, env=tiny.environment(), capture_output=True, text=True)
    assert second.returncode == 1 and 'is in use' in second.stderr
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=60) == 143
    assert _processes(work_dir) == []
    assert tiny.record(work_dir)['state'] != 'finished'

    said = tiny.run(*command[1:], cwd=config.parent)
    assert 'seed 11 (1 of 1): resumed' in said
    record = tiny.record(work_dir)
    assert (record['state'], record['seed'], record['world_size'], record['iter']) == ('finished', 11, 2, 40)
    log = (tmp_path / 'tiny' / 'logs' / 'seed_11.log').read_text()
    assert 'resuming from' in log and '--deterministic' in log
    assert _summary(tmp_path)['last']['metrics']['mIoU'] == {
        'mean': record['last']['metrics']['mIoU'],
        'std': None,
        'n': 1,
        'values': {'11': record['last']['metrics']['mIoU']},
    }


def test_input_that_makes_no_sense_is_refused(config):
    with pytest.raises(ConfigError, match=r'\[4\] given twice'):
        Experiment(str(config), (4, 5, 4))
    with pytest.raises(ConfigError, match='none given'):
        Experiment(str(config), ())
    with pytest.raises(ConfigError, match='--seed after --'):
        Experiment(str(config), (4,), extra=('--seed=5',))
    with pytest.raises(ConfigError, match='--gpus 0'):
        Experiment(str(config), (4,), gpus=0)
    with pytest.raises(ConfigError, match='does not exist'):
        Experiment(str(config.with_name('nothing.py')), (4,))


def test_a_folder_with_foreign_runs_is_refused(config, tmp_path):
    experiment = Experiment(str(config), (4,), tmp_path)
    record = experiment.folder / 'seed_4' / 'run.json'
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({'seed': 4, 'state': 'finished'}))
    with pytest.raises(TrainingError, match=r'holds seed_4, but no recipe\.json'):
        train_seeds(experiment)
    (experiment.folder / 'recipe.json').write_text(json.dumps(experiment.recipe()))
    assert [run.state for run in train_seeds(experiment)] == ['finished']
    record.write_text(json.dumps({'seed': 9, 'state': 'finished'}))
    with pytest.raises(DataError, match='holds a run with seed 9, not 4'):
        train_seeds(experiment)
    other_processes = Experiment(str(config), (4,), tmp_path, gpus=2)
    with pytest.raises(TrainingError, match=r'another recipe \(gpus: 1 -> 2\)'):
        train_seeds(other_processes)


def test_a_work_dir_that_cannot_be_written_to_is_refused(config, tmp_path):
    (tmp_path / 'file').touch()
    with pytest.raises(TrainingError, match='cannot write into'):
        train_seeds(Experiment(str(config), (4,), tmp_path / 'file'))


@pytest.mark.parametrize(('gpus', 'launcher'), [(1, 'train.py'), (4, 'dist_train.sh')])
def test_the_trainings_command_has_all_options(config, tmp_path, gpus, launcher):
    options = ['train_cfg.max_iters=2', 'train_cfg.val_interval=1']
    experiment = Experiment(str(config), (4,), tmp_path, gpus, options, ['--amp', 'bf16'])
    folder = tmp_path / 'tiny' / 'seed_4'
    fresh = experiment.command(Run(folder, 4, 'missing'))
    assert fresh[1].endswith(launcher)
    assert fresh[fresh.index(str(config)) :] == [
        str(config),
        *(['4'] if gpus > 1 else []),
        *['--work-dir', str(folder), '--seed', '4', '--amp', 'bf16', '--cfg-options', *options],
    ]
    os.makedirs(folder)
    assert '--resume' in experiment.command(Run(folder, 4, 'failed'))
