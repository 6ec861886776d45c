"""The progress of a job of several parts, and the time left."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mmlape.console import clock

PRIOR = 60.0
"""Seconds of the plan that the measured pace is averaged with, so that the first minutes do not jump."""


@dataclass
class Progress:
    """The share of a plan that is done; logs lines with the time left.

        left = (total - done) (passed + PRIOR) / (done + PRIOR)

    The plan's costs are seconds on the machine that they were measured on; the last factor corrects them, the more the
    more is done here.

    Args:
        total: The sum of the costs.
        print: Receives each line.
        running: Returns the cost of what is done of the parts that run now.
        done: The cost of the parts that were finished here.
        started: As of `time.monotonic`.
        lock: Held while the numbers change, or a line is printed.
    """

    total: float
    print: Callable[[str], None]
    running: Callable[[], float] = lambda: 0.0
    done: float = 0.0
    started: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self.started

    def finish(self, cost: float) -> None:
        """Count a part as done."""
        with self.lock:
            self.done += cost

    def skip(self, cost: float) -> None:
        """Take a part that was done before out of the plan."""
        with self.lock:
            self.total -= cost

    def left(self) -> float:
        """Estimate the seconds left."""
        done = min(self.done + self.running(), self.total)
        return (self.total - done) * (self.seconds + PRIOR) / (done + PRIOR)

    def log(self, text: str) -> None:
        """Print a line with the time passed and the time left."""
        with self.lock:
            left = self.left()
            self.print(f'[{clock(self.seconds)}{f", about {clock(left)} left" if left >= 1 else ""}] {text}')
