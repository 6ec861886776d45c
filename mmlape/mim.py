"""Where the package keeps its configs and tools (`.mim`, OpenMMLab's convention), and their prefix `mmlape::`."""

import difflib
import functools
from pathlib import Path

from mmlape.errors import ConfigError

PREFIX = 'mmlape::'
_PACKAGE = Path(__file__).resolve().parent


def mim_root() -> Path:
    """Return the folder that holds `configs`, `tools` and `model-index.yml`: `.mim`, or the repository's root."""
    mim = _PACKAGE / '.mim'
    return mim if (mim / 'configs').is_dir() else _PACKAGE.parent


def config_path(name: str) -> str:
    """Turn `mmlape::segmenter/NAME.py` into the path of that config.

    Args:
        name: A path below `configs`, with or without the prefix and the suffix `.py`.

    Raises:
        ConfigError: There is no such config.
    """
    configs = mim_root() / 'configs'
    relative = name.removeprefix(PREFIX)
    relative = relative if relative.endswith('.py') else f'{relative}.py'
    path = configs / relative
    if path.is_file():
        return str(path)
    known = sorted(str(p.relative_to(configs)) for p in configs.rglob('*.py'))
    close = difflib.get_close_matches(relative, known, n=3, cutoff=0.5)
    hint = f'; close to it: {", ".join(PREFIX + c for c in close)}' if close else ''
    raise ConfigError(f'no config {PREFIX}{relative} below {configs}{hint}')


def teach_mmengine(config_class: type) -> None:
    """Let mmengine's `Config` read `mmlape::` names, in `Config.fromfile` and in `_base_`.

    mmengine itself knows such prefixes for a fixed list of packages, in `_base_` only, and looks the type names of
    what it loads up in that package's registry first. Our configs name their scope themselves, so here a prefixed name
    stands for a path and nothing else.

    Args:
        config_class: `mmengine.config.Config`.
    """
    if getattr(config_class.fromfile, 'reads_mmlape', False):
        return
    from_file, base_path = config_class.fromfile, config_class._get_cfg_path

    @functools.wraps(from_file)
    def fromfile(filename, *args, **kwargs):
        name = str(filename)
        return from_file(config_path(name) if name.startswith(PREFIX) else filename, *args, **kwargs)

    @functools.wraps(base_path)
    def get_cfg_path(cfg_path, filename):
        return (config_path(cfg_path), None) if cfg_path.startswith(PREFIX) else base_path(cfg_path, filename)

    fromfile.reads_mmlape = True
    config_class.fromfile = staticmethod(fromfile)
    config_class._get_cfg_path = staticmethod(get_cfg_path)
