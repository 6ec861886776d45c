"""Runs as Slurm jobs: one `sbatch` script each, kept in the arm's folder, and found again by the job's name.

The name holds a hash of the run's folder, so that any call, on any machine of the cluster, sees in the queue whether
a run has a job already. When a run is to be gone on with, and when, is decided by its folder as everywhere; Slurm
only places jobs. A job that is requeued, or submitted again after its time limit, goes on where it stopped.
"""

import hashlib
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mmlape.errors import ConfigError, TrainingError
from mmlape.experiments.launchers.devices import Group
from mmlape.experiments.launchers.local import import_path
from mmlape.experiments.study import PlannedRun
from mmlape.files import write_json
from mmlape.mim import mim_root
from mmlape.runs.failures import SLURM_STATES
from mmlape.runs.record import read_record
from mmlape.runs.run import Run

REPEATED = ('TIMEOUT', 'PREEMPTED', 'NODE_FAIL', 'BOOT_FAIL', 'vanished')
"""Ends of a job after which the run goes on in another one, as long as it got further."""


@dataclass
class SlurmJob:
    """A run's job.

    Args:
        number: Slurm's.
        begun: When it was submitted or found, as of `time.monotonic`.
        iteration: How far the run was then.
        state: Slurm's word for it.
        ended: Whether it has left the queue.
    """

    planned: PlannedRun
    number: str
    begun: float
    iteration: int
    state: str = 'PENDING'
    ended: bool = False

    @property
    def told(self) -> str:
        return f'as job {self.number}, {self.state}'

    def poll(self) -> str | None:
        """How it ended; None while it has not."""
        return f'job {self.number} that ended as {self.state}' if self.ended else None

    def again(self, run: Run) -> bool:
        """Whether the run is to go on in another job."""
        return self.state in REPEATED and (run.record.get('iter') or 0) > self.iteration

    @property
    def failure(self) -> dict | None:
        """What Slurm says that the job failed of."""
        kind, reason = SLURM_STATES.get(self.state, (None, None))
        return dict(kind=kind, reason=f'job {self.number}: {reason}') if kind else None

    def note(self) -> None:
        """Writes down what is known, for whoever looks without asking Slurm."""
        noted = dict(job=self.number, state=self.state, ended=self.ended, updated=time.time())
        write_json(folder_of(self.planned) / f'{self.planned.folder.name}.json', noted)

    def release(self) -> None:
        """A job holds nothing of this process."""


