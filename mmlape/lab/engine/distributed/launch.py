"""Start the processes of a run on this machine by torchrun, and print errors as one line, not as a traceback.

Run by ``tools/processes.sh`` as ``python -m mmlape.lab.engine.distributed.launch`` with torchrun's
arguments.
"""

import contextlib
import errno
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Iterable, Sequence

from torch.distributed.elastic.multiprocessing.api import PContext, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousError, dynamic_rendezvous
from torch.distributed.run import main as torchrun

from mmlape.quiet import LAUNCHER, debugging

PATIENCE = 60
"""Seconds that processes have to save and to end after SIGTERM, before they are killed."""
UNFLUSHED = 120
"""Python's status where it could not write the rest of its output at the end, which hides that of an error."""
SLACK = 5
"""Seconds after which the end of a killed process has surely been seen."""

_close = PContext.close


def main(argv: Sequence[str]) -> int:
    """Run torchrun.

    Returns:
        The exit status: 0; that of the process which failed first; 1 if PORT cannot be used, or the
        other machines did not join; the shell's status for a signal that stopped the launcher.
    """
    env = os.environ
    if '--standalone' not in argv and env.get('NODE_RANK', '0') == '0':
        problem = _port_problem(env.get('PORT') or '0')
        if problem:
            several = int(env.get('NNODES', '1')) > 1
            fix = 'or leave it out, so that a free one is chosen'
            if several:
                fix = 'the same on every machine'
            print(f'mmlape: error: {problem}: set PORT to a free one, {fix}', file=sys.stderr)
            return 1
    env[LAUNCHER] = str(os.getpid())
    PContext.close = _close_patiently
    dynamic_rendezvous.get_method_name = _method_name
    # it repeats, after a worker's own error, which process failed, and that it stops the others
    if not debugging():
        for name in ('api', 'errors.error_handler'):
            module = f'torch.distributed.elastic.multiprocessing.{name}'
            logging.getLogger(module).setLevel(logging.CRITICAL)
    try:
        torchrun(list(argv))
    except RendezvousError as error:
        nodes, place = env.get('NNODES', '1'), f'{env.get("MASTER_ADDR")}:{env.get("PORT")}'
        print(
            f'mmlape: error: not all {nodes} machines of this run joined at {place} in time '
            f'({type(error).__name__}). Start the same command on each, with NODE_RANK 0 on the '
            'one that MASTER_ADDR names and the same NNODES, MASTER_ADDR and PORT; '
            'RDZV_TIMEOUT=SECONDS waits longer',
            file=sys.stderr,
        )
        return 1
    except ChildFailedError as error:
        rank, failure = _first_failure(error.failures)
        reason = _first_reason(error.failures.values())
        if reason is None or failure.exitcode < 0:
            print(f'mmlape: process {rank} failed first, with exit status {failure.exitcode}', file=sys.stderr)
        if reason is not None:
            print(reason, file=sys.stderr)
        if reason is not None and failure.exitcode == UNFLUSHED:
            return 1
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


def _close_patiently(context: PContext, death_sig: signal.Signals | None = None, timeout: int = 0) -> None:
    """End the processes; torchrun gives them 30 seconds, by itself or, from torch 2.12 on, by its argument.

    One that is stopped continues, else none of the others reaches the end of its step.
    """
    for pid in context.pids().values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    _close(context, death_sig, max(timeout, PATIENCE))


def _first_failure(failures: dict[int, ProcessFailure]) -> tuple[int, ProcessFailure]:
    """Return the first failure; one by a signal other than SIGTERM, torchrun's own, goes before errors at its time.

    The others lose their connection to a killed process at once. torchrun's times are whole
    seconds, and it sees an end a little later.
    """

    def place(failure: ProcessFailure) -> tuple[float, float]:
        by_signal = failure.exitcode not in (*range(1, 256), -signal.SIGTERM)
        exact = failure.error_file_data.get('time', math.inf)
        return failure.timestamp - SLACK * by_signal, exact

    return min(failures.items(), key=lambda item: place(item[1]))


def _first_reason(failures: Iterable[ProcessFailure]) -> str | None:
    """Return the first of the texts that processes handed over by :func:`mmlape.quiet.say_error`.

    None if there are none.
    """
    timed = [failure.error_file_data for failure in failures]
    timed = [content for content in timed if 'time' in content]
    return min(timed, key=lambda content: content['time'])['message'] if timed else None


def _method_name(depth: int = 2) -> str:
    """Return the name of a calling function.

    Torch's own reads the files of all callers, which takes a second.
    """
    return sys._getframe(depth).f_code.co_name


def _port_problem(port: str) -> str | None:
    """Return why no process can listen on a port of this machine; None if one can."""
    if not port.isdecimal() or int(port) > 65535:
        return f'PORT={port} is no number up to 65535'
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(('', int(port)))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return f'port {port} of this machine cannot be used ({error.strerror})'
            return f'port {port} of this machine is taken, perhaps by another run'
    return None


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
