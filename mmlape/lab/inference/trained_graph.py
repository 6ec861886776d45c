"""The graph of a trained model: written, and found in the folder of its run."""

import json
from collections.abc import Mapping
from pathlib import Path

from mmlape.errors import CheckpointError, ExportError
from mmlape.lab.config.stored_config import tiles_of
from mmlape.lab.export.beside_graph import names_of
from mmlape.lab.export.graphs import SUFFIX, ExportedModel, ExportedTogether, Graph, Input, exported_class
from mmlape.lab.export.writing import Form, Written, export_graph
from mmlape.lab.inference.run_model import init_model
from mmlape.lab.inference.tiling import Tiling
from mmlape.lab.inference.trained_model import Trained


def export(trained: Trained | Mapping[str, Trained], form: Form, out: str | Path, labels: bool = False) -> Written:
    """Write the graph of a complete model, unless its numbers differ from PyTorch's by more than the tolerance.

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
    graph = ExportedTogether({name: part for name, (part, _) in parts.items()}).eval()
    return export_graph(graph, form, out, notes | graph.given.notes() | dict(models=json.dumps(list(parts))))


def _exported(trained: Trained, form: Form, labels: bool) -> tuple[ExportedModel, dict[str, str]]:
    """Return a model as it is exported, and what its graph says of it."""
    if trained.checkpoint and trained.file is None:
        raise ExportError(f'{trained.checkpoint} is a graph already: give the weights that it was made of')
    with trained.building():
        model = init_model(trained.config, trained.file, 'cpu')
    exported, given = exported_class(model), Input.of(model, model.cfg)
    if labels and exported.task != 'segmentation':
        raise ExportError(f'--labels is for segmentors, and this is a model for {exported.task}')
    notes = names_of(trained.config, trained.checkpoint) | given.notes()
    notes |= dict(task=exported.task, classes=json.dumps(list(model.classes)))
    if (tiles := tiles_of(model.cfg)) and form.size == (tiles['tile'],) * 2:
        notes['overlap'] = str(Tiling.of(**tiles).overlap)
    return exported(model, given, **(dict(labels=True) if labels else {})).eval(), notes


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
