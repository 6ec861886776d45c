"""Other processes on the machine: rounds in which they took processor time are recognised and timed again."""

import os
import time
from pathlib import Path

SHARE = 0.05
"""Of all processors' time; more of it used by others disturbs a round."""
SHORTEST = 0.25
"""Seconds; the kernel counts in steps of 10 ms, so shorter rounds are judged together."""


class Watch:
    """Judges what was timed since the last call.

    Attributes:
        repeated: Rounds that were discarded.
        disturbed: Rounds that were kept although they were disturbed, since repeating did not help.
    """

    def __init__(self) -> None:
        self.repeated = self.disturbed = 0
        self.start()

    def start(self) -> None:
        """Begin a stretch of time."""
        self._wall, self._machine, self._own = time.perf_counter(), machine_seconds(), own_seconds()

    def long_enough(self) -> bool:
        """Check whether the stretch can be judged."""
        return time.perf_counter() - self._wall >= SHORTEST

    def calm(self) -> bool:
        """Check whether others left the processors alone in the stretch, and begin the next one."""
        wall = time.perf_counter() - self._wall
        others = (machine_seconds() - self._machine) - (own_seconds() - self._own)
        self.start()
        return others <= SHARE * max(wall, SHORTEST) * (os.cpu_count() or 1)

    def remark(self) -> str:
        """Return what a reader must know; nothing if all was calm."""
        parts = []
        if self.repeated:
            parts.append(f'{self.repeated} rounds were repeated, because other processes used the processors')
        if self.disturbed:
            parts.append(f'DISTURBED: other processes used the processors in {self.disturbed} of the rounds')
        return '; '.join(parts)


def machine_seconds() -> float:
    """Return the processor time that all processes of the machine have used, and that its host withheld."""
    path = Path('/proc/stat')
    if not path.is_file():
        return 0.0
    user, nice, system, _, _, irq, soft, steal = map(int, path.read_text().split('\n', 1)[0].split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf('SC_CLK_TCK')


def own_seconds() -> float:
    """Return the processor time of this process and its children, those that have ended included."""
    import psutil

    used = sum(os.times()[:4])
    for child in psutil.Process().children(recursive=True):
        try:
            used += sum(child.cpu_times()[:4])
        except psutil.Error:  # it has just ended, and counts among the ended ones next time
            continue
    return used
