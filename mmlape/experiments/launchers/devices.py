"""The GPUs of this machine, reserved so that no two runs share one, whichever process starts them.

A GPU is reserved by locking a file that is named after it, in a folder of this user on this machine. The training
process inherits the lock, so a GPU stays reserved while its training lives, even if the process that started it is
gone.
"""

import fcntl
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mmlape.errors import TrainingError
from mmlape.runs.locks import lock_holder, take_lock

_LIST_DEVICES = """
import torch
for index in range(torch.cuda.device_count()):
    print('device', index, torch.cuda.get_device_properties(index).uuid)
"""


@dataclass(frozen=True)
class Device:
    """A GPU.

    Args:
        name: Its name in CUDA_VISIBLE_DEVICES.
        key: Its UUID: the same for every process, whatever is visible to it.
    """

    name: str
    key: str


@dataclass(frozen=True)
class Slot:
    """A place for one run: the GPUs reserved for it, none on the CPU.

    The locks are held until `release`, or until the last process that inherited them ends.
    """

    devices: tuple[Device, ...] = ()
    locks: tuple[int, ...] = ()

    @property
    def visible(self) -> str:
        """The value of CUDA_VISIBLE_DEVICES."""
        return ','.join(device.name for device in self.devices)

    def release(self) -> None:
        """Close the locks."""
        for lock in self.locks:
            os.close(lock)


def visible_devices() -> list[Device]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves to this process.

    Another process asks for them: CUDA is not initialised here, and CUDA itself decides which GPU a number means.

    Raises:
        TrainingError: Torch cannot list them.
    """
    result = subprocess.run([sys.executable, '-c', _LIST_DEVICES], capture_output=True, text=True, check=False)
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ['no message'])[-1]
        raise TrainingError(f'torch cannot list the GPUs ({last}): check with `mmlape doctor`')
    uuids = re.findall(r'^device \d+ (\S+)$', result.stdout, re.MULTILINE)
    names = [name.strip() for name in os.environ.get('CUDA_VISIBLE_DEVICES', '').split(',') if name.strip()]
    return [Device(names[index] if names else str(index), uuid) for index, uuid in enumerate(uuids)]


class DevicePool:
    """Reserves GPUs.

    Args:
        devices: All GPUs.
        folder: Holds the locks; default: a folder of this user in the machine's temporary folder.
    """

    def __init__(self, devices: Sequence[Device], folder: str | Path | None = None) -> None:
        self.devices = tuple(devices)
        self.folder = Path(folder or Path(tempfile.gettempdir()) / f'mmlape-{os.getuid()}' / 'devices')

    def acquire(self, count: int) -> Slot | None:
        """Reserve ``count`` GPUs; return None, and reserve none, if fewer are free.

        Raises:
            TrainingError: The folder of the locks cannot be used.
        """
        try:
            with self._exclusive():
                locked = [(device, take_lock(self._file(device))) for device in self.free()[:count]]
        except OSError as error:
            raise TrainingError(f'{self.folder}, which holds the locks of GPUs: {error.strerror}') from error
        held = [(device, lock) for device, lock in locked if lock is not None]
        slot = Slot(tuple(device for device, _ in held), tuple(lock for _, lock in held))
        if len(held) < count:
            slot.release()
            return None
        return slot

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Let one process choose at a time: of two that each lock a half, neither would have enough."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.folder / '.choosing', 'w') as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def free(self) -> list[Device]:
        """Return the GPUs that nobody holds now."""
        return [device for device in self.devices if lock_holder(self._file(device)) is None]

    def _file(self, device: Device) -> Path:
        return self.folder / f'{re.sub(r"[^A-Za-z0-9.-]", "_", device.key)}.lock'
