"""SIGTERM, with which Slurm and others announce that a process will be killed: the run stops where nothing is lost.

Between two iterations whose weights are not saved, a signal only leaves a request; the run is saved after the next
step (:class:`mmlape.engine.hooks.StopHook`). At any other time it ends the process at once.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

from mmengine.dist import is_distributed


class Interrupted(SystemExit):
    """SIGTERM stopped the process; it exits with the shell's status for that."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)

    def __str__(self) -> str:
        return 'SIGTERM'


class StopRequest:
    """Whether SIGTERM has come; if ``waits``, it is left to the run to stop, else Interrupted is raised."""

    def __init__(self) -> None:
        self.received = self.waits = False

    def __call__(self, number: int, _) -> None:
        """Handle the signal."""
        self.received = True
        if not self.waits:
            signal.signal(number, signal.SIG_IGN)
            raise Interrupted


@contextlib.contextmanager
def stopped_by_sigterm() -> Iterator[StopRequest]:
    """Handle SIGTERM in this process; in processes that it forks it keeps its usual effect."""
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

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield request
    finally:
        if not (is_distributed() and signal.getsignal(signal.SIGTERM) is signal.SIG_IGN):
            signal.signal(signal.SIGTERM, before)


def init_worker(inner: Callable[[int], None] | None, number: int) -> None:
    """Start a data loader's worker, which SIGTERM ends only if its parent sends it; ``inner`` is called first.

    Slurm and a launcher send the signal to the workers, too, without which the parent could not reach its next step.
    """
    if inner is not None:
        inner(number)
    if hasattr(signal, 'sigwaitinfo'):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_with_parents_signal, args=(os.getppid(),), daemon=True).start()


def _end_with_parents_signal(parent: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)
