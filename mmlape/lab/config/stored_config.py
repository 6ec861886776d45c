"""Configs that nobody has named: those in checkpoints and in the folders of runs, read without running them.

A published file has one, too, of what a prediction needs: `published_config`.

A checkpoint or a folder may be a stranger's. What evaluation needs is taken of its config, and
passes the gate; the rest, such as hooks, imports and paths of logs, is left out. After
``trust_checkpoints`` such a config is used, and run, as one that the user has named.
"""

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from mmengine.config import Config

from mmlape.checkpoint import gate
from mmlape.checkpoint.opening import OpenedFile, is_trusted, open_file
from mmlape.checkpoint.plain_config import read_plain, write_plain
from mmlape.errors import ConfigError
from mmlape.lab.config.config_file import apply_options, load_config, parse_options
from mmlape.lab.config.known_keys import SIZES
from mmlape.lab.registry import SCOPE

PARTS = {
    'model': ('MODELS', 'TASK_UTILS'),
    'data_preprocessor': ('MODELS',),
    'test_dataloader': ('DATASETS', 'TRANSFORMS', 'DATA_SAMPLERS', 'FUNCTIONS'),
    'test_cfg': ('LOOPS',),
    'test_evaluator': ('METRICS', 'EVALUATOR'),
}
"""The keys that are taken, with MMEngine's registries that hold the types below them."""
OF_MODEL = ('model', 'data_preprocessor')
_DATA = ('DATASETS', 'TRANSFORMS', 'DATA_SAMPLERS', 'FUNCTIONS')
MORE = {
    'train_dataloader': _DATA,
    'val_dataloader': _DATA,
    'optim_wrapper': ('OPTIM_WRAPPERS', 'OPTIM_WRAPPER_CONSTRUCTORS', 'OPTIMIZERS'),
}
"""The same of keys that only some commands need."""


LARGEST_BATCH = 4096
"""Images at once that a config of others may ask for."""


def config_of_run(
    file: str | Path, cfg_options: list[str] | dict[str, Any] | None = None, also: Sequence[str] = ()
) -> Config:
    """Return the config that a run has written into its folder, with the user's changes.

    Args:
        file: The config.
        cfg_options: The changes.
        also: Keys of ``MORE`` that are taken too.

    Raises:
        CheckpointError: It is more than plain values, or `mmlape.checkpoint.gate` refuses it.
        ConfigError: A change is unusable.
    """
    if is_trusted():
        return load_config(file, cfg_options)
    parts = PARTS | {key: MORE[key] for key in also}
    cfg = values_of_run(file)
    cfg = Config(_taken(cfg.to_dict(), file, parts), filename=str(file))
    apply_options(cfg, parse_options(cfg_options))
    return cfg


def values_of_run(file: str | Path, cfg_options: list[str] | dict[str, Any] | None = None) -> Config:
    """Return all of the config that a run has written, which is read and not run, for showing only.

    Raises:
        CheckpointError: It is more than plain values.
        ConfigError: A change is unusable.
    """
    cfg = Config(read_plain(Path(file).read_bytes(), file), filename=str(file))
    apply_options(cfg, parse_options(cfg_options))
    return cfg


def config_of_checkpoint(file: OpenedFile, name: str | Path | None = None) -> Config:
    """Return the config that MMEngine, or `mmlape checkpoint publish`, stores in a checkpoint as text.

    Args:
        file: The checkpoint.
        name: As the user calls it; by default the path.

    Raises:
        ConfigError: There is none.
        CheckpointError: See `config_of_run`.
    """
    text, name = file.meta.get('cfg'), name or file.path
    if not isinstance(text, str):
        raise ConfigError(f'{name} holds no config: give the config first and this file as checkpoint')
    if is_trusted():
        return Config.fromstring(text, '.py')
    return Config(_taken(read_plain(text, name), name))


def published_config(path: str | Path) -> str:
    """Return the text of the config that is published with a checkpoint's weights; see `prediction_parts`.

    Raises:
        ConfigError: The checkpoint holds no config, or one that says more; the message names the
            value.
        CheckpointError: The file cannot be read, or its config is more than plain values.
    """
    meta = open_file(path, mmap=True).meta
    if not isinstance(meta.get('cfg'), str):
        raise ConfigError('the file holds no config')
    return write_plain(prediction_parts(read_plain(meta['cfg'], path), classes_of(meta)))