class SlurmLauncher:
    """Submits runs.

    Args:
        processes: Of one run, one a GPU.
        per_node: GPUs that a node has; 0 for CPU processes, which share one node.
        options: ``key=value`` for sbatch, or words such as ``exclusive``.
        parallel: The most jobs at a time; by default all runs are submitted at once.
        every: Seconds between two looks at the queue.

    Raises:
        ConfigError: Slurm is not here, or the processes do not fill their nodes.
    """

    def __init__(
        self,
        processes: int = 1,
        per_node: int = 4,
        options: Sequence[str] = (),
        parallel: int | None = None,
        every: float = 10.0,
    ) -> None:
        missing = [name for name in ('sbatch', 'squeue') if not shutil.which(name)]
        if missing:
            raise ConfigError(f'--launcher slurm: no {" or ".join(missing)} here; run it where jobs are submitted')
        self.processes, self.parallel, self.every = processes, parallel, every
        self.on_node = min(per_node, processes) or processes
        self.nodes, self.gpus = math.ceil(processes / self.on_node), per_node > 0
        if processes % self.on_node:
            raise ConfigError(
                f'--gpus {processes} do not fill nodes of --gpus-per-node {per_node}: give a divisor of {processes}'
            )
        self.options = [word for option in options for word in shlex.split(option)]
        self.looked = -math.inf

    def describe(self) -> str:
        """What a job asks for."""
        what = 'GPUs' if self.gpus else 'CPU processes'
        return f'Slurm jobs of {self.nodes} x {self.on_node} {what}'

    def reserve(self, running: int) -> Group | None:
        """Room for one more job beside so many."""
        return Group((), ()) if self.parallel is None or running < self.parallel else None

    def adopt(self, planned: PlannedRun) -> SlurmJob | None:
        """The job that a run has already.

        Raises:
            TrainingError: The queue cannot be read, so nobody knows.
        """
        found = self._queue(check=True).get(job_name(planned))
        return _job(planned, *found) if found else None

    def start(self, planned: PlannedRun, claim: int, room: Group) -> SlurmJob:
        """Submits a run; the claim is kept until that is done.

        Raises:
            TrainingError: Slurm does not take it.
        """
        try:
            found = self._queue(check=True).get(job_name(planned))
            if found is None:
                script = folder_of(planned) / f'{planned.folder.name}.sh'
                script.parent.mkdir(parents=True, exist_ok=True)
                script.write_text(self.script(planned), encoding='utf-8')
                found = (_submit(script), 'PENDING')
            job = _job(planned, *found)
            job.note()
            return job
        finally:
            os.close(claim)

    def script(self, planned: PlannedRun) -> str:
        """The sbatch script that trains a run, or the rest of it."""
        config, *options = planned.words
        launcher = ['--launcher', 'slurm'] if self.processes > 1 else []
        tool = mim_root() / 'tools' / 'train.py'
        command = shlex.join([sys.executable, '-u', str(tool), config, '--resume', *launcher, *options])
        return '\n'.join(
            [
                '#!/bin/bash',
                *(f'#SBATCH --{line}' for line in self._request(planned)),
                f'export PYTHONPATH={shlex.quote(import_path())} PYTHONUNBUFFERED=1',
                'export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}',
                f'echo {shlex.quote("$ " + command)}',
                f'exec srun --kill-on-bad-exit=1 --cpus-per-task="${{SLURM_CPUS_PER_TASK:-1}}" {command}',
                '',
            ]
        )

    def _request(self, planned: PlannedRun) -> list[str]:
        """sbatch's options; those that were given take the place of the usual ones."""
        own = {
            'job-name': job_name(planned),
            'output': str(planned.log.absolute()).replace('%', '%%'),
            'open-mode': 'append',
            'chdir': os.getcwd(),
            'nodes': self.nodes,
            'ntasks-per-node': self.on_node,
            'cpus-per-task': os.environ.get('CPUS_PER_TASK', 5),
        }
        given = dict(option.removeprefix('--').partition('=')[::2] for option in self.options)
        if self.gpus and not any(key in given for key in ('gres', 'gpus', 'gpus-per-node', 'gpus-per-task')):
            own['gres'] = f'gpu:{self.on_node}'
        taken = [key for key in ('job-name', 'output', 'chdir', 'array') if key in given]
        if taken:
            raise ConfigError(f'--slurm-args {taken[0]}: set by the runner')
        asked = {**own, **given}.items()
        return [key if value == '' else f'{key}={shlex.quote(str(value))}' for key, value in asked]

    def refresh(self, jobs: Sequence[SlurmJob]) -> None:
        """Asks Slurm, now and then, how jobs are."""
        if not jobs or time.monotonic() - self.looked < self.every:
            return
        self.looked = time.monotonic()
        queue = self._queue()
        if queue is None:
            return
        for job in jobs:
            state = queue.get(job_name(job.planned), (job.number, None))[1]
            job.ended = state is None
            state = state or _end_of(job.number)
            if job.ended or state != job.state:
                job.state = state
                job.note()

    def stop(self, jobs: Sequence[SlurmJob]) -> str:
        """Leaves the jobs alone, and says how to follow or to cancel them."""
        numbers = ' '.join(job.number for job in jobs)
        return f'{len(jobs)} jobs go on; the same command follows them again, `scancel {numbers}` ends them'

    @staticmethod
    def _queue(check: bool = False) -> dict[str, tuple[str, str]] | None:
        """Number and state of this user's jobs, by name; None if Slurm does not answer."""
        asked = _slurm('squeue', '--me', '--noheader', '--format=%A|%T|%j')
        if asked.returncode:
            if check:
                raise TrainingError(f'squeue does not answer, so jobs may exist unseen: {asked.stderr.strip()}')
            return None
        lines = [line.split('|', 2) for line in asked.stdout.splitlines()]
        return {name.strip(): (number, state) for number, state, name in lines}


def folder_of(planned: PlannedRun) -> Path:
    """Where an arm's scripts and notes of jobs are."""
    return planned.folder.parent / 'slurm'


def job_name(planned: PlannedRun) -> str:
    """The same for every call about a run, and no other's."""
    place = hashlib.sha256(str(planned.folder.absolute().resolve()).encode()).hexdigest()[:8]
    return f'{planned.arm.name}-{planned.folder.name}-{place}'


def _job(planned: PlannedRun, number: str, state: str) -> SlurmJob:
    iteration = (read_record(planned.folder) or {}).get('iter') or 0
    if state == 'COMPLETING':  # it has done what it could before this call
        iteration = -1
    return SlurmJob(planned, number, time.monotonic(), iteration, state)


def _submit(script: Path) -> str:
    done = _slurm('sbatch', '--parsable', str(script))
    if done.returncode:
        raise TrainingError(f'sbatch does not take {script}: {done.stderr.strip()}')
    return done.stdout.strip().splitlines()[-1].split(';')[0]


def _end_of(number: str) -> str:
    """What became of a job that is in the queue no more; 'vanished' where Slurm does not keep that."""
    asked = _slurm('sacct', '-j', number, '--allocations', '--noheader', '--parsable2', '--format=State')
    if asked.returncode == 0 and asked.stdout.strip():
        return asked.stdout.split()[0]
    asked = _slurm('scontrol', 'show', 'job', number, '--oneliner')
    found = re.search(r'\bJobState=(\S+)', asked.stdout)
    return found[1] if found else 'vanished'


def _slurm(*words: str) -> subprocess.CompletedProcess:
    """Calls Slurm; what describes the allocation that this process may run in is not handed on."""
    environment = {key: value for key, value in os.environ.items() if not re.match(r'SLURM_(?!CONF$)', key)}
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 1, '', str(error))
