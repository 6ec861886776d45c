"""Where configs, studies and tools are (`.mim`, OpenMMLab's convention), and their prefix `mmlape::`."""

import contextlib
import difflib
import functools
import importlib.util
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mmlape.errors import ConfigError
from mmlape.openmmlab.mmcv_ops import lend_ops

PREFIX = 'mmlape::'
_PACKAGE = Path(__file__).resolve().parents[1]


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
    return str(resolve_path(PREFIX + name.removeprefix(PREFIX)))


def resolve_path(path: str | Path) -> Path:
    """Return the file of a config's path or ``mmlape::`` name.

    Raises:
        ConfigError: There is no such file; the message lists similar names.
    """
    named, file = str(path).removeprefix(PREFIX), Path(path)
    if named != str(path):
        file = mim_root() / 'configs' / f'{named.removesuffix(".py")}.py'
    if file.is_file():
        return file
    what = 'is a directory' if file.is_dir() else 'does not exist'
    raise ConfigError(f'config {path} {what}{did_you_mean(Path(named))}')


def did_you_mean(file: Path) -> str:
    """Return which config is meant by a file that does not exist: ': did you mean ...?', or nothing.

    The one of this name in another folder, or else those of similar names here and beside the file.
    """
    configs = mim_root() / 'configs'
    known = {near.stem: PREFIX + str(near.relative_to(configs)) for near in sorted(configs.glob('[!_]*/*.py'))}
    if file.parent.is_dir():
        known |= {near.stem: str(near) for near in file.parent.glob('*.py')}
    exact = [file.stem] if file.stem in known else []
    close = exact or difflib.get_close_matches(file.stem, known, n=3, cutoff=0.5)
    return f': did you mean {" or ".join(known[name] for name in close)}?' if close else ''


@functools.cache
def adapt_mmengine() -> None:
    """Let MMEngine find configs by `mmlape::` and `mmseg::`, and build plain values only from YAML.

    And let MMPretrain import beside transformers 5, and mmcv without its compiled ops. `mmlape.registry` does this,
    and what reads a config before.
    """
    from mmengine.config import utils
    from mmengine.fileio.handlers import yaml_handler

    utils.MODULE2PACKAGE['mmlape'] = 'mmlape'
    # MMEngine takes mmseg for missing without the distribution that it knows, and `mmengine.hub`
    # would install that one over the fork's files
    for distribution in (utils.MODULE2PACKAGE['mmseg'], 'onedl-mmsegmentation'):
        with contextlib.suppress(PackageNotFoundError):
            version(distribution)
            utils.MODULE2PACKAGE['mmseg'] = distribution
            break
    yaml_handler.Loader = _plain_yaml()  # for configs, annotations and metafiles
    _leave_out_multimodal()
    lend_ops()


def _plain_yaml() -> type:
    """Return a loader that builds plain values only, and the tuples that MMEngine writes."""
    import yaml

    class PlainLoader(getattr(yaml, 'CSafeLoader', yaml.SafeLoader)):  # type: ignore[misc]
        """YAML's safe loader, with tuples."""

    PlainLoader.add_constructor(
        'tag:yaml.org,2002:python/tuple', lambda loader, node: tuple(loader.construct_sequence(node, deep=True))
    )
    return PlainLoader


def _leave_out_multimodal() -> None:
    """Leave out MMPretrain's multimodal models, which do not import, beside transformers 5.

    MMPretrain asks one small module whether it has them; that one is imported before.
    """
    name = 'mmpretrain.utils.dependency'
    try:
        needs_4 = int(version('transformers').partition('.')[0]) >= 5
    except (PackageNotFoundError, ValueError):
        return
    package = importlib.util.find_spec('mmpretrain') if needs_4 and name not in sys.modules else None
    if package is None or not package.submodule_search_locations:
        return
    file = Path(package.submodule_search_locations[0]) / 'utils' / 'dependency.py'
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.WITH_MULTIMODAL = False  # type: ignore[attr-defined]
    sys.modules[name] = module
