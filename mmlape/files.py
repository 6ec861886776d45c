"""Files written atomically, so that neither a reader nor a kill ever meets half of one.

JSON and YAML read safely. Nothing that a JSON or YAML file holds makes its reader fail later: its
depth, its integers and what aliases of YAML multiply are limited.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_DEPTH = 100
"""Of lists and mappings in each other."""
MAX_DIGITS = 300
"""Of an integer; from 309 on it is larger than a float can be."""
LIMIT = 10**MAX_DIGITS


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
        return found
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


def parse_json(text: str | bytes, unique_keys: bool = False) -> Any:
    """Parse JSON.

    Args:
        text: The JSON.
        unique_keys: Whether an object may have a key once only; otherwise its last value counts.

    Raises:
        ValueError: It is none, nested too deeply, or has an integer too large to compute with.
    """
    try:
        content = json.loads(text, parse_int=_integer, object_pairs_hook=_unique if unique_keys else None)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if _open_brackets(text) > MAX_DEPTH:  # those in strings, too
        require_limits(content, len(text))
    return content


def parse_yaml(text: str, loader: type | None = None) -> Any:
    """Parse YAML by ``yaml.SafeLoader`` or one of its kind.

    Raises:
        yaml.YAMLError: It is no YAML; where `parse_json` raises ValueError; or aliases multiply
            what it holds.
    """
    import yaml  # here, as the core of the package does without

    loader = loader or yaml.SafeLoader
    try:
        try:
            content = yaml.load(text, _by_libyaml(loader))
        except yaml.YAMLError:
            content = yaml.load(text, loader)  # whose errors show the line
        require_limits(content, len(text))
    except RecursionError:
        raise yaml.YAMLError(_TOO_DEEP) from None
    except ValueError as error:  # a date that does not exist, an integer of thousands of digits
        raise yaml.YAMLError(str(error)) from error
    return content


@functools.cache
def _by_libyaml(loader: type) -> type:
    """Return a loader whose text libyaml parses, five times as fast; the values are made by the loader's own rules."""
    import yaml

    if not yaml.__with_libyaml__:
        return loader
    parser, *rules = (yaml.cyaml.CParser, yaml.constructor.BaseConstructor, yaml.resolver.BaseResolver)

    def start(self: Any, stream: str) -> None:
        parser.__init__(self, stream)
        for part in rules:
            part.__init__(self)

    return type(loader.__name__, (parser, loader), {'__init__': start})


_TOO_DEEP = f'lists and mappings are nested more than {MAX_DEPTH} times'


def _integer(digits: str) -> int:
    if len(digits.lstrip('-')) > MAX_DIGITS:
        raise ValueError(f'an integer of more than {MAX_DIGITS} digits')
    return int(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs."""
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in content if keys.count(key) > 1)
        raise ValueError(f'the key "{twice}" twice in one object')
    return content


_STEPS = {**dict.fromkeys(b'[{', 1), **dict.fromkeys(b']}', -1)}
_OTHERS = bytes({*range(256)} - {*_STEPS})


def _open_brackets(text: str | bytes) -> int:
    """Return how many brackets are open at most.

    A bound of the depth that is fast for COCO's files, too.
    """
    data = text.encode('utf-8', 'surrogatepass') if isinstance(text, str) else text
    steps = map(_STEPS.__getitem__, data.translate(None, _OTHERS))
    return max(itertools.accumulate(steps), default=0)


def require_limits(content: Any, length: int = 0) -> None:
    """Raise ValueError if plain values are too deep or too many to copy or to print, or hold too large an integer.

    Args:
        content: Lists, tuples and dicts, and what they hold.
        length: Of the text that they were read from, which has fewer values than characters.
            Aliases of YAML may repeat a list that repeats another one, which makes exponentially
            more of them.
    """
    most = max(length, 10_000)
    level: list[Any] = [[content]]
    count = 0
    for _ in range(MAX_DEPTH + 2):
        level = [one for one in level if isinstance(one, list | tuple | dict)]
        if not level:
            return
        inside = itertools.chain.from_iterable(one.values() if isinstance(one, dict) else one for one in level)
        level = list(itertools.islice(inside, most - count + 1))
        count += len(level)
        if count > most:
            raise ValueError(f'more than {most} values')
        if any(isinstance(one, int) and abs(one) >= LIMIT for one in level):
            raise ValueError(f'an integer of more than {MAX_DIGITS} digits')
    raise ValueError(_TOO_DEEP)


def read_json(path: str | Path, expected: type = dict) -> Any:
    """Return what a JSON file holds; None if it cannot be read, or holds another kind of value."""
    try:
        content = parse_json(Path(path).read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, expected) else None


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