def prediction_parts(values: Mapping[str, Any], classes: Sequence[str] | None = None) -> dict[str, Any]:
    """Return what a prediction needs of a config, and nothing of the run or of its data.

    That is the model, its data preprocessor, the test pipeline without annotations, the tiles of the
    test, and the names of the classes. Each value is a number, a type of a registry or a word that such a type takes
    (`mmlape.checkpoint.gate.published`), or the name of a class.

    Args:
        values: Of the config.
        classes: Their names; by default those that the config gives to its test set.

    Raises:
        ConfigError: A value is none of these; the message names it.
    """
    from mmlape.lab.datasets.transforms import loads  # needs OpenCV, without which models are built

    scope = values.get('default_scope', 'mmengine')
    dataset = _mapping(_mapping(values.get('test_dataloader')).get('dataset'))
    classes = classes or _mapping(dataset.get('metainfo')).get('classes')
    parts: dict[str, Any] = {key: values[key] for key in OF_MODEL if values.get(key) is not None}
    data: dict[str, Any] = dict(metainfo=dict(classes=list(classes))) if classes else {}
    data['pipeline'] = [step for step in dataset.get('pipeline') or () if not loads(step, scope, 'Annotations')]
    parts['test_dataloader'] = dict(dataset=data)
    if tiles := tiles_of(values):
        parts['test_cfg'] = dict(tiles, type=values['test_cfg']['type'])
    taken: dict[str, Any] = {'default_scope': scope}
    try:
        for key, part in parts.items():
            taken |= _gate().published({key: part}, PARTS[key], scope)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return taken


def tiles_of(cfg: Mapping) -> dict[str, Any]:
    """Return ``tile``, ``overlap`` and ``max_per_img`` of a config's test, those that it has; none without tiles."""
    loop = cfg.get('test_cfg')
    if not isinstance(loop, Mapping) or not {'type', 'tile'} <= loop.keys():
        return {}
    return {key: loop[key] for key in ('tile', 'overlap', 'max_per_img') if key in loop}


def preprocessor_of(cfg: Mapping) -> dict[str, Any]:
    """Return the data preprocessor of a config: its model's, else the one beside the model."""
    return cfg['model'].get('data_preprocessor') or cfg.get('data_preprocessor') or {}


def classes_of(meta: Any) -> list[str] | None:
    """Return the names of the classes in what a checkpoint holds beside its weights, if there are any."""
    names = _mapping(_mapping(meta).get('dataset_meta')).get('classes')
    is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return list(names) if is_list else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _gate() -> ModuleType:
    """Return the gate once it knows the types of extensions that are in no registry of MMEngine."""
    import_module(f'{SCOPE}.registry')
    return gate


def _taken(
    values: Mapping[str, Any], where: str | Path, parts: Mapping[str, tuple[str, ...]] = PARTS
) -> dict[str, Any]:
    """Return the parts of a config that are needed."""
    scope = values.get('default_scope', 'mmengine')
    taken: dict[str, Any] = {'default_scope': scope}
    for key, registries in parts.items():
        if isinstance(values.get(key), Mapping | list | tuple):
            taken |= _gate().admit({key: values[key]}, where, registries, scope)
    loaders = {key: value for key, value in taken.items() if key.endswith('_dataloader') and isinstance(value, dict)}
    taken |= {} if is_trusted() else {key: _bounded(loader) for key, loader in loaders.items()}
    sizes = {key: values[key] for key in SIZES if key in values}
    return taken | _gate().admit(sizes, where, (), scope)


def _bounded(loader: Mapping[str, Any]) -> dict[str, Any]:
    """Return a data loader with no more workers than processors, and none of its batches ahead or far too large."""
    most = dict(batch_size=LARGEST_BATCH, num_workers=os.cpu_count() or 1)
    kept = {key: value for key, value in loader.items() if key != 'prefetch_factor'}
    return kept | {key: min(kept[key], limit) for key, limit in most.items() if isinstance(kept.get(key), int)}
