"""What the scheduler expects of a launcher, and of the jobs that it starts."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mmlape
from mmlape.experiments.launchers.devices import Slot
from mmlape.experiments.study import PlannedRun
from mmlape.runs.run import Run


@dataclass(kw_only=True)
class Job(ABC):
    """A run that was started.

    Args:
        planned: The run.
        started: When it was started or found, as of `time.monotonic`.
    """

    planned: PlannedRun
    started: float = field(default_factory=time.monotonic)

    @property
    def place(self) -> str:
        """Where it runs, for a line of progress."""
        return ''

    @property
    def failure(self) -> dict | None:
        """Kind and reason of its failure; None if only exit status and log tell."""
        return None

    @abstractmethod
    def poll(self) -> int | str | None:
        """Return the exit status or a description of how it ended; None while it runs."""

    def can_continue(self, run: Run) -> bool:
        """Return whether another job should resume the run."""
        return False

    def release(self) -> None:  # noqa: B027  (optional)
        """Give back what it held."""


class Launcher(ABC):
    """Starts runs and follows them."""

    @abstractmethod
    def describe(self) -> str:
        """Return how many runs it starts at a time, and on what."""

    def adopt(self, planned: PlannedRun) -> Job | None:
        """Return the job that an earlier call started for a run, if this launcher can follow it."""
        return None

    @abstractmethod
    def reserve(self, running: int) -> Slot | None:
        """Reserve a slot for one more run beside ``running`` others; return None if there is no free one."""

    @abstractmethod
    def start(self, planned: PlannedRun, lock: int, slot: Slot) -> Job:
        """Start or resume a run in a slot; the launcher owns ``lock``, the run's start lock, from now on.

        Raises:
            TrainingError: The run could not be started.
        """

    def refresh(self, jobs: Sequence[Any]) -> None:  # noqa: B027  (optional)
        """Update the states of jobs, where `Job.poll` cannot ask for them."""

    @abstractmethod
    def stop(self, jobs: Sequence[Any]) -> str:
        """Stop jobs, or leave them running; return a message about it."""


def import_path() -> str:
    """Return a PYTHONPATH from which other processes import this package."""
    package = str(Path(mmlape.__file__).resolve().parents[1])
    others = [path for path in os.environ.get('PYTHONPATH', '').split(os.pathsep) if path not in ('', package)]
    return os.pathsep.join([package, *others])
