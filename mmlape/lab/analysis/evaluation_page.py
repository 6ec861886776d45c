"""Drawings of a test, and its page: scores, what is taken for what, each class, and the worst images.

Truth is at the left of the prediction.
"""

import heapq
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from mmengine.dist import all_gather_object, get_rank, get_world_size, is_main_process
from mmengine.hooks import Hook

from mmlape.checkpoint.closed_world import opened
from mmlape.console.figures import save_figure, wrapped
from mmlape.console.page import Element, write_page
from mmlape.console.tables import text_table
from mmlape.files import atomic_path, write_bytes
from mmlape.lab.analysis.confusion import Confusion, confusion_of
from mmlape.lab.analysis.dataset_page import LONGEST, as_image
from mmlape.lab.datasets.transforms import load_again
from mmlape.lab.evaluation.metric_names import label, ranked, show
from mmlape.lab.inference.drawing import draw_sample, drawing_name, palette_of, write_image
from mmlape.lab.registry import HOOKS
from mmlape.lab.training.hooks import PerClassHook
from mmlape.lab.training.hooks.evaluation import name_in

WORST = 20
_NAMED = 40
"""Most classes whose names the figure of a matrix has."""


@HOOKS.register_module()
class EvaluationPageHook(Hook):
    """Write the page of a test, and its confusion matrix as PDF.

    Args:
        out: The file.
        title: Of the page.
        worst: How many images are shown.
    """

    changes_results = False
    priority = 'LOW'
    counts = {}

    def __init__(self, out: str, title: str, worst: int = WORST) -> None:
        self.out = Path(out)
        self.title = title
        self.worst = worst
        self.before_test(None)

    def before_test(self, runner) -> None:
        """Start with no image."""
        self.confusion: Confusion | None = None
        self.count = 0  # of images, here
        self.kept: list[tuple[float, int, str, Any, np.ndarray | None]] = []

    def after_test_iter(self, runner, batch_idx: int, data_batch=None, outputs=()) -> None:
        """Count the images of a batch, and keep those that are among the worst so far."""
        dataset = runner.test_loop.dataloader.dataset
        for place, sample in enumerate(outputs):
            if self.confusion is None:
                self.confusion = confusion_of(sample, dataset)
                self.palette = palette_of(runner.cfg, self.confusion.classes)
            number = self.count * get_world_size() + get_rank()
            self.count += 1
            if number >= len(dataset):  # a sampler of several processes repeats images at the end
                continue
            score = self.confusion.add(sample)
            if len(self.kept) == self.worst and -score <= self.kept[0][0]:
                continue
            path = sample.get('img_path')
            image = None if path else _input(data_batch['inputs'], place)
            name = str(path or f'image {sample.get("sample_idx", number)}')
            entry = (-score, -number, name, self.confusion.drawn(sample), image)
            (heapq.heappushpop if len(self.kept) == self.worst else heapq.heappush)(self.kept, entry)

    def after_test_epoch(self, runner, metrics: dict | None = None) -> None:
        """Gather what the processes have, and write the page."""
        parts = all_gather_object((self.confusion, self.kept))
        if not is_main_process():
            return
        matrix = sum(confusion.matrix for confusion, _ in parts if confusion)
        kept = [entry for _, entries in parts for entry in entries]
        worst = sorted(kept, key=lambda entry: entry[:2], reverse=True)[: self.worst]
        values = next((hook.values for hook in runner.hooks if isinstance(hook, PerClassHook)), {})
        with tempfile.TemporaryDirectory() as folder, atomic_path(self.out) as partial:
            write_page(
                self.title,
                self._sections(Path(folder), matrix, worst, metrics or {}, values),
                ('Scores', 'Confusion', 'Classes', 'Worst images'),
                partial,
            )

    def _sections(
        self, folder: Path, matrix: np.ndarray, worst: Sequence[tuple], metrics: dict, values: dict
    ) -> dict[str, list[Element]]:
        confusion = self.confusion
        assert confusion is not None, 'a test has an image'
        rows = [(label(name), show(name, metrics[name])) for name in ranked(metrics)]
        with opened():  # fontTools, which it imports, evaluates text of its own
            import_module('matplotlib.backends.backend_pdf')
        figure = draw_matrix(matrix, confusion.names, folder / 'confusion.svg')
        write_bytes(self.out.with_suffix('.pdf'), figure.with_suffix('.pdf').read_bytes())
        return {
            '': [],
            'Scores': [Element(text_table(('metric', 'value'), rows), 'Scores')],
            'Confusion': [
                Element(f'Counted in {confusion.unit}. {confusion.about}'.strip()),
                Element(figure, 'Percent of each true class (row) that are predicted as (column)'),
            ],
            'Classes': [Element(class_table(matrix, confusion, values), 'Classes')],
            'Worst images': [
                Element(f'By {confusion.better}. Truth at the left, prediction at the right.'),
                *(self._figure(entry, folder / f'{number}.jpg') for number, entry in enumerate(worst)),
            ],
        }

    def _figure(self, entry: tuple, path: Path) -> Element:
        badness, _, name, sample, image = entry
        assert self.confusion is not None, 'a test has an image'
        image = load_again(sample) if image is None else image
        drawn = draw_sample(image, sample, self.confusion.classes, self.palette, longest=LONGEST)
        write_image(drawn, path)
        return Element(path, f'{Path(name).name}: {-badness:.3f}')


