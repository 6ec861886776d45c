"""Carries a plan out: starts what is not finished, waits for what others train.

No failure stops the other runs.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from mmlape.console.terminal import clock
from mmlape.lab.experiments.launchers import Job, Launcher
from mmlape.lab.experiments.planning import PlannedRun, require_startable
from mmlape.lab.runs.failures import diagnose, last_part, log_tail, oom_kills, record_diagnosis
from mmlape.lab.runs.run import Run, holder, read_run
from mmlape.lab.runs.schema import ENDED, Failure, RunRecord, read_record

REPORT_INTERVAL = 30.0
"""Seconds between two lines about the running jobs."""


@dataclass
class Scheduler:
    """Runs a plan."""

    plan: Sequence[PlannedRun]  # from `Study.plan`; may join those of several studies
    launcher: Launcher  # starts runs and follows them
    log: Callable[[str], None] = print  # receives each line of progress
    poll_interval: float = 0.5  # seconds between two checks of the jobs
    # called with each finished run, including those that were finished before
    on_finished: Callable[[PlannedRun], None] = lambda planned: None
    # whether a run that waits is to be started now; asked again before each start
    is_wanted: Callable[[PlannedRun], bool] = lambda planned: True
    jobs: list[Job] = field(init=False, default_factory=list)
    finished: list[PlannedRun] = field(init=False, default_factory=list)
    failed: list[PlannedRun] = field(init=False, default_factory=list)
    # seconds of each run that was trained here from its start
    durations: list[float] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.waiting = [planned for planned in self.plan if planned.action in ('start', 'resume')]
        self.watched = [planned for planned in self.plan if planned.action == 'watch']
        self.last_report = time.monotonic()

    def run(self, wait: bool = True) -> list[Run]:
        """Carry the plan out; without ``wait`` only start the runs that there is a slot for.

        Returns:
            The state of the runs afterwards, in the order of the plan.

        Raises:
            TrainingError: A run is refused, and nothing was started; or a folder cannot be written
                to.
        """
        require_startable(self.plan)
        for planned in self.plan:
            if planned.action == 'skip':
                self._finish(planned, 'finished before, skipped')
        for planned in self.watched:
            self.log(f'{planned.label}: already running ({planned.reason}), waiting for it')
        try:
            self._adopt()
            while True:
                self._start()
                if not wait or not (self.jobs or self.wanted or self.watched):
                    break
                time.sleep(self.poll_interval)
                self._collect()
                self._check_watched()
                self._report()
        finally:
            if wait and self.jobs:
                message = self.launcher.stop(self.jobs)
                if message:
                    self.log(message)
            for job in self.jobs:
                job.release()
        return [read_run(planned.folder, planned.run.seed) for planned in self.plan]

    def _adopt(self) -> None:
        """Follow the jobs that an earlier call started, where the launcher can."""
        for planned in [*self.waiting, *self.watched]:
            job = self.launcher.adopt(planned)
            if job:
                (self.waiting if planned in self.waiting else self.watched).remove(planned)
                self.jobs.append(job)
                self.log(f'{planned.label}: {job.place}; {planned.log}')

    @property
    def wanted(self) -> list[PlannedRun]:
        """The runs that wait and are wanted; another one may become so when a run ends."""
        return [planned for planned in self.waiting if self.is_wanted(planned)]

    def _start(self) -> None:
        while wanted := self.wanted:
            slot = self.launcher.reserve(len(self.jobs))
            if slot is None:
                return
            planned = wanted[0]
            self.waiting.remove(planned)
            lock = planned.acquire()
            if lock is None:  # another command was faster
                slot.release()
                self.watched.append(planned)
                self.log(f'{planned.label}: just started by another command, waiting for it')
                continue
            if self._changed_meanwhile(planned):
                slot.release()
                os.close(lock)
                continue
            job = self.launcher.start(planned, lock, slot)
            self.jobs.append(job)
            started = 'started' if planned.action == 'start' else 'resumed'
            reason = f' ({planned.reason})' if planned.reason else ''
            place = f' {job.place}' if job.place else ''
            more = f', {len(self.wanted)} waiting' if self.wanted else ''
            self.log(f'{planned.label}: {started}{reason}{place}{more}; {planned.log}')

    def _changed_meanwhile(self, planned: PlannedRun) -> bool:
        """Return whether another process started or finished a run after the plan was made."""
        run = read_run(planned.folder, planned.run.seed)
        if run.finished:
            self._finish(planned, 'finished elsewhere')
        elif run.state == 'running':
            self.watched.append(planned)
        return run.state in ('running', 'finished')

    def _finish(self, planned: PlannedRun, message: str) -> None:
        self.finished.append(planned)
        self.on_finished(planned)
        self.log(f'{planned.label}: {message}')

    def _collect(self) -> None:
        """Handle the jobs that have ended."""
        self.launcher.refresh(self.jobs)
        for job in list(self.jobs):
            status = job.poll()
            if status is None:
                continue
            self.jobs.remove(job)
            try:
                self._end(job, status)
            finally:
                job.release()

    def _end(self, job: Job, status: int | str) -> None:
        planned, seconds = job.planned, time.monotonic() - job.started
        run = read_run(planned.folder, planned.run.seed)
        if run.state == 'running':  # it could not start: somebody trains there by hand
            self.watched.append(planned)
            self.log(f'{planned.label}: its work dir is in use, waiting for that')
        elif run.finished:
            if planned.action == 'start':
                self.durations.append(seconds)
            stop = f', {run.reason}' if run.reason else ''
            self._finish(planned, f'finished after {clock(seconds)}{stop}{self._time_left()}')
        elif job.can_continue(run):
            self.waiting.append(_resumed(planned, run))
            self.log(f'{planned.label}: {status}, continues in a new one')
        else:
            self._fail(planned, run, status, _failure(job, status))

    def _fail(self, planned: PlannedRun, run: Run, status: int | str, failure: Failure) -> None:
        """Record the diagnosed failure of a run, and log it with the end of its output."""
        self.failed.append(planned)
        code = status if isinstance(status, int) else None
        run = record_diagnosis(run, failure, planned.arm.config, planned.run.record)
        end = status if code is None else f'exit status {code}'
        ending = 'interrupted' if run.state == 'interrupted' else 'FAILED'
        self.log(
            f'{planned.label}: {ending} with {end}: {run.reason or failure.reason}\n'
            f'  the end of {planned.log}:\n{log_tail(planned.log)}'
        )

    def _check_watched(self) -> None:
        """Handle the runs that others have finished, failed or abandoned."""
        for planned in list(self.watched):
            if holder(planned.folder):
                continue
            self.watched.remove(planned)
            run = read_run(planned.folder, planned.run.seed)
            if run.finished:
                self._finish(planned, 'finished elsewhere')
            elif run.state in ENDED:
                self.failed.append(planned)
                self.log(f'{planned.label}: {run.state} elsewhere: {run.reason}')
            else:
                self.waiting.append(_resumed(planned, run))
                self.log(f'{planned.label}: abandoned elsewhere, continues here')

    def _report(self) -> None:
        """Log the progress of all runs at intervals."""
        if time.monotonic() - self.last_report < REPORT_INTERVAL:
            return
        self.last_report = time.monotonic()
        running = [_progress(planned) for planned in [*(job.planned for job in self.jobs), *self.watched]]
        counts = f'{len(self.finished)} of {len(self.plan)} finished, {len(running)} running'
        counts += f', {len(self.wanted)} waiting' + (f', {len(self.failed)} failed' if self.failed else '')
        self.log(f'{counts}{self._time_left()}: {"; ".join(running)}' if running else counts)

    def _time_left(self) -> str:
        """Return the time left, once it can be estimated."""
        left = [(read_record(job.planned.folder) or RunRecord()).eta for job in self.jobs]
        if not (self.jobs or self.wanted) or None in left:
            return ''
        now = time.monotonic()
        durations = self.durations or [now - job.started + eta for job, eta in zip(self.jobs, left, strict=True)]
        if not durations:
            return ''
        total = sum(left) + len(self.wanted) * sum(durations) / len(durations)
        longest = max([total / max(1, len(self.jobs)), *left])
        return f', about {clock(longest)} left' if longest >= 1 else ''


def _failure(job: Job, status: int | str) -> Failure:
    """Return why a run failed."""
    code = status if isinstance(status, int) else None
    # a job's machine may be another one
    out_of_memory = code is not None and oom_kills() > job.oom_kills
    return job.failure or diagnose(code, last_part(job.planned.log), out_of_memory)


def _resumed(planned: PlannedRun, run: Run) -> PlannedRun:
    """Return the same run, to be resumed."""
    return replace(planned, run=run, action='resume' if run.state != 'missing' else 'start', reason='')


def _progress(planned: PlannedRun) -> str:
    """Return a line such as 'lape, seed 121: 400 of 16000'."""
    record = read_record(planned.folder) or RunRecord()
    if record.state != 'running' or not record.max_iters:
        return f'{planned.label}: {"ending" if record.state == "finished" else "preparing"}'
    return f'{planned.label}: {record.iter} of {record.max_iters}'
