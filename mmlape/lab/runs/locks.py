"""Lock files: held until their descriptor is closed, or the last process that inherited it ends.

No kill leaves one behind. A child that is passed the descriptor keeps the lock after its parent's
death; a child that was only forked (a data loader's worker) does not.
"""

import contextlib
import json
import os
import socket
import time
from pathlib import Path

import portalocker
from portalocker import LockFlags

from mmlape.errors import DataError
from mmlape.files import read_json

ATTEMPTS = 4  # lock_holder takes the lock for an instant
# descriptor -> device and inode of the file that it was opened for
_acquired: dict[int, tuple[int, int]] = {}


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _drop_inherited() -> None:
    for descriptor, file in _acquired.items():
        with contextlib.suppress(OSError):  # closed since then
            if _identity(descriptor) == file:
                os.close(descriptor)
    _acquired.clear()


os.register_at_fork(after_in_child=_drop_inherited)


def take_lock(path: str | Path) -> int | None:
    """Lock a file and write the holder into it.

    Returns:
        The descriptor, which children inherit only if it is passed to them; None if another process
        holds the lock.

    Raises:
        OSError: The file cannot be made, or its file system has no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    for attempt in range(ATTEMPTS):
        try:
            portalocker.lock(descriptor, LockFlags.EXCLUSIVE | LockFlags.NON_BLOCKING)
            break
        except portalocker.AlreadyLocked:
            if attempt == ATTEMPTS - 1:
                os.close(descriptor)
                return None
            time.sleep(0.02)
        except portalocker.LockException as error:
            os.close(descriptor)
            raise OSError(*error.args[0].args) from error
    holder = dict(
        host=socket.gethostname(),
        pid=os.getpid(),
        slurm_job=os.environ.get('SLURM_JOB_ID'),
        since=time.strftime('%Y-%m-%dT%H:%M:%S'),
    )
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, json.dumps(holder).encode())
    _acquired[descriptor] = _identity(descriptor)
    return descriptor


def lock_holder(path: str | Path) -> dict | None:
    """Return the holder of a lock, or None.

    It has ``host``, ``pid``, ``slurm_job`` (or None) and ``since``.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)  # another user's, too
    except OSError:
        return None
    try:
        portalocker.lock(descriptor, LockFlags.SHARED | LockFlags.NON_BLOCKING)
    except portalocker.AlreadyLocked:
        unknown = dict(host='unknown', pid=None, slurm_job=None, since=None)
        with contextlib.suppress(DataError):  # it is about to be written
            return read_json(path) or unknown
        return unknown
    except portalocker.LockException:  # a file system without locks: nobody could take it
        return None
    finally:
        os.close(descriptor)
    return None
