"""Files written atomically, so that neither a reader nor a kill ever meets half of one; JSON that may be missing."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` when the block ends without an error.

    Args:
        path: The final path; its folder is made. The temporary one is hidden beside it and keeps its suffix.

    Raises:
        OSError: The folder cannot be made, or the file cannot be moved.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f'.{path.stem}.{os.getpid()}{path.suffix}')
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def read_json(path: str | Path, kind: type = dict) -> Any:
    """Return what a JSON file holds; None if it cannot be read, or holds another kind of value."""
    try:
        content = json.loads(Path(path).read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, kind) else None


def write_json(path: str | Path, content: dict | list) -> None:
    """Write a dict or a list as indented JSON."""
    with atomic_path(path) as partial:
        partial.write_text(json.dumps(content, indent=2, ensure_ascii=False) + '\n', encoding='utf-8')
