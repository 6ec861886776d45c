"""What MMEngine and torch raise while they build a part of a configuration, as one line that names its key."""

import contextlib
import difflib
import inspect
import re
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

from mmengine.config import Config
from mmengine.registry import Registry

from mmlape.errors import ConfigError, MMLaPEError, failed_import, shown
from mmlape.lab.runs.failures import ADVICE, failure_kind


@contextlib.contextmanager
def building(cfg: Config, key: str) -> Iterator[None]:
    """Raise ConfigError with a key of ``cfg`` for whatever its value makes the block raise.

    What has a cause outside of the value passes: memory, a full disk, a lost process, a package
    that does not import.
    """
    try:
        yield
    except MMLaPEError:
        raise
    except Exception as error:
        if failed_import(error) or failure_kind(error) in ADVICE:
            raise
        raise ConfigError(
            f'{cfg.filename}: {key}{_innermost(error)} cannot be built: {shown(error)}{_meant(error)}'
        ) from error


def _innermost(error: Exception) -> str:
    """Return ' (TYPE)' of the innermost part whose class a registry was building.

    '' if there was none.
    """
    frames = _building_frames(error)
    types = [(frame.f_locals.get('cfg') or {}).get('type') for frame in frames]
    return f' ({getattr(types[-1], "__name__", types[-1])})' if types else ''


def _building_frames(error: Exception) -> list[FrameType]:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [frame for frame in frames if frame.f_code.co_name == 'build_from_cfg']


def _meant(error: Exception) -> str:
    """Return which argument or registered name a misspelt one resembles, as '; did you mean NAME?'."""
    frames = _building_frames(error)
    if not frames:
        return ''
    values = frames[-1].f_locals
    if match := re.search(r"unexpected keyword argument '(\w+)'", str(error)):
        name, names = match[1], _arguments_of(values.get('obj_cls'))
    elif match := re.search(r'([\w.]+) is not in the \S+ registry', str(error)):
        name, names = match[1], _registered_names(values['registry'], match[1].rpartition('.')[0])
    else:
        return ''
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f'; did you mean {" or ".join(close)}?' if close else ''


def _registered_names(registry: Registry, scope: str) -> set[str]:
    """Return the names in a registry and its parent, or in the one of a scope, with that before them."""
    root = registry._get_root_registry()
    chosen = [root.children[scope]] if scope in root.children else [registry, root]
    for one in chosen:
        getattr(one, 'import_all', one.import_from_location)()
    return {f'{scope}.{name}' if scope else name for one in chosen for name in one.module_dict}


def _arguments_of(built: Any) -> set[str]:
    """Return the arguments of a function, or of a class and its bases, to which it may pass others on."""
    parts = [part.__init__ for part in inspect.getmro(built)] if inspect.isclass(built) else [built]  # type: ignore[misc]
    return {name for part in parts for name in inspect.signature(part).parameters} - {'self', 'args', 'kwargs'}
