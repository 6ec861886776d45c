"""This machine's GPUs, handed out so that no two runs share one, whichever process hands them out.

A GPU is taken by locking a file that is named after it, below a folder of this user's on this machine. The training
inherits the lock, so a GPU stays taken as long as its training lives, also when the process that started it is gone.
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

_ASK = """
import torch
for index in range(torch.cuda.device_count()):
    print('device', index, torch.cuda.get_device_properties(index).uuid)
"""


@dataclass(frozen=True)
class Device:
    """A GPU.

    Args:
        name: What CUDA_VISIBLE_DEVICES calls it.
        key: Its UUID: the same for every process, whatever is visible to it.
    """

    name: str
    key: str


@dataclass(frozen=True)
class Group:
    """GPUs that were handed out together; their locks are held until `release`, or the end of who inherited them."""

    devices: tuple[Device, ...]
    locks: tuple[int, ...]

    @property
    def visible(self) -> str:
        """For CUDA_VISIBLE_DEVICES."""
        return ','.join(device.name for device in self.devices)

    def release(self) -> None:
        for lock in self.locks:
            os.close(lock)


def visible_devices() -> list[Device]:
    """The GPUs that this process may use, by CUDA_VISIBLE_DEVICES; asked for in another process.

    CUDA is not initialised here, and CUDA itself decides which GPU a number means.

    Raises:
        TrainingError: Torch cannot say.
    """
    asked = subprocess.run([sys.executable, '-c', _ASK], capture_output=True, text=True, check=False)
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ['no message'])[-1]
        raise TrainingError(f'torch cannot say which GPUs there are ({last}): look with `mmlape doctor`')
    uuids = re.findall(r'^device \d+ (\S+)$', asked.stdout, re.MULTILINE)
    names = [name.strip() for name in os.environ.get('CUDA_VISIBLE_DEVICES', '').split(',') if name.strip()]
    return [Device(names[index] if names else str(index), uuid) for index, uuid in enumerate(uuids)]


class DevicePool:
    """Hands GPUs out.

    Args:
        devices: All that there are.
        folder: Of the locks; by default one of this user's below the machine's temporary folder.
    """

    def __init__(self, devices: Sequence[Device], folder: str | Path | None = None) -> None:
        self.devices = tuple(devices)
        self.folder = Path(folder or Path(tempfile.gettempdir()) / f'mmlape-{os.getuid()}' / 'devices')

    def take(self, count: int) -> Group | None:
        """Takes so many GPUs, or none.

        Returns:
            The GPUs; None if there are not so many free ones now.

        Raises:
            TrainingError: The folder of the locks cannot be used.
        """
        try:
            with self._alone():
                locked = [(device, take_lock(self._file(device))) for device in self.free()[:count]]
        except OSError as error:
            raise TrainingError(f'{self.folder}, where locks of GPUs are kept: {error.strerror}') from error
        held = [(device, lock) for device, lock in locked if lock is not None]
        group = Group(tuple(device for device, _ in held), tuple(lock for _, lock in held))
        if len(held) < count:
            group.release()
            return None
        return group

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lets one process at a time choose: of two that each take a half, neither would have enough."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.folder / '.choosing', 'w') as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def free(self) -> list[Device]:
        """Those that nobody holds now."""
        return [device for device in self.devices if lock_holder(self._file(device)) is None]

    def _file(self, device: Device) -> Path:
        return self.folder / f'{re.sub(r"[^A-Za-z0-9.-]", "_", device.key)}.lock'
