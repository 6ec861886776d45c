"""Runs as Slurm jobs: one `sbatch` script each, kept in the arm's folder, and found again by the name of the job.

The name contains a hash of the run's folder, so any call, on any machine of the cluster, sees in
the queue whether a run already has a job. As everywhere, the run's folder decides whether and from
where a run is resumed; Slurm only places jobs. A job that is requeued, or submitted again after its
time limit, resumes where it stopped.
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
from mmlape.files import atomic_path
from mmlape.lab.experiments.launchers import Job, Launcher, Slot, import_path
from mmlape.lab.experiments.planning import PlannedRun
from mmlape.lab.runs.failures import SLURM_STATES
from mmlape.lab.runs.run import Run, job_file, job_script
from mmlape.lab.runs.schema import Failure, JobState, RunRecord, read_record, write_job
from mmlape.openmmlab.mim import mim_root

GRACE = 120
"""Seconds before the time limit at which a run is told to save and to end."""
RESUMABLE = ('TIMEOUT', 'PREEMPTED', 'NODE_FAIL', 'BOOT_FAIL', 'vanished')
"""Final states of a job after which another one resumes the run, if it has advanced."""


@dataclass(kw_only=True)
class SlurmJob(Job):
    """A Slurm job of a run; ``iteration`` is the run's when the job was submitted or found."""

    number: str
    iteration: int
    state: str = 'PENDING'
    ended: bool = False

    @classmethod
    def of(cls, planned: PlannedRun, number: str, state: str) -> 'SlurmJob':
        """Build a job from its entry in the queue."""
        iteration = (read_record(planned.folder) or RunRecord()).iter or 0
        if state == 'COMPLETING':  # its progress was made before this call
            iteration = -1
        return cls(planned=planned, number=number, iteration=iteration, state=state)

    @property
    def place(self) -> str:
        """Its number and state."""
        return f'as job {self.number}, {self.state}'

    @property
    def failure(self) -> Failure | None:
        """Slurm's reason for a failure."""
        failure_type, reason = SLURM_STATES.get(self.state, (None, None))
        if not failure_type:
            return None
        return Failure(kind=failure_type, reason=f'job {self.number}: {reason}')

    def poll(self) -> str | None:
        """Return how it ended; None until then."""
        return f'job {self.number} that ended as {self.state}' if self.ended else None

    def can_continue(self, run: Run) -> bool:
        """Return whether another job should resume the run: it has advanced, and did not fail by itself."""
        failure = run.record.failure or Failure()
        stopped = self.state == 'FAILED' and failure.kind == 'interrupted'
        has_advanced = (run.record.iter or 0) > self.iteration
        return (stopped or self.state in RESUMABLE) and has_advanced

    def save(self) -> None:
        """Record the state for processes that do not ask Slurm."""
        job = JobState(job=self.number, state=self.state, ended=self.ended, updated=time.time())
        write_job(job_file(self.planned.folder), job)


