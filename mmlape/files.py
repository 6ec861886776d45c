"""Files written atomically, so that neither a reader nor a kill ever meets half of one."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmlape.errors import DataError

FIX = 'restore the file, or move its folder away'
_KINDS: dict[type, str] = {dict: 'object', list: 'list'}


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` when the block ends without an error.

    Args:
        path: The final path; its folder is made. The temporary one is hidden beside it and keeps
            its suffix. A device or a pipe is written to as it is.

    Raises:
        OSError: The folder cannot be made, or the file cannot be written; it names ``path``, also
            where the block raises another error because of that, as torch does.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    # a long name has room for what is added to it
    partial = path.with_name(f'.{path.stem[:50]}.{os.getpid()}{path.suffix[-50:]}')
    try:
        yield partial
        os.replace(partial, path)
    except BaseException as error:
        problem = _write_problem(error, partial)
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        if problem is not None:
            raise OSError(problem.errno, problem.strerror, str(path)) from error
        raise


def _write_problem(error: BaseException, partial: Path) -> OSError | None:
    """Return why a file could not be written; None if an error has another cause.

    Libraries for tensors and images raise errors of their own. Those in Rust say it; for others the file is written
    to again.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error if error.filename in (None, str(partial), partial) else None
    if not isinstance(error, Exception):
        return None
    if number := re.search(r'\(os error (\d+)\)', str(error)):
        return OSError(int(number[1]), os.strerror(int(number[1])))
    try:
        with open(partial, 'ab') as file:
            file.write(bytes(1 << 16))
    except OSError as found:
        return found if found.errno is not None else None
    return None


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write bytes, atomically.

    Images are encoded in memory and written so: Pillow takes a part that a full disk has taken for
    the complete file.
    """
    with atomic_path(path) as partial:
        partial.write_bytes(data)


def write_text(path: str | Path, text: str) -> Path:
    r"""Write a text, atomically; return the path.

    What is not UTF-8 in the name of a file is written as an escape, ``\udcff``, which JSON reads back.
    """
    with atomic_path(path) as partial:
        partial.write_text(text, encoding='utf-8', errors='backslashreplace')
    return Path(path)


@contextlib.contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Have errors of the file system that name no file, as those of writing, name this file or folder."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def read_json(path: str | Path, expected: type = dict, fix: str = FIX) -> Any:
    """Return what a JSON file holds; None if there is no such file.

    Args:
        path: The file.
        expected: The kind of value.
        fix: What to do about a file that cannot be read.

    Raises:
        DataError: It cannot be read, or holds another kind of value.
    """
    try:
        content = json.loads(Path(path).read_text(encoding='utf-8'))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DataError(f'{path} cannot be read ({error.strerror}): {fix}') from error
    except (ValueError, RecursionError) as error:
        raise DataError(f'{path} is damaged, its JSON ends or breaks off: {fix}') from error
    if not isinstance(content, expected):
        raise DataError(f'{path} is damaged, it holds no {_KINDS[expected]}: {fix}')
    return content


def read_json_lines(path: str | Path, fix: str = FIX) -> Iterator[Any]:
    """Yield what the lines of a file hold; what a kill has left of the last one is not there.

    Raises:
        DataError: It cannot be read, or a line of it.
    """
    try:
        lines = Path(path).read_text(encoding='utf-8').splitlines(keepends=True)
    except (OSError, ValueError) as error:
        raise DataError(f'{path} cannot be read ({getattr(error, "strerror", "no text in UTF-8")}): {fix}') from error
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except (ValueError, RecursionError) as error:
            if number < len(lines) or line.endswith('\n'):
                raise DataError(f'{path} is damaged in line {number}: {fix}') from error


def write_json(path: str | Path, content: dict | list) -> None:
    """Write a dict or a list as indented JSON."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + '\n')


def file_version(path: str | Path) -> tuple[int, int]:
    """Return size and time of a file, which tell whether what is kept of it still holds.

    Raises:
        OSError: There is no such file.
    """
    known = os.stat(path)
    return known.st_size, known.st_mtime_ns


def sha256(path: str | Path) -> str:
    """Compute the hex digest of a file."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
