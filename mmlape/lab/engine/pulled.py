"""Pull a published checkpoint, and make a config for it that is safe to run.

What stands in a config decides what runs, so a stranger's is not used as it is. Of a pulled config
only ``model``, ``data_preprocessor`` and the pipeline of the test are taken: plain values, in which
a text may stand only where the configs and studies of this package, or the constructors of its
backbones, have the same text. All else, such as data, evaluators, hooks and folders, and what names
files, comes from a config of this package or of the user.
"""

import itertools
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmlape.checkpoint.hub import CARD, CONFIG, CONFIG_NAME, WEIGHTS, download
from mmlape.errors import CheckpointError, ConfigError
from mmlape.files import atomic_path, read_json
from mmlape.lab.datasets.sources import iter_unwrapped
from mmlape.lab.engine.config import load_config
from mmlape.lab.engine.evaluator import TEST_KEYS
from mmlape.lab.engine.plan import require_keys
from mmlape.lab.studies.study_file import find_arm
from mmlape.mim import PREFIX, mim_root
from mmlape.weights.plain_config import LARGEST, read_plain

TEXTS = Path(__file__).with_name('pulled_texts.json')
"""The texts by place, the last two keys above a text: 'backbone.pe_joining'. tests/pulled_texts.py
writes it."""
OWN_KEYS = ('init_cfg', 'teacher_checkpoint', 'vocab_file', 'name', 'classes', 'templates')
"""Keys below the model that name files, addresses or what data contain: values of the user's config
are used."""
_TIMM_KEY, _TIMM_NAME = 'model_name', re.compile(r'\w+(\.\w+)?')
"""The name of a model in timm's registry; 'hf-hub:' and 'local-dir:' would make timm open
something."""
_KEY = re.compile(r'[A-Za-z]\w*|_scope_')
"""MMEngine gives keys such as ``_delete_`` a meaning."""


def pull(
    name: str,
    folder: str | Path,
    overwrite: bool = False,
    config: str | None = None,
) -> list[Path]:
    """Download a published checkpoint with its card, and write a config that tests it.

    Args:
        name: 'OWNER/NAME', or 'OWNER/NAME@REVISION'.
        folder: Receives the files.
        overwrite: Whether they may be there already.
        config: A config or an arm of a study, of which all is taken but the model, the data
            preprocessor and the pipeline of the test; by default the one of this package that the
            checkpoint was trained with.

    Returns:
        The files: weights, then config and card if the repository has them.

    Raises:
        CheckpointError: If nothing can be downloaded, the weights are no published checkpoint, the
            config has a value that is not allowed or was trained with none of this package's and
            ``config`` is not given, or one of the three files is there already.
        ConfigError: If ``config`` is none, or one of another task.
    """
    existing = [path for file in (WEIGHTS, CONFIG, CARD) if (path := Path(folder, file)).exists()]
    if existing and not overwrite:
        names = ', '.join(map(str, existing))
        raise CheckpointError(f'{names}: there already; choose another folder or pass --overwrite')
    found = download(name)
    text = ''
    if CONFIG in found:
        text = _config_text(found[CONFIG], f'{name}/{CONFIG}', config)
    for path in existing:  # an old config does not stay beside new weights
        if path.name not in found:
            path.unlink()
    for file, source in found.items():
        with atomic_path(Path(folder, file)) as partial:
            if file == CONFIG:
                partial.write_text(text, encoding='utf-8')
            else:
                shutil.copyfile(source, partial)
    return [Path(folder, file) for file in found]


def _config_text(file: Path, where: str, config: str | None) -> str:
    """Return the text of the config that tests the weights beside a pulled one."""
    if file.stat().st_size > LARGEST:
        raise CheckpointError(f'{where}: refused, a config of more than {LARGEST:,} bytes')
    values = read_plain(file.read_bytes(), where)
    return own_config(values, where, config).pretty_text


def own_config(values: Mapping, where: str, config: str | None = None) -> Config:
    """Return the user's config with the parts that are taken of a pulled one.

    Those are the model, the data preprocessor and the pipeline of the test.

    Args:
        values: The values of the pulled config.
        where: Its name, for messages.
        config: The user's; by default the one of this package that the pulled one names.

    Raises:
        CheckpointError, ConfigError: See `pull`.
    """
    parts = shared_parts(values)
    check_texts(parts, where)
    config = config or _named_config(values.get(CONFIG_NAME), where)
    cfg = load_config(config)
    require_keys(cfg, TEST_KEYS, 'tested')
    scope = values.get('default_scope')
    if scope is not None and scope != cfg.get('default_scope'):
        raise ConfigError(
            f'{config}: is of {cfg.get("default_scope")}, but {where} of {scope!r}; name a config '
            'of the same task'
        )
    cfg.model = _with_own(parts['model'], cfg.model)
    if 'data_preprocessor' in parts:
        cfg.data_preprocessor = parts['data_preprocessor']
    else:
        cfg.pop('data_preprocessor', None)
    for dataset in iter_unwrapped(cfg.test_dataloader['dataset']):
        dataset['pipeline'] = parts.get('pipeline', dataset.get('pipeline', []))
    return cfg


