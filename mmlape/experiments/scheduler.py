"""Carries a plan out: starts what is not finished, waits for what others train, and lets no failure stop the rest."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from mmlape.experiments.status import clock
from mmlape.experiments.study import PlannedRun, refuse
from mmlape.runs.diagnosis import diagnose, last_part, log_tail, oom_kills, record_diagnosis
from mmlape.runs.record import read_record
from mmlape.runs.run import Run, read_run

Say = Callable[[str], None]


class Scheduler:
    """Runs a plan.

    Args:
        plan: As from `Study.plan`; of several studies, if need be.
        launcher: Starts runs, and says how they are.
        say: Called with each line of progress.
        every: Seconds between two lines about what is running.
        pause: Seconds between two looks at it.
        finished: Called with each run that is, also with those that were before.
    """

    def __init__(
        self,
        plan: Sequence[PlannedRun],
        launcher,
        say: Say = print,
        every: float = 30.0,
        pause: float = 0.5,
        finished: Callable[[PlannedRun], None] = lambda planned: None,
    ) -> None:
        self.plan, self.launcher, self.say, self.every, self.pause = plan, launcher, say, every, pause
        self.waiting = [planned for planned in plan if planned.action in ('start', 'resume')]
        self.watched = [planned for planned in plan if planned.action == 'watch']
        self.jobs: list = []
        self.finished = finished
        self.done: list[PlannedRun] = []
        self.failed: list[PlannedRun] = []
        self.took: list[float] = []  # seconds of each run that was trained here from its beginning
        self.begun = self.said = time.monotonic()
        self.oom_kills = oom_kills()

    def run(self, wait: bool = True) -> list[Run]:
        """Does it all.

        Args:
            wait: False only starts what there is room for, and comes back.

        Returns:
            The runs as they are then, in the order of the plan.

        Raises:
            TrainingError: A run was refused, and nothing was started; or a folder cannot be written to.
        """
        refuse(self.plan)
        for planned in self.plan:
            if planned.action == 'skip':
                self._finish(planned, 'finished before, skipped')
        for planned in self.watched:
            self.say(f'{planned.label}: running already ({planned.why}), waiting for it')
        try:
            self._adopt()
            while True:
                self._start()
                if not wait or not (self.jobs or self.waiting or self.watched):
                    break
                time.sleep(self.pause)
                self._collect()
                self._look_at_others()
                self._report()
        finally:
            if wait and self.jobs:
                stopped = self.launcher.stop(self.jobs)
                if stopped:
                    self.say(stopped)
            for job in self.jobs:
                job.release()
        return [read_run(planned.folder, planned.run.seed) for planned in self.plan]

    def _adopt(self) -> None:
        """Takes over what an earlier call started and this launcher can still follow."""
        for planned in [*self.waiting, *self.watched]:
            job = self.launcher.adopt(planned)
            if job:
                (self.waiting if planned in self.waiting else self.watched).remove(planned)
                self.jobs.append(job)
                self.say(f'{planned.label}: {job.told}; {planned.log}')

    def _start(self) -> None:
        while self.waiting:
            room = self.launcher.reserve(len(self.jobs))
            if room is None:
                return
            planned = self.waiting.pop(0)
            claim = planned.take()
            if claim is None:  # another call is faster
                room.release()
                self.watched.append(planned)
                self.say(f'{planned.label}: just started by somebody else, waiting for it')
                continue
            if self._settled_meanwhile(planned):
                room.release()
                os.close(claim)
                continue
            job = self.launcher.start(planned, claim, room)
            self.jobs.append(job)
            again = 'started' if planned.action == 'start' else 'resumed'
            why = f' ({planned.why})' if planned.why else ''
            told = f' {job.told}' if job.told else ''
            more = f', {len(self.waiting)} waiting' if self.waiting else ''
            self.say(f'{planned.label}: {again}{why}{told}{more}; {planned.log}')

    def _settled_meanwhile(self, planned: PlannedRun) -> bool:
        """Whether somebody else began or even finished a run since the plan was made."""
        run = read_run(planned.folder, planned.run.seed)
        if run.state not in ('running', 'finished'):
            return False
        if run.finished:
            self._finish(planned, 'finished elsewhere')
        else:
            self.watched.append(planned)
        return True

    def _finish(self, planned: PlannedRun, how: str) -> None:
        self.done.append(planned)
        self.finished(planned)
        self.say(f'{planned.label}: {how}')

    def _collect(self) -> None:
        """Takes note of what has ended."""
        self.launcher.refresh(self.jobs)
        for job in list(self.jobs):
            status = job.poll()
            if status is None:
                continue
            self.jobs.remove(job)
            try:
                self._ended(job, status)
            finally:
                job.release()

    def _ended(self, job, status: int | str) -> None:
        planned, seconds = job.planned, time.monotonic() - job.begun
        run = read_run(planned.folder, planned.run.seed)
        if run.state == 'running':  # it could not start, because somebody trains there by hand
            self.watched.append(planned)
            self.say(f'{planned.label}: its work dir is in use, waiting for that')
            return
        if run.finished:
            if planned.action == 'start':
                self.took.append(seconds)
            self._finish(planned, f'finished after {clock(seconds)}{self._outlook()}')
            return
        if job.again(run):
            self.waiting.append(resumed(planned, run))
            self.say(f'{planned.label}: {status}, goes on in a new one')
            return
        self._failed(job, run, status)

    def _failed(self, job, run: Run, status: int | str) -> None:
        planned = job.planned
        self.failed.append(planned)
        starved, code = oom_kills() > self.oom_kills, status if isinstance(status, int) else None
        failure = job.failure or diagnose(code, last_part(planned.log), starved)
        run = record_diagnosis(
            run, failure, planned.arm.config, since=time.time() - (time.monotonic() - job.begun) - 1
        )
        told = run.reason or failure['reason']
        ended = f'exit status {status}' if isinstance(status, int) else status
        self.say(f'{planned.label}: FAILED with {ended}: {told}\n  the end of {planned.log}:\n{log_tail(planned.log)}')

    def _look_at_others(self) -> None:
        """Takes note of what others have finished, and takes over what they left behind."""
        for planned in list(self.watched):
            if planned.busy():
                continue
            self.watched.remove(planned)
            run = read_run(planned.folder, planned.run.seed)
            if run.finished:
                self._finish(planned, 'finished elsewhere')
            elif run.state == 'failed':
                self.failed.append(planned)
                self.say(f'{planned.label}: failed elsewhere: {run.reason}')
            else:
                self.waiting.append(resumed(planned, run))
                self.say(f'{planned.label}: left behind, goes on here')

    def _report(self) -> None:
        """Says now and then how far everything is."""
        if time.monotonic() - self.said < self.every:
            return
        self.said = time.monotonic()
        shares = [_progress(planned) for planned in [*(job.planned for job in self.jobs), *self.watched]]
        counts = f'{len(self.done)} of {len(self.plan)} finished, {len(shares)} running, {len(self.waiting)} waiting'
        failed = f', {len(self.failed)} failed' if self.failed else ''
        self.say(f'{counts}{failed}{self._outlook()}: {"; ".join(shares)}' if shares else f'{counts}{failed}')

    def _outlook(self) -> str:
        """The time that is left, once it can be estimated."""
        going = [read_record(job.planned.folder) or {} for job in self.jobs]
        left = [record.get('eta') for record in going]
        if not (self.jobs or self.waiting) or None in left:
            return ''
        now = time.monotonic()
        whole = self.took or [now - job.begun + eta for job, eta in zip(self.jobs, left, strict=True)]
        if not whole:
            return ''
        total = sum(left) + len(self.waiting) * sum(whole) / len(whole)
        longest = max([total / max(1, len(self.jobs)), *left])
        return f', about {clock(longest)} to go' if longest >= 1 else ''


def resumed(planned: PlannedRun, run: Run) -> PlannedRun:
    """The same run, to be gone on with."""
    return replace(planned, run=run, action='resume' if run.state != 'missing' else 'start', why='')


def _progress(planned: PlannedRun) -> str:
    """'lape, seed 121: 400 of 16000'."""
    record = read_record(planned.folder) or {}
    if record.get('state') != 'running' or not record.get('max_iters'):
        return f'{planned.label}: {"ending" if record.get("state") == "finished" else "preparing"}'
    return f'{planned.label}: {record.get("iter")} of {record["max_iters"]}'
