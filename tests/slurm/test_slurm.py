"""Jobs in a real Slurm: they compute what torchrun's do, go on after scancel, and a study does each run once."""

import json
import os
import re
import signal
import subprocess

import pytest
import tiny
import trouble

TOOLS = tiny.ROOT / 'tools'
TWO_ON_THE_CPU = dict(GPUS='2', GPUS_PER_NODE='0', CPUS_PER_TASK='1')
PATIENCE = 240  # seconds


def slurm(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp('tiny')
    of_four = 'auto_scale_lr.update(base_batch_size=4)\n'
    return tiny.write_config(folder, tiny.write_data(folder / 'data'), trouble.CONFIG + of_four)


@pytest.fixture(scope='module')
def by_torchrun(config):
    """Two processes of two images each, six iterations."""
    tiny.run(TOOLS / 'dist_train.sh', config, '2', '--work-dir', 'torchrun', '--seed', '5', cwd=config.parent)
    return config.parent / 'torchrun'


def by_slurm(config, work_dir, *options):
    words = ('test', 'tiny-job', config, '--work-dir', work_dir, '--seed', '5', *options)
    return tiny.run(TOOLS / 'slurm_train.sh', *words, cwd=config.parent, **TWO_ON_THE_CPU)


@pytest.fixture(scope='module')
def by_srun(config):
    by_slurm(config, 'slurm')
    return config.parent / 'slurm'


def test_two_tasks_train_as_two_processes_of_torchrun(by_torchrun, by_srun):
    record = tiny.record(by_srun)
    assert record['state'] == 'finished' and (record['world_size'], record['total_batch']) == (2, 4)
    for step in (3, 6):
        assert tiny.difference(by_srun / f'iter_{step}.pth', by_torchrun / f'iter_{step}.pth') == 0
    assert tiny.evaluations(by_srun) == tiny.evaluations(by_torchrun)


def test_two_tasks_test_as_two_processes_of_torchrun(config, by_torchrun):
    checkpoint, folder = by_torchrun / 'iter_6.pth', config.parent
    tiny.run(TOOLS / 'dist_test.sh', config, checkpoint, '2', '--out', 'one.json', cwd=folder)
    words = ('test', 'tiny-test', config, checkpoint, '--out', 'two.json')
    said = tiny.run(TOOLS / 'slurm_test.sh', *words, cwd=folder, **TWO_ON_THE_CPU)
    assert said.count('metrics are in') == 1
    one, two = (json.loads((folder / name).read_text()) for name in ('one.json', 'two.json'))
    assert two['world_size'] == 2 and one == two


def test_a_cancelled_job_goes_on(config, by_srun):
    """The tasks wait in the evaluation after the first checkpoint; scancel ends them there."""
    folder = config.parent
    words = ('test', 'to-be-cancelled', config, '--work-dir', 'cancelled', '--seed', '5')
    more = dict(TWO_ON_THE_CPU, TROUBLE='wait:3')
    with open(folder / 'cancelled.log', 'w') as log:
        job = subprocess.Popen(
            [str(word) for word in (TOOLS / 'slurm_train.sh', *words)],
            cwd=folder,
            env=tiny.environment(**more),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    tiny.until(lambda: 'waiting' in (folder / 'cancelled.log').read_text(), job)
    slurm('scancel', '--name', 'to-be-cancelled')
    assert job.wait(PATIENCE) != 0
    record = tiny.record(folder / 'cancelled')
    assert record['state'] != 'finished' and not (folder / 'cancelled' / 'iter_6.pth').exists()
    by_slurm(config, 'cancelled', '--resume')
    assert tiny.record(folder / 'cancelled')['state'] == 'finished'
    assert tiny.difference(folder / 'cancelled' / 'iter_6.pth', by_srun / 'iter_6.pth') == 0


def test_an_error_ends_the_job_without_a_traceback(config):
    """The first task that ends has the other one killed, so the status is either's."""
    words = [TOOLS / 'slurm_train.sh', 'test', 'bad', config, '--cfg-options', 'data_root=nowhere']
    more = dict(cwd=config.parent, env=tiny.environment(**TWO_ON_THE_CPU), capture_output=True, text=True)
    done = subprocess.run([str(word) for word in words], check=False, **more)
    assert done.returncode != 0
    assert 'mmlape: error: ' in done.stderr and 'nowhere' in done.stderr and 'Traceback' not in done.stderr


def test_a_study_survives_its_submitter_and_runs_each_run_once(config):
    """Two arms x two seeds; the submitting process is killed while jobs run, and the same command started again."""
    folder = config.parent
    arms = [words for name in ('wide', 'slow') for words in ('--arm', name, str(config))]
    options = ('--cfg-options', 'train_dataloader.batch_size=4', 'optim_wrapper.optimizer.fused=False')
    command = (
        *(TOOLS / 'multi_seed.py', *arms, 'optim_wrapper.optimizer.lr=0.0001', '--seeds', '1', '2'),
        *('--work-dir', 'study', '--slurm', '--gpus-per-node', '0', '--slurm-args', 'partition=test'),
        *options,
    )
    first = tiny.start(*command, cwd=folder, CPUS_PER_TASK='1')
    tiny.until(lambda: len(list((folder / 'study').glob('*/seed_*/run.json'))) >= 1, first)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    said = tiny.run(*command, cwd=folder, CPUS_PER_TASK='1')
    runs = sorted((folder / 'study').glob('*/seed_*/run.json'))
    assert [(path.parts[-3], path.parts[-2]) for path in runs] == [
        (arm, f'seed_{seed}') for arm in ('slow', 'wide') for seed in (1, 2)
    ]
    assert [json.loads(path.read_text())['state'] for path in runs] == ['finished'] * 4
    for path in runs:
        log = path.parents[1] / 'logs' / f'{path.parent.name}.log'
        assert log.read_text().count('$ ') == 1, 'one job a run'
    jobs = re.findall(r'JobName=((?:slow|wide)-\S+)', slurm('scontrol', 'show', 'job', '--oneliner'))
    assert len(jobs) == len(set(jobs)) == 4, said
    for arm, rate in (('wide', 1e-3), ('slow', 1e-4)):
        summary = json.loads((folder / 'study' / arm / 'summary.json').read_text())
        assert summary['seeds'] == [1, 2] and summary['unfinished'] == {}
        assert f'lr {rate:g}' in (folder / 'study' / arm / 'logs' / 'seed_1.log').read_text()
