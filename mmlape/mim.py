"""Where configs, studies and tools are (`.mim`, OpenMMLab's convention), and their prefix `mmlape::`."""

import contextlib
import difflib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import ClassVar

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
    known = [str(p.relative_to(configs)) for p in sorted(configs.rglob('*.py'))]
    same = [one for one in known if Path(one).name == path.name]  # in another folder
    close = same or difflib.get_close_matches(relative, known, n=3, cutoff=0.5)
    hint = f'; did you mean {", ".join(PREFIX + c for c in close)}' if close else ''
    raise ConfigError(f'no config {PREFIX}{relative} below {configs}{hint}')


def resolve_path(path: str | Path) -> Path:
    """Return the file of a config's path or ``mmlape::`` name.

    Raises:
        ConfigError: There is no such file; the message lists similar names.
    """
    text = str(path)
    if text.startswith(PREFIX):
        return Path(config_path(text))
    file = Path(text)
    if file.is_file():
        return file
    what = 'is a directory' if file.is_dir() else 'does not exist'
    raise ConfigError(f'config {path} {what}{did_you_mean(file)}')


def did_you_mean(file: Path) -> str:
    """Return which config is meant by a file that does not exist: ': did you mean ...?', or nothing.

    The one of this name in another folder, or else those of similar names here and beside the file.
    """
    configs = mim_root() / 'configs'
    known = {
        near.stem: PREFIX + str(near.relative_to(configs))
        for near in sorted(configs.glob('[!_]*/*.py'))
    }
    if file.parent.is_dir():
        known |= {near.stem: str(near) for near in file.parent.glob('*.py')}
    exact = [file.stem] if file.stem in known else []
    close = exact or difflib.get_close_matches(file.stem, known, n=3, cutoff=0.5)
    return f': did you mean {" or ".join(known[name] for name in close)}?' if close else ''


def adapt_mmengine() -> None:
    """Let MMEngine find configs by `mmlape::` and `mmseg::`, and build plain values only from YAML.

    And let MMPretrain import beside transformers 5. Neither is imported for it: a module of theirs
    is changed once it is imported.
    """
    for name, adapt in _ADAPTED.items():
        if name in sys.modules:
            adapt(sys.modules[name])
    if _Adapter not in sys.meta_path:
        sys.meta_path.insert(0, _Adapter)


def _add_prefix(module: ModuleType) -> None:
    """Add the prefix to `mmengine.config.utils`, and correct the distribution of `mmseg::` where it is the fork's.

    MMEngine takes mmseg for missing without the distribution that it knows, and `mmengine.hub` then
    installs that one over the fork's files.
    """
    module.MODULE2PACKAGE['mmlape'] = 'mmlape'
    for distribution in (module.MODULE2PACKAGE['mmseg'], 'onedl-mmsegmentation'):
        with contextlib.suppress(PackageNotFoundError):
            version(distribution)
            module.MODULE2PACKAGE['mmseg'] = distribution
            return


def _load_yaml_safely(module: ModuleType) -> None:
    """Make MMEngine build plain values only from YAML, wherever it reads a config, annotations or a metafile."""
    import yaml

    class PlainLoader(getattr(yaml, 'CSafeLoader', yaml.SafeLoader)):  # type: ignore[misc]
        """Also reads the tuples that MMEngine writes."""

    PlainLoader.add_constructor(
        'tag:yaml.org,2002:python/tuple',
        lambda loader, node: tuple(loader.construct_sequence(node, deep=True)),
    )
    module.Loader = PlainLoader  # type: ignore[attr-defined]


def _without_multimodal(module: ModuleType) -> None:
    """Leave out MMPretrain's multimodal models, which do not import, beside transformers 5."""
    with contextlib.suppress(PackageNotFoundError, ValueError):
        if int(version('transformers').partition('.')[0]) >= 5:
            module.WITH_MULTIMODAL = False  # type: ignore[attr-defined]


_ADAPTED = {
    'mmengine.config.utils': _add_prefix,
    'mmengine.fileio.handlers.yaml_handler': _load_yaml_safely,
    'mmpretrain.utils.dependency': _without_multimodal,
}


class _Adapter:
    """Finds modules of the MM packages where Python does, and changes them once they are imported."""

    looking: ClassVar[set[str]] = set()

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        adapt = _ADAPTED.get(name)
        if adapt is None or name in cls.looking:
            return None
        cls.looking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            cls.looking.discard(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_adapt(module: ModuleType) -> None:
                execute(module)
                adapt(module)

            spec.loader.exec_module = execute_and_adapt  # type: ignore[method-assign]
        return spec
