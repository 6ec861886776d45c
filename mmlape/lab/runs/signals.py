"""SIGTERM, SIGHUP, SIGUSR1 and SIGINT: a run saves after the step that it is in, then stops.

A second Ctrl-C stops it at once.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator

from mmengine.dist import get_rank, is_distributed

STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT)
ECHO = 1.0
"""Seconds in which a second SIGINT is the same Ctrl-C: a terminal and a launcher both send it."""


class Interrupted(SystemExit):
    """A signal stopped the process, SIGTERM for example; it exits with the shell's status for that."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__(128 + number)
        self.name = signal.Signals(number).name

    def __str__(self) -> str:
        return self.name


class StopRequest:
    """Whether a signal has come that stops a run.

    If ``waits``, the run stops by itself, else :meth:`error` is raised at once. A second Ctrl-C is
    never left to wait.
    """

    def __init__(self) -> None:
        self.received = self.waits = False
        self.number: int = signal.SIGTERM
        self.pressed: float | None = None  # when the first Ctrl-C came

    def __call__(self, number: int, _) -> None:
        """Handle a signal."""
        now = time.monotonic()
        is_first_press = number == signal.SIGINT and self.pressed is None
        is_second_press = False
        if is_first_press:
            self.pressed = now
        elif number == signal.SIGINT:
            is_second_press = now - self.pressed > ECHO
        if not self.received:
            self.received, self.number = True, number
            for child in multiprocessing.active_children():  # a stopped one would keep the step, or the end, waiting
                os.kill(child.pid, signal.SIGCONT)
        if is_second_press or not self.waits:
            ignore_stop_signals()
            raise self.error()
        if is_first_press and get_rank() == 0:  # not by print, which this may have interrupted
            os.write(2, b'mmlape: saving after this step, then stopping; Ctrl-C again stops at once\n')

    def error(self) -> BaseException:
        """Return what ends the run: KeyboardInterrupt after Ctrl-C, else Interrupted."""
        return KeyboardInterrupt() if self.number == signal.SIGINT else Interrupted(self.number)


def ignore_stop_signals() -> None:
    """Let nothing stop what still has to be written."""
    if threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[StopRequest]:
    """Handle `STOP_SIGNALS` in this process, but SIGHUP where nohup has it ignored.

    Processes that it forks keep their usual effect.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    owner = os.getpid()

    def stop(number: int, frame) -> None:
        if os.getpid() == owner:
            request(number, frame)
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    kept = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS if number not in kept}
    try:
        yield request
    finally:
        for number, handler in before.items():
            if not (is_distributed() and signal.getsignal(number) is signal.SIG_IGN):
                signal.signal(number, handler)
