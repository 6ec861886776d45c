"""The graph of a trained model: written, and found in the folder of its run.

Beside it stand names of classes, sizes and normalisation, and examples without this package.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmlape.errors import CheckpointError, ConfigError, ExportError
from mmlape.files import write_json, write_text
from mmlape.lab.config.stored_config import preprocessor_of, tiles_of
from mmlape.lab.export import writing
from mmlape.lab.export.graphs import SUFFIX, Exported, Graph, Size, Together, exported_model
from mmlape.lab.export.writing import Form, export_graph, names_of
from mmlape.lab.inference.prediction import init_model
from mmlape.lab.inference.tiling import Tiling
from mmlape.lab.inference.trained_model import Trained

EXAMPLES = [Path(writing.__file__).with_name(name) for name in ('example.py', 'example.cpp')]


def export(trained: Trained | Mapping[str, Trained], form: Form, out: str | Path, labels: bool = False) -> float:
    """Write the graph of a complete model, and return how far its numbers are from PyTorch's.

    Args:
        trained: The model; the test pipeline of its config says in which order images are loaded. Or several by name,
            over one frozen part: names of outputs and of metadata begin with those of the models.
        form: Of the graph; differences of boxes are in shares of the longest side.
        out: The file.
        labels: Whether the graph of a segmentor ends in the class of each pixel.

    Raises:
        ConfigError: Several models have no frozen part in common.
        ExportError: If no such model can be exported, ``labels`` is for another task, a difference
            exceeds the tolerance, or ``out`` is a folder; nothing is written then.
        StackError: If a package is missing.
    """
    if isinstance(trained, Trained):
        exported, notes = _exported(trained, form, labels)
        return export_graph(exported, form, out, notes)
    parts = {name: _exported(one, form, labels) for name, one in trained.items()}
    notes = {f'{name}/{key}': value for name, (_, own) in parts.items() for key, value in own.items()}
    graph = Together({name: part for name, (part, _) in parts.items()}).eval()
    return export_graph(graph, form, out, notes | graph.given.notes() | dict(models=json.dumps(list(parts))))


def _exported(trained: Trained, form: Form, labels: bool) -> tuple[Exported, dict[str, str]]:
    """Return a model as it is exported, and what its graph says of it."""
    if trained.checkpoint and trained.file is None:
        raise ExportError(f'{trained.checkpoint} is a graph already: give the weights that it was made of')
    with trained.building():
        model = init_model(trained.config, trained.file, 'cpu')
    exported = exported_model(model, model.cfg, labels)
    notes = names_of(trained.config, trained.checkpoint) | exported.given.notes()
    notes |= dict(task=exported.task, classes=json.dumps(list(model.classes)))
    if (tiles := tiles_of(model.cfg)) and form.size == (tiles['tile'],) * 2:
        notes['overlap'] = str(Tiling.of(**tiles).overlap)
    return exported, notes


def graph_file(trained: Trained, out: str | Path | None) -> Path:
    """Return the file of the graph of a trained model.

    Args:
        trained: The model.
        out: The file, or a folder for ``model.onnx``; by default ``onnx`` in its work dir.
    """
    out = out or trained.work_dir() / 'onnx'
    return Path(out) if Path(out).suffix == SUFFIX else Path(out) / f'model{SUFFIX}'


def graph_of(trained: Trained) -> Path:
    """Return the graph in the folder of a run.

    Raises:
        CheckpointError: There is none, or it has the weights of another checkpoint.
    """
    path = graph_file(trained, None)
    fix = f'mmlape export-onnx {trained.source or trained.checkpoint} writes it'
    if not path.is_file():
        raise CheckpointError(f'{path} does not exist: {fix}')
    known = Graph(path).notes.get('checkpoint_sha256')
    if trained.checkpoint and known != names_of(trained.config, trained.checkpoint).get('checkpoint_sha256'):
        raise CheckpointError(f'{path} has other weights than {trained.checkpoint}: {fix} again')
    return path


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
