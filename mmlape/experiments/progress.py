"""How far a job of several parts is, and how long the rest will take."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mmlape.experiments.status import clock


@dataclass
class Progress:
    """What is done of what there is to do, by the parts' costs; says lines with the time left."""

    total: float
    say: Callable[[str], None]
    done: float = 0.0
    begun: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def finish(self, cost: float) -> None:
        with self.lock:
            self.done += cost

    def tell(self, text: str) -> None:
        """Say a line, with the time that has passed and, once it can be known, the time left."""
        with self.lock:
            passed = time.monotonic() - self.begun
            share = self.done / self.total
            left = f', about {clock(passed * (1 - share) / share)} left' if 0.05 < share < 1 else ''
            self.say(f'[{clock(passed)}{left}] {text}')
