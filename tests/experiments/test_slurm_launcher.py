"""The Slurm launcher against stand-ins for Slurm's programs; `make test-slurm` tries it on a real controller."""

import json
import os

import pytest

from mmlape.errors import ConfigError, TrainingError
from mmlape.files import write_json
from mmlape.lab.experiments.launchers import Slot
from mmlape.lab.experiments.planning import Arm, PlannedRun
from mmlape.lab.experiments.scheduler import Scheduler
from mmlape.lab.experiments.slurm import SlurmLauncher, job_name
from mmlape.lab.runs.run import Run, read_run

# The queue is a file of 'number|state|name' lines; what has ended is in another, for sacct.
PROGRAMS = {
    'sbatch': 'name=$(sed -n "s/^#SBATCH --job-name=//p" "$2"); number=$(($(cat count) + 1)); echo $number > count\n'
    'echo "$number|PENDING|$name" >> queue; echo "$number;cluster"',
    'squeue': '[ ! -e broken ] || { echo "Unable to contact slurm controller" >&2; exit 1; }; cat queue',
    'sacct': 'grep "^$2|" ended | cut -d"|" -f2 | sed "s/CANCELLED/CANCELLED by 0/"',
    'scontrol': 'exit 1',
}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A folder with the stand-ins and their files."""
    folder = tmp_path / 'slurm'
    folder.mkdir()
    for name, script in PROGRAMS.items():
        (folder / name).write_text(f'#!/bin/bash\ncd {folder}\n{script}\n')
        (folder / name).chmod(0o755)
    for name, text in (('count', '0'), ('queue', ''), ('ended', '')):
        (folder / name).write_text(text)
    monkeypatch.setenv('PATH', f'{folder}:{os.environ["PATH"]}')
    return folder


def _planned(tmp_path, seed=1, action='start'):
    run = tmp_path / 'runs' / 'arm' / f'seed_{seed}'
    train_args = ('config with space.py', '--work-dir', str(run), '--seed', str(seed))
    return PlannedRun(Arm('arm', 'config with space.py'), train_args, Run(run, seed, 'missing'), action)


def _submit(launcher, planned):
    return launcher.start(planned, planned.acquire(), Slot())


def _leave(slurm, state):
    """All jobs leave the queue."""
    lines = (slurm / 'queue').read_text().splitlines()
    (slurm / 'ended').write_text(''.join(f'{line.split("|")[0]}|{state}\n' for line in lines))
    (slurm / 'queue').write_text('')


def test_the_script_asks_for_whole_nodes_and_goes_on_where_a_run_stopped(slurm, tmp_path):
    options = ['partition=gpu time=1:00:00', '--exclusive', '--cpus-per-task=9']
    script = SlurmLauncher(8, 4, options).script(_planned(tmp_path))
    asked = {line.removeprefix('#SBATCH --') for line in script.splitlines() if line.startswith('#SBATCH')}
    assert asked >= {
        'nodes=2', 'ntasks-per-node=4', 'gres=gpu:4', 'partition=gpu', 'time=1:00:00', 'exclusive', 'cpus-per-task=9',
        'signal=TERM@120', 'open-mode=append', f'output={tmp_path}/runs/arm/logs/seed_1.log',
    }  # fmt: skip
    assert "train.py 'config with space.py' --resume --launcher slurm" in script and 'srun' in script
    one = SlurmLauncher(1, 0, ["comment='two words'"]).script(_planned(tmp_path))
    assert "#SBATCH --comment='two words'\n" in one
    assert 'gres' not in one and '--launcher' not in one and '--nodes=1' in one
    own = SlurmLauncher(2, 4, ['gpus-per-task=h100:1']).script(_planned(tmp_path))
    assert 'gres' not in own and '--ntasks-per-node=2' in own
    with pytest.raises(ConfigError, match=r'--processes 6 do not fill nodes of --gpus-per-node 4'):
        SlurmLauncher(6, 4)
    with pytest.raises(ConfigError, match='job-name: set by the launcher'):
        SlurmLauncher(1, 0, ['job-name=mine']).script(_planned(tmp_path))


def test_a_run_in_the_queue_is_not_submitted_again(slurm, tmp_path):
    planned = _planned(tmp_path)
    assert SlurmLauncher().adopt(planned) is None
    first = _submit(SlurmLauncher(), planned)
    assert first.number == '1' and SlurmLauncher().adopt(planned).number == '1'
    assert _submit(SlurmLauncher(), planned).number == '1', 'also if the note of it was lost'
    assert SlurmLauncher().adopt(_planned(tmp_path, 2)) is None
    assert job_name(planned) != job_name(_planned(tmp_path / 'elsewhere'))
    note = json.loads((tmp_path / 'runs' / 'arm' / 'slurm' / 'seed_1.json').read_text())
    assert (note['job'], note['state'], note['ended']) == ('1', 'PENDING', False)
    (slurm / 'broken').touch()
    with pytest.raises(TrainingError, match='squeue does not answer.*Unable to contact'):
        SlurmLauncher().adopt(planned)


@pytest.mark.parametrize(
    ('state', 'iteration', 'again', 'kind'),
    [
        ('TIMEOUT', 5, True, 'interrupted'),
        ('TIMEOUT', 0, False, 'interrupted'),
        ('NODE_FAIL', 5, True, 'lost-worker'),
        ('PREEMPTED', 5, True, 'interrupted'),
        ('BOOT_FAIL', 5, True, None),
        ('CANCELLED', 5, False, 'interrupted'),
        ('OUT_OF_MEMORY', 5, False, 'out-of-memory'),
        ('FAILED', 5, False, None),
        ('FAILED', 5, 'stopped', None),
        ('FAILED', 0, 'stopped', None),
        ('', 5, True, None),
    ],
)
def test_a_job_that_left_the_queue_goes_on_only_if_that_can_help(slurm, tmp_path, state, iteration, again, kind):
    planned, launcher = _planned(tmp_path), SlurmLauncher(interval=0)
    job = _submit(launcher, planned)
    launcher.refresh([job])
    assert job.poll() is None
    (slurm / 'broken').touch()
    launcher.refresh([job])
    assert job.poll() is None, 'a controller that does not answer ends nothing'
    (slurm / 'broken').unlink()
    record = dict(seed=1, state='running', iter=iteration, max_iters=9)
    if again == 'stopped':  # by the signal before the time limit; its exit status is an ordinary failure to Slurm
        record.update(state='failed', failure=dict(kind='interrupted', reason='interrupted in iteration 6'))
        again = iteration > 0
    write_json(planned.folder / 'run.json', record)
    _leave(slurm, state)
    launcher.refresh([job])
    assert job.poll() == f'job 1 that ended as {state or "vanished"}'
    assert job.can_continue(read_run(planned.folder, 1)) == again
    assert (job.failure.kind if job.failure else None) == kind


@pytest.mark.parametrize(
    ('state', 'iteration', 'again'),
    [('RUNNING', 5, False), ('RUNNING', 6, True), ('COMPLETING', 5, True), ('COMPLETING', 0, True)],
)
def test_a_job_that_was_ending_when_it_was_found_may_have_advanced_before(slurm, tmp_path, state, iteration, again):
    planned, launcher = _planned(tmp_path), SlurmLauncher(interval=0)
    record = dict(seed=1, state='running', max_iters=9)
    write_json(planned.folder / 'run.json', dict(record, iter=min(iteration, 5)))
    (slurm / 'queue').write_text(f'7|{state}|{job_name(planned)}\n')
    job = launcher.adopt(planned)
    write_json(planned.folder / 'run.json', dict(record, iter=iteration))
    _leave(slurm, 'TIMEOUT')
    launcher.refresh([job])
    assert job.can_continue(read_run(planned.folder, 1)) == again


def test_a_run_goes_through_two_jobs_to_its_end(slurm, tmp_path):
    """The first job ends at its time limit, the second one finishes the run."""
    planned, said = _planned(tmp_path), []

    class Watched(SlurmLauncher):
        def refresh(self, jobs):
            number = (slurm / 'count').read_text().strip()
            done = number == '2'
            record = dict(seed=1, state='finished' if done else 'running', iter=9 if done else 5, max_iters=9)
            write_json(planned.folder / 'run.json', record)
            _leave(slurm, 'COMPLETED' if done else 'TIMEOUT')
            super().refresh(jobs)

    (run,) = Scheduler([planned], Watched(interval=0), said.append, poll_interval=0).run()
    assert run.finished and (slurm / 'count').read_text().strip() == '2'
    assert any('ended as TIMEOUT, continues in a new one' in line for line in said)