class SlurmLauncher(Launcher):
    """Submits runs as Slurm jobs.

    Args:
        processes: Processes of one run, one per GPU.
        per_node: GPUs of a node; 0 for CPU processes, which share one node.
        options: ``key=value`` for sbatch, or flags such as ``exclusive``.
        max_parallel: How many jobs at a time; default: all runs are submitted at once.
        interval: Seconds between two queries of the queue.
        submits: Whether jobs will be submitted; to print a plan, Slurm need not be here.

    Raises:
        ConfigError: Slurm is not installed here, or the processes do not fill their nodes.
    """

    def __init__(
        self,
        processes: int = 1,
        per_node: int = 4,
        options: Sequence[str] = (),
        max_parallel: int | None = None,
        interval: float = 10.0,
        submits: bool = True,
    ) -> None:
        missing = [name for name in ('sbatch', 'squeue') if not shutil.which(name)]
        self.is_here = not missing
        if missing and submits:
            raise ConfigError(f'--slurm: no {" or ".join(missing)} here; run it where jobs are submitted')
        self.processes, self.max_parallel, self.interval = processes, max_parallel, interval
        self.on_node = min(per_node, processes) or processes
        self.nodes, self.gpus = math.ceil(processes / self.on_node), per_node > 0
        if processes % self.on_node:
            raise ConfigError(
                f'--processes {processes} do not fill nodes of --gpus-per-node {per_node}: give a divisor'
            )
        self.options = [part for option in options for part in shlex.split(option)]
        self.last_query = -math.inf

    def describe(self) -> str:
        """Return what a job asks for."""
        what = 'GPUs' if self.gpus else 'CPU processes'
        return f'Slurm jobs of {self.nodes} x {self.on_node} {what}'

    def reserve(self, running: int) -> Slot | None:
        """Return an empty slot unless the most jobs are submitted: Slurm places them."""
        return Slot() if self.max_parallel is None or running < self.max_parallel else None

    def adopt(self, planned: PlannedRun) -> SlurmJob | None:
        """Return the job that a run has in the queue; TrainingError if the queue cannot be read."""
        if not self.is_here:
            return None
        entry = self._queue(check=True).get(job_name(planned))
        return SlurmJob.of(planned, *entry) if entry else None

    def start(self, planned: PlannedRun, lock: int, slot: Slot) -> SlurmJob:
        """Submit a run; the lock is held until that is done. TrainingError if Slurm refuses it."""
        try:
            job = self.adopt(planned)
            if job is None:
                with atomic_path(job_script(planned.folder)) as partial:
                    partial.write_text(self.script(planned), encoding='utf-8')
                job = SlurmJob.of(planned, _submit(job_script(planned.folder)), 'PENDING')
            job.save()
            return job
        finally:
            os.close(lock)

    def preview(self, plan: Sequence[PlannedRun]) -> Sequence[str]:
        """Return the script of the first run that would be submitted."""
        for planned in plan:
            if planned.action in ('start', 'resume'):
                return f'the script of {planned.label}:', self.script(planned).rstrip()
        return ()

    def script(self, planned: PlannedRun) -> str:
        """Return the sbatch script that trains or resumes a run."""
        config, *options = planned.train_args
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
        """Return the options of sbatch; the given ones replace the defaults."""
        defaults = {
            'job-name': job_name(planned),
            'output': str(planned.log.absolute()).replace('%', '%%'),
            'open-mode': 'append',
            'chdir': os.getcwd(),
            'nodes': self.nodes,
            'ntasks-per-node': self.on_node,
            'cpus-per-task': os.environ.get('CPUS_PER_TASK', 5),
            'signal': f'TERM@{GRACE}',
        }
        given = dict(option.removeprefix('--').partition('=')[::2] for option in self.options)
        if self.gpus and not any(key in given for key in ('gres', 'gpus', 'gpus-per-node', 'gpus-per-task')):
            defaults['gres'] = f'gpu:{self.on_node}'
        fixed = [key for key in ('job-name', 'output', 'chdir', 'array') if key in given]
        if fixed:
            raise ConfigError(f'--slurm-args {fixed[0]}: set by the launcher')
        options = {**defaults, **given}.items()
        return [key if value == '' else f'{key}={shlex.quote(str(value))}' for key, value in options]

    def refresh(self, jobs: Sequence[SlurmJob]) -> None:
        """Query the queue at intervals, and update the states of jobs."""
        if not jobs or time.monotonic() - self.last_query < self.interval:
            return
        self.last_query = time.monotonic()
        queue = self._queue()
        if queue is None:
            return
        for job in jobs:
            state = queue.get(job_name(job.planned), (job.number, None))[1]
            job.ended = state is None
            state = state or _final_state(job.number)
            if job.ended or state != job.state:
                job.state = state
                job.save()

    def stop(self, jobs: Sequence[SlurmJob]) -> str:
        """Leave the jobs in the queue; return how to follow or to cancel them."""
        numbers = ' '.join(job.number for job in jobs)
        return f'{len(jobs)} jobs continue; the same command follows them again, `scancel {numbers}` ends them'

    @staticmethod
    def _queue(check: bool = False) -> dict[str, tuple[str, str]] | None:
        """Return number and state of this user's jobs by name; None if Slurm does not answer."""
        result = _slurm('squeue', '--me', '--noheader', '--format=%A|%T|%j')
        if result.returncode:
            if check:
                raise TrainingError(f'squeue does not answer, jobs may exist unseen: {result.stderr.strip()}')
            return None
        lines = [line.split('|', 2) for line in result.stdout.splitlines()]
        return {name.strip(): (number, state) for number, state, name in lines}


def job_name(planned: PlannedRun) -> str:
    """Return the name of a run's job: the same in every call, and unique to the run's folder."""
    digest = hashlib.sha256(str(planned.folder.absolute().resolve()).encode()).hexdigest()[:8]
    return f'{planned.arm.name}-{planned.folder.name}-{digest}'


def _submit(script: Path) -> str:
    result = _slurm('sbatch', '--parsable', str(script))
    if result.returncode:
        raise TrainingError(f'sbatch refuses {script}: {result.stderr.strip()}')
    return result.stdout.strip().splitlines()[-1].split(';')[0]


def _final_state(number: str) -> str:
    """Return the state of a job that has left the queue.

    'vanished' where Slurm does not record it.
    """
    result = _slurm('sacct', '-j', number, '--allocations', '--noheader', '--parsable2', '--format=State')
    if result.returncode == 0 and result.stdout.strip():
        return result.stdout.split()[0]
    result = _slurm('scontrol', 'show', 'job', number, '--oneliner')
    match = re.search(r'\bJobState=(\S+)', result.stdout)
    return match[1] if match else 'vanished'


def _slurm(*command: str) -> subprocess.CompletedProcess:
    """Call Slurm without the variables of the allocation that this process may run in."""
    environment = {key: value for key, value in os.environ.items() if not re.match(r'SLURM_(?!CONF$)', key)}
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, '', str(error))