def shared_parts(values: Mapping) -> dict[str, Any]:
    """Return what is taken of a config, without the keys of ``OWN_KEYS``.

    That is 'model', and if it has them 'data_preprocessor' and the 'pipeline' of the test.
    """
    parts = {
        'model': values.get('model'),
        'data_preprocessor': values.get('data_preprocessor'),
        'pipeline': _pipeline(values.get('test_dataloader')),
    }
    return _without_own({key: part for key, part in parts.items() if part is not None})


def _pipeline(dataset: Any) -> Any:
    """Return the pipeline of a dataset, or of the first one in a wrapper."""
    while isinstance(dataset, Mapping):
        inner = dataset.get('datasets') or dataset.get('dataset')
        if inner is None:
            return dataset.get('pipeline')
        dataset = inner[0] if isinstance(inner, list | tuple) else inner
    return None


def _without_own(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {key: _without_own(value) for key, value in node.items() if key not in OWN_KEYS}
    if isinstance(node, list | tuple):
        return type(node)(map(_without_own, node))
    return node


def _with_own(taken: Any, own: Any) -> Any:
    """Return a part that was taken, with the user's values of ``OWN_KEYS``.

    They are those of the user's part in the same place, if it is of the same type.
    """
    if isinstance(taken, Mapping):
        if not isinstance(own, Mapping) or own.get('type') != taken.get('type'):
            own = {}
        parts = {key: _with_own(value, own.get(key)) for key, value in taken.items()}
        parts |= {key: own[key] for key in OWN_KEYS if key in own}
        return parts
    if isinstance(taken, list | tuple):
        others = own if isinstance(own, list | tuple) else ()
        pairs = itertools.zip_longest(taken, others[: len(taken)])
        return type(taken)(_with_own(part, other) for part, other in pairs)
    return taken


def check_texts(parts: Mapping, where: str) -> None:
    """Check that the parts that are taken have no texts and keys but those of this package's configs.

    Raises:
        CheckpointError: If there is no model, or a key or a text is another one; the message names
            its place.
    """
    for key, default, expected in (
        ('model', None, dict),
        ('data_preprocessor', {}, dict),
        ('pipeline', [], list),
    ):
        if not isinstance(parts.get(key, default), expected):
            raise CheckpointError(f'{where}: refused, its {key} is no {expected.__name__}')
    known = read_json(TEXTS)
    for place, text in iter_texts(parts):
        is_timm = place.endswith(f'.{_TIMM_KEY}') and _TIMM_NAME.fullmatch(text)
        if not is_timm and text not in known.get(place, ()):
            raise CheckpointError(
                f'{where}: refused, no config of this package has {text[:80]!r} as {place}, and it '
                'could run code or open a file; write a config of your own, and name the weights '
                f'hf-hub:{where.rpartition("/")[0]}'
            )


def iter_texts(node: Any, parent: str = '', key: str = '') -> Iterator[tuple[str, str]]:
    """Yield (place, text) of each text in a part of a config.

    Keys and values that are refused anywhere are among them. The place is the last two keys above
    the text; entries of a list are in the place of the list.
    """
    if isinstance(node, Mapping):
        for name, value in node.items():
            if not isinstance(name, str) or not _KEY.fullmatch(name):
                yield f'{key}: key', str(name)
            elif name == 'type' and not isinstance(value, str):
                yield f'{key}.type', str(value)
            else:
                yield from iter_texts(value, key, name)
    elif isinstance(node, list | tuple):
        for entry in node:
            yield from iter_texts(entry, parent, key)
    elif isinstance(node, str):
        yield f'{parent}.{key}', node
    elif node is not None and not isinstance(node, int | float):
        yield f'{parent}.{key}', str(node)


def _named_config(name: Any, where: str) -> str:
    """Return what `load_config` reads as the config or the arm that a pulled config names."""
    if isinstance(name, str) and re.fullmatch(r'\w[\w.+-]*', name):
        root = mim_root()
        configs = root / 'configs'
        file = next(iter(sorted(configs.glob(f'[!_]*/**/{name}.py'))), None)
        if file is not None:
            return f'{PREFIX}{file.relative_to(configs)}'
        found = find_arm(str(root / 'studies' / f'{name}.py'))
        if found is not None:
            study, arm = found
            return study.reference(arm)
    raise CheckpointError(
        f'{where}: was trained with none of the configs of this package; pass --config CONFIG, one '
        f'of yours or {PREFIX}FOLDER/NAME, whose data, evaluators and hooks are used'
    )
