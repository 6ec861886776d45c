"""What MMEngine and torch raise while they build a part of a configuration, as one line that names its key."""

import contextlib
import traceback
from collections.abc import Iterator

from mmengine.config import Config

from mmlape.errors import ConfigError, MMLaPEError, failed_import, shown
from mmlape.lab.runs.failure_types import UNKNOWN, failure_type_of


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
        if failed_import(error) or failure_type_of(error) is not UNKNOWN:
            raise
        raise ConfigError(f'{cfg.filename}: {key}{_innermost(error)} cannot be built: {shown(error)}') from error


def _innermost(error: Exception) -> str:
    """Return ' (TYPE)' of the innermost part whose class a registry was building.

    '' if there was none.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == 'build_from_cfg']
    types = [(frame.f_locals.get('cfg') or {}).get('type') for frame in frames]
    return f' ({getattr(types[-1], "__name__", types[-1])})' if types else ''


def positive_number(cfg: Config, key: str, default: int | None = None) -> int:
    """Return a whole number of at least 1 of a configuration by its dotted key.

    ConfigError for anything else.
    """
    *parts, last = key.split('.')
    node = cfg
    for part in parts:
        node = node[part]
    value = node.get(last, default)
    if type(value) is not int or value < 1:
        raise ConfigError(f'{cfg.filename}: {key}={value!r} is no whole number of at least 1')
    return value