@HOOKS.register_module()
class DrawingsHook(Hook):
    """Draw every image of a test.

    Args:
        out_dir: The folder, in which drawings have the names of their images.
    """

    changes_results = False
    priority = 'LOW'

    def __init__(self, out_dir: str) -> None:
        self.out_dir = Path(out_dir)
        self.confusion: Confusion | None = None
        self.count = 0  # of images, here

    def after_test_iter(self, runner, batch_idx: int, data_batch=None, outputs=()) -> None:
        """Draw the images of a batch."""
        dataset = runner.test_loop.dataloader.dataset
        for place, sample in enumerate(outputs):
            if self.confusion is None:
                self.confusion = confusion_of(sample, dataset)
                self.palette = palette_of(runner.cfg, self.confusion.classes)
            path = sample.get('img_path')
            image = load_again(sample) if path else _input(data_batch['inputs'], place)
            name = name_in(dataset, path) if path else Path(f'{self.count * get_world_size() + get_rank()}.png')
            drawn = draw_sample(image, self.confusion.drawn(sample), self.confusion.classes, self.palette)
            write_image(drawn, self.out_dir / drawing_name(name))
            self.count += 1


def _input(inputs: Sequence, place: int) -> np.ndarray:
    """Return the image at a place of a batch; its first view, if there are several."""
    views = inputs if isinstance(inputs[0], torch.Tensor) else inputs[0]
    return as_image(views[place], is_bgr=False)


def _shares(matrix: np.ndarray, axis: int) -> np.ndarray:
    """Return a matrix in percent of the sums of its rows (1) or columns (0).

    NaN where these are 0.
    """
    sums = matrix.sum(axis, keepdims=True)
    return np.where(sums > 0, 100 * matrix / np.maximum(sums, 1), np.nan)


def draw_matrix(matrix: np.ndarray, names: Sequence[str], path: Path) -> Path:
    """Draw the shares of the rows of a confusion matrix, with names and numbers where there is room for them."""
    shares, count = _shares(matrix, 1), len(names)
    named = count <= _NAMED
    side = max(4.5, 0.42 * count) if named else 8.5
    figure = Figure(figsize=(side + 1.5, side), layout='constrained')
    axes = figure.subplots()
    image = axes.imshow(shares, cmap='Blues', vmin=0, vmax=100)
    figure.colorbar(image, ax=axes, fraction=0.04, label='%')
    axes.set(xlabel='predicted', ylabel='true')
    if not named:
        return save_figure(figure, path)
    labels = [wrapped(name, 18) for name in names]
    axes.set_xticks(range(count), labels, rotation=60, ha='right', rotation_mode='anchor', fontsize=8)
    axes.set_yticks(range(count), labels, fontsize=8)
    for (row, column), share in np.ndenumerate(shares):
        if share >= 0.5:
            ink = 'white' if share > 60 else 'black'
            axes.text(column, row, f'{share:.0f}', ha='center', va='center', fontsize=7, color=ink)
    return save_figure(figure, path)


def class_table(matrix: np.ndarray, confusion: Confusion, values: dict[str, dict[str, float]]) -> pd.DataFrame:
    """List each class with the metric's values, and its recall, precision and most frequent confusion.

    Args:
        matrix: Of all images.
        confusion: Has the names.
        values: ``{measure: {class: value}}``.
    """
    recall, precision = _shares(matrix, 1).diagonal(), _shares(matrix, 0).diagonal()
    shares = _shares(matrix, 1)
    rows = []
    for place, name in enumerate(confusion.classes):
        row = shares[place].copy()
        row[place] = -1
        taken = int(np.nanargmax(row)) if np.nanmax(row, initial=-1) > 0 else None
        mistaken_for = '-'
        if taken is not None:
            mistaken_for = f'{confusion.names[taken]} {row[taken]:.1f} %'
        cells = [show(measure, of_class.get(name)) for measure, of_class in values.items()]
        rates = [recall[place], precision[place]]
        shown = ['-' if np.isnan(rate) else f'{rate:.2f}' for rate in rates]
        rows.append((name, mistaken_for, *cells, f'{matrix[place].sum():,}', *shown))
    heads = ('class', 'most often taken for', *map(label, values), confusion.unit, 'recall', 'precision')
    return text_table(heads, rows, 2)
