"""Start the processes of a run on this machine by torchrun, and print errors as one line, not as a traceback.

Run by ``tools/processes.sh`` as ``python -m mmlape.lab.engine.distributed.launch`` with torchrun's
arguments.
"""

import logging
import math
import os
import signal
import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.run import get_args_parser
from torch.distributed.run import main as torchrun

from mmlape.quiet import LAUNCHER, debugging

PATIENCE = ['--shutdown-timeout', '60']
"""Seconds that processes have to save and to end after SIGTERM, before they are killed; 30 before torch 2.12."""


def main(argv: Sequence[str]) -> int:
    """Run torchrun.

    Returns:
        The exit status: 0; that of the process which failed first; 1 if the machines did not meet; the
        shell's status for a signal that stopped the launcher.
    """
    env = os.environ
    env[LAUNCHER] = str(os.getpid())
    # it repeats, after a worker's own error, which process failed, and that it stops the others
    if not debugging():
        for name in ('api', 'errors.error_handler'):
            module = f'torch.distributed.elastic.multiprocessing.{name}'
            logging.getLogger(module).setLevel(logging.CRITICAL)
    patience = PATIENCE if PATIENCE[0] in get_args_parser().format_help() else []
    try:
        torchrun([*patience, *argv])
    except RendezvousError as error:
        nodes, place = env.get('NNODES', '1'), f'{env.get("MASTER_ADDR")}:{env.get("PORT")}'
        print(
            f'mmlape: error: the {nodes} machines of this run did not meet at {place} ({type(error).__name__}). Start '
            'the same command on each, with the same NNODES, MASTER_ADDR and PORT, which must be free, and NODE_RANK '
            '0 on the one that MASTER_ADDR names; RDZV_TIMEOUT=SECONDS waits longer',
            file=sys.stderr,
        )
        return 1
    except ChildFailedError as error:
        rank, first = min(error.failures.items(), key=lambda item: _place(item[1]))
        handed = [failure.error_file_data for failure in error.failures.values()]
        reasons = sorted((one for one in handed if 'time' in one), key=lambda one: one['time'])
        if first.exitcode < 0 or not reasons:
            print(f'mmlape: process {rank} failed first, with exit status {first.exitcode}', file=sys.stderr)
        if reasons:
            print(reasons[0]['message'], file=sys.stderr)
        return first.exitcode if first.exitcode > 0 else 128 - first.exitcode
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


def _place(failure: ProcessFailure) -> tuple[bool, float]:
    """Return what failures are sorted by: those by a signal other than torchrun's first, the others by their time.

    The others lose their connection to a killed process at once. `mmlape.quiet.say_error` hands over the time.
    """
    is_killed = failure.exitcode < 0 and failure.exitcode != -signal.SIGTERM
    return not is_killed, failure.error_file_data.get('time', math.inf)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
