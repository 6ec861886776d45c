"""The graph of a trained model: written, found in the folder of its run, and checked on images of a user.

Beside it stand names of classes, sizes and normalisation, and examples without this package. A check runs the images
through what the model's own package predicts, the exported model in PyTorch, and the graph, which any tool may have
written or changed, such as onnxruntime's for half precision and for integers.
"""

import copy
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.registry import DATASETS, init_default_scope
from mmengine.structures import BaseDataElement
from rich.progress import track
from torch import Tensor, nn
from torchvision.ops import box_iou

from mmlape.console.quiet import say
from mmlape.console.tables import print_table, text_table
from mmlape.console.terminal import console
from mmlape.errors import CheckpointError, ConfigError, ExportError
from mmlape.files import write_json, write_text
from mmlape.lab.config.stored_config import preprocessor_of, tiles_of
from mmlape.lab.evaluation.metric_names import points
from mmlape.lab.export import writing
from mmlape.lab.export.graphs import SUFFIX, Exported, Graph, Size, Together, exported_model, install_graph
from mmlape.lab.export.writing import Form, export_graph, names_of, silent
from mmlape.lab.inference.images import files_of
from mmlape.lab.inference.prediction import init_model, predict_batch
from mmlape.lab.inference.tiling import Tiling
from mmlape.lab.inference.trained_model import Trained

EXAMPLES = [Path(writing.__file__).with_name(name) for name in ('example.py', 'example.cpp')]
GOAL = 0.999
"""The share of labels that are to be equal."""
APART = 0.1
"""How far AP or mIoU may be apart, in points."""
SURE = 0.3
"""The least score of objects that are compared."""
SAME = 0.9
"""The least overlap of boxes of the same object."""
PACKAGES = dict(detection='MMDetection', segmentation='MMSegmentation', classification='MMPretrain')
MAIN = dict(detection='_mAP', segmentation='mIoU', classification='top1')
"""How the names of a task's main metrics end."""


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


@dataclass
class Side:
    """One of those that predict."""

    name: str
    model: nn.Module
    equal: list[float] = field(default_factory=list)  # by image: the share of the package's labels
    seconds: list[float] = field(default_factory=list)
    evaluator: Evaluator | None = None
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Checked:
    """What a check has found."""

    sides: list[Side]
    compared: list[float]  # by image: the share of labels that are as in PyTorch

    @property
    def equal(self) -> float:
        """The share of labels that the graph has as the exported model in PyTorch; NaN without any."""
        return _mean_share(self.compared)

    @property
    def passes(self) -> bool:
        """Whether labels and metrics are as equal as they are to be; of images without objects, AP alone says."""
        torch_side, graph_side = self.sides[1], self.sides[-1]
        apart = max((abs(value - graph_side.metrics[key]) for key, value in torch_side.metrics.items()), default=0.0)
        enough = bool(torch_side.metrics) if np.isnan(self.equal) else self.equal >= GOAL
        return enough and apart <= APART


def check(trained: Trained, path: Path, images: str | Path, name: str = '') -> Checked:
    """Compare a graph on images, and print a table.

    Args:
        trained: The model.
        path: The graph.
        images: A folder. If it is or has that of the config's test set, AP or mIoU is computed.
        name: Of the model, where the graph has several.

    Raises:
        CheckpointError: The graph has another number of classes or other shapes, or values that are
            not finite.
        DataError: There are no images, or one is larger than those of the graph.
    """
    cfg, found = trained.config, files_of(images)
    terminal = console(stderr=True)
    with silent(logging.INFO):
        sides = _sides(trained, path, name)
        task, prepare = sides[0].model.task, sides[0].model.preparation.of_file
        dataset = _dataset(cfg, Path(images))
        if dataset is not None:
            for side in sides:
                side.evaluator = Evaluator(copy.deepcopy(cfg.test_evaluator))
                side.evaluator.dataset_meta = dataset.metainfo
        count = len(found) if dataset is None else len(dataset)
        compared = []
        for place in track(range(count), 'comparing', console=terminal, disable=not terminal.is_terminal):
            inputs = prepare(found[place]) if dataset is None else dataset[place]
            samples = [_predicted(side, inputs) for side in sides]
            for side, sample in zip(sides, samples):
                side.equal.append(equal_labels(task, samples[0], sample))
            compared.append(equal_labels(task, samples[1], samples[-1]))
        for side in sides:
            if side.evaluator is not None:
                values = side.evaluator.evaluate(count)
                main = [key for key in values if key.endswith(MAIN[task])]
                side.metrics = {key.rpartition('/')[2]: points(key, float(values[key])) for key in main}
    result = Checked(sides, compared)
    _show(result, images)
    return result


