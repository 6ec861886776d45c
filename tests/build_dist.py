"""Build both archives into a folder, for `make dist`: the same bytes from the same commit and the same lock.

The time in the archives is that of the commit. setuptools writes the time of the build, and the user, into the source
archive, so that one is packed again.
"""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build(root: Path, out: Path) -> dict[str, str]:
    """Build the archives of a checkout; return their SHA-256 by name."""
    show = subprocess.run(['git', 'log', '-1', '--format=%ct'], cwd=root, capture_output=True, text=True, check=True)
    time = int(show.stdout)
    command = [sys.executable, '-m', 'build', '-q', '--no-isolation', '-o', str(out), str(root)]
    subprocess.run(command, env={**os.environ, 'SOURCE_DATE_EPOCH': str(time)}, umask=0o022, check=True)
    (source,) = out.glob('*.tar.gz')
    source.write_bytes(repacked(source.read_bytes(), time))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}


def repacked(archive: bytes, time: int) -> bytes:
    """Return a .tar.gz with its members in the order of their names, of one time and of no user."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as old,
        gzip.GzipFile('', 'wb', fileobj=packed, mtime=time) as stream,
        tarfile.open(fileobj=stream, mode='w', format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = time, 0, 0, '', ''
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


if __name__ == '__main__':
    for name, digest in build(ROOT, Path(sys.argv[1])).items():
        print(f'{digest}  {name}')
