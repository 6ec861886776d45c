"""The progress of a job of several parts, and the time left."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mmlape.console import clock


@dataclass
class Progress:
    """The share that is done, by the parts' costs; logs lines with the time left.

    Args:
        total: The sum of the costs.
        print: Receives each line.
        done: The cost of what is finished.
        started: As of `time.monotonic`.
        lock: Held while the numbers change, or a line is printed.
    """

    total: float
    print: Callable[[str], None]
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

    def log(self, text: str) -> None:
        """Print a line with the time passed and, once it can be estimated, the time left."""
        with self.lock:
            passed, share = self.seconds, self.done / self.total
            left = f', about {clock(passed * (1 - share) / share)} left' if 0.05 < share < 1 else ''
            self.print(f'[{clock(passed)}{left}] {text}')