def _sides(trained: Trained, path: Path, name: str) -> list[Side]:
    """Return the model's package, the exported model in PyTorch, and the graph."""
    model = init_model(trained.config, trained.file, 'cpu')
    through, by_graph = copy.deepcopy(model), copy.deepcopy(model)
    graph = Graph(path, name)
    install_graph(by_graph, graph, trained.config, model.classes)
    eager = exported_model(copy.deepcopy(through), trained.config, labels=graph.outputs == ('labels',))
    eager.install(through, partial(graph.of_batch, given=eager.given, instead=eager))
    return [Side(PACKAGES[model.task], model), Side('PyTorch, as exported', through), Side('graph', by_graph)]


def _predicted(side: Side, inputs: dict[str, Any]) -> BaseDataElement:
    started = time.perf_counter()
    (sample,) = predict_batch(side.model, [copy.deepcopy(inputs)], logits=False)
    side.seconds.append(time.perf_counter() - started)
    if side.evaluator is not None:
        side.evaluator.process([sample], dict(data_samples=[sample]))
    return sample


def _dataset(cfg: Config, images: Path) -> Any:
    """Return the test set of a config if its images are in a folder; None for others."""
    init_default_scope(cfg.default_scope)
    given = copy.deepcopy(cfg.test_dataloader.dataset)
    prefix = (given.get('data_prefix') or {}) if isinstance(given.get('data_prefix'), dict) else {}
    root = Path(given.get('data_root') or '') / str(
        prefix.get('img') or prefix.get('img_path') or given.get('data_prefix') or ''
    )
    if not root.is_dir() or not root.resolve().is_relative_to(images.resolve()):
        return None
    return DATASETS.build(given)


def _mean_share(shares: Sequence[float]) -> float:
    """Return the mean of what `equal_labels` returns of images, those without objects left out; NaN of none."""
    found = [share for share in shares if not np.isnan(share)]
    return float(np.mean(found)) if found else np.nan


def equal_labels(task: str, one: BaseDataElement, other: BaseDataElement) -> float:
    """Return the share of the first's labels that the other has: of pixels, of objects, or of the image.

    Objects are those of a score of 0.3 and more of either; one is equal if the other has one of its
    class that it overlaps by 0.9. NaN where neither has any.
    """
    if task == 'segmentation':
        return float((one.pred_sem_seg.data == other.pred_sem_seg.data).double().mean())
    if task == 'classification':
        return float(one.pred_label.item() == other.pred_label.item())
    found = [_matched(one, other), _matched(other, one)]
    matches = torch.cat(found)
    return float(matches.double().mean()) if len(matches) else np.nan


def _matched(one: BaseDataElement, other: BaseDataElement) -> Tensor:
    """Return for each sure object whether the other has it."""
    mine, theirs = one.pred_instances, other.pred_instances
    mine = mine[mine.scores >= SURE]
    overlap = box_iou(mine.bboxes.float(), theirs.bboxes.float())
    same = (mine.labels[:, None] == theirs.labels) & (overlap >= SAME)
    return same.any(1)


def _show(found: Checked, images: str | Path) -> None:
    """Print a row for each, and what is wrong."""
    names = list(found.sides[0].metrics)
    header = ('', f'labels as {found.sides[0].name}', *names, 'ms an image')
    rows = [
        (
            side.name,
            _percent(_mean_share(side.equal)),
            *(f'{side.metrics[name]:.2f}' for name in names),
            f'{1000 * median(side.seconds):.0f}',
        )
        for side in found.sides
    ]
    print_table(text_table(header, rows))
    if not names:
        say(f"{images} does not have the config's test set: no AP or mIoU")
    line = f'{len(found.compared)} images: {found.equal:.3%} of the labels are as in PyTorch'
    if np.isnan(found.equal):
        line = (
            f'{len(found.compared)} images: no object has a score of {SURE} or more, so none was '
            'compared: give images with objects'
        )
    say(line)
    if not found.passes and (names or not np.isnan(found.equal)):
        say(f'this is less than {GOAL:.1%} of the labels, or more than {APART} points apart')


def _percent(share: float) -> str:
    return '-' if np.isnan(share) else f'{share:.3%}'
