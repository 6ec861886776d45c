"""What stands beside a graph: names of classes, sizes and normalisation, and examples without this package."""

import json
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmlape.errors import ConfigError
from mmlape.files import sha256, write_json, write_text
from mmlape.lab.config.stored_config import preprocessor_of, tiles_of
from mmlape.lab.export.graphs import Graph, Size

EXAMPLES = [Path(__file__).with_name(name) for name in ('example.py', 'example.cpp')]


def names_of(cfg: Config, checkpoint: str | None) -> dict[str, str]:
    """Return what a graph says of its files: their names and no folders, as it is given to others."""
    notes = dict(config=Path(str(cfg.filename)).name, checkpoint=Path(str(checkpoint)).name)
    if checkpoint and Path(checkpoint).is_file():
        notes['checkpoint_sha256'] = sha256(checkpoint)
    return notes


def image_size(cfg: Config) -> Size:
    """Return the size of the images that a model sees.

    Its sliding window, else the tile of its test, else the size that its preprocessor pads to, which
    training reads, else the config's variable.

    Raises:
        ConfigError: The configuration has neither.
    """
    test_cfg = cfg.model.get('test_cfg') or {}
    window = test_cfg.get('crop_size') if test_cfg.get('mode') == 'slide' else tiles_of(cfg).get('tile')
    size = window or preprocessor_of(cfg).get('size') or cfg.get('crop_size') or cfg.get('img_size')
    if size is None:
        raise ConfigError(f'{cfg.filename} has no crop_size or img_size: give --size HEIGHT WIDTH')
    return (size, size) if isinstance(size, int) else tuple(size)


def complete(path: Path) -> None:
    """Write ``labels.txt``, ``model.json``, ``example.py`` and ``example.cpp`` beside a graph.

    A backbone has no classes: it gets ``model.json`` alone. So do several models, each with its classes in there.
    """
    graph = Graph(path)
    if models := json.loads(graph.notes.get('models', '[]')):
        each = {name: Graph(path, name) for name in models}
        about = {name: dict(_described(one), classes=one.classes) for name, one in each.items()}
        write_json(path.with_name('model.json'), {'file': path.name, 'models': about})
        return
    write_json(path.with_name('model.json'), {'file': path.name, **_described(graph)})
    if graph.task:
        write_text(path.with_name('labels.txt'), ''.join(f'{one_line(name)}\n' for name in graph.classes))
        for example in EXAMPLES:
            write_text(path.with_name(example.name), example.read_text(encoding='utf-8'))


def _described(graph: Graph) -> dict[str, Any]:
    """Return what ``model.json`` says of a model."""
    notes = graph.notes
    keys = [key for key in ('mean', 'std', 'overlap') if graph.task and key in notes]
    return {
        'task': graph.task or 'backbone',
        'size': list(graph.size),
        'batch': graph.batch,
        'channels': graph.channels,
        'input': notes.get('input', 'normalised'),
        **{key: json.loads(notes[key]) for key in keys},
        'outputs': {name: graph.shape(name) for name in graph.outputs},
    }


def one_line(name: str) -> str:
    """Return the name of a class without breaks, so that line N of a file is class N."""
    return ' '.join(name.split()) or '?'
