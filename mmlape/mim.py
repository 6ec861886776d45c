"""Where configs, studies and tools are (`.mim`, OpenMMLab's convention), and their prefix `mmlape::`."""

import difflib
from pathlib import Path

from mmlape.errors import ConfigError

PREFIX = 'mmlape::'
_PACKAGE = Path(__file__).resolve().parent


def mim_root() -> Path:
    """Return the folder that holds `configs`, `studies`, `tools` and `model-index.yml`: `.mim`, or the root."""
    mim = _PACKAGE / '.mim'
    return mim if (mim / 'configs').is_dir() else _PACKAGE.parent


def config_path(name: str) -> str:
    """Return the path of a config of this package, for `Config.fromfile` and whatever else takes a file.

    Args:
        name: A path below `configs`, with or without the prefix `mmlape::` and the suffix `.py`.

    Raises:
        ConfigError: There is no such config; the message lists similar names.
    """
    configs = mim_root() / 'configs'
    relative = name.removeprefix(PREFIX)
    relative = relative if relative.endswith('.py') else f'{relative}.py'
    path = configs / relative
    if path.is_file():
        return str(path)
    known = sorted(str(p.relative_to(configs)) for p in configs.rglob('*.py'))
    close = difflib.get_close_matches(relative, known, n=3, cutoff=0.5)
    hint = f'; did you mean {", ".join(PREFIX + c for c in close)}' if close else ''
    raise ConfigError(f'no config {PREFIX}{relative} below {configs}{hint}')


def register_prefix() -> None:
    """Add `mmlape::` to the packages whose configs MMEngine finds by prefix, in `_base_` and in `mmengine.hub`."""
    try:
        from mmengine.config.utils import MODULE2PACKAGE
    except Exception:  # missing or broken: `mmlape doctor` and the set-up import this package too
        return
    MODULE2PACKAGE['mmlape'] = 'mmlape'


def load_yaml_safely() -> None:
    """Make MMEngine build plain values only from YAML, wherever it reads a config, annotations or a metafile."""
    try:
        import yaml
        from mmengine.fileio.handlers import yaml_handler
    except Exception:  # as above
        return

    class PlainLoader(getattr(yaml, 'CSafeLoader', yaml.SafeLoader)):  # type: ignore[misc]
        """Also reads the tuples that MMEngine writes."""

    PlainLoader.add_constructor(
        'tag:yaml.org,2002:python/tuple', lambda loader, node: tuple(loader.construct_sequence(node, deep=True))
    )
    yaml_handler.Loader = PlainLoader
