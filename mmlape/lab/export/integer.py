"""A graph in 8-bit integers, by onnxruntime's static quantisation of its graph of float32.

In int8 are weights, inputs and outputs of convolutions and of products with a weight: each has one
scale, a weight one for each output, and no offset, which TensorRT asks for. In float32 stay products
of two computed values, which attention has, and what `mmlape.lab.export.half` leaves there. Scales
are of the largest values on images of a user, prepared as in the config's test; every fourth image
is left out, to measure what the graph keeps.
"""

import copy
import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
from mmengine.config import Config
from rich.progress import track
from torch import Tensor

from mmlape.console import console
from mmlape.errors import DataError, ExportError
from mmlape.lab.analysis.images import files_of
from mmlape.lab.analysis.inference import init_model, predict_batch
from mmlape.lab.engine.graphs import Graph, Input, exported_class
from mmlape.lab.engine.graphs.session import data_file
from mmlape.lab.export.check import SURE, equal_labels, mean_share
from mmlape.lab.export.half import constants_of, exact_places, places_before
from mmlape.lab.export.model import export
from mmlape.lab.export.writing import Form, Written, check_out, put_in_place, save, silent

if TYPE_CHECKING:
    import onnx

MOST_IMAGES = 100
"""How many images are used, evenly chosen from a folder."""
EVERY = 4
"""Which images have no part in the scales: the second, and each one so many further."""
PRODUCTS = ('Conv', 'MatMul', 'Gemm')
OF_FLOAT = 0.05
"""How far the graph of float32 may be from PyTorch: rounding to integers is coarser."""


def export_integers(
    cfg: Config, checkpoint: str | None, form: Form, out: str | Path, images: str | Path, labels: bool = False
) -> Written:
    """Write the graph of a configuration's model in int8, unless too many labels of the images change by it.

    Args:
        cfg: Of the model.
        checkpoint: Its weights; None for the initial ones.
        form: Of the graph; its limit is the share of labels that may differ from those of float32.
        out: The file.
        images: A folder, of images like those that the graph will get; see `calibration_files`.
        labels: See `mmlape.lab.export.model.export`.

    Raises:
        ExportError: More labels differ, or the graph of float32 cannot be written.
        DataError: There are fewer than two images, or one does not fit the graph.
    """
    of_scales, left_out = calibration_files(images)
    out = check_out(out)
    exact = replace(form, precision='fp32', tolerance=OF_FLOAT)
    with tempfile.TemporaryDirectory(dir=out.absolute().parent, prefix='.export-') as folder:
        single = export(cfg, checkpoint, exact, Path(folder) / 'float32.onnx', labels).path
        written = Path(folder) / out.name
        quantise(single, written, _inputs(cfg, single, of_scales))
        difference = 1 - _agreement(cfg, single, written, left_out)
        if np.isnan(difference):
            raise ExportError(
                f'no object of the {len(left_out)} images of --calibration that are left out to measure '
                f'what int8 keeps has a score of {SURE} or more: nothing is written. Give it images '
                'with objects'
            )
        if difference > form.limit:
            raise ExportError(
                f'in int8, {difference:.1%} of the labels differ from those of fp32, more than '
                f'{form.limit:.1%}, on images that no scale is of ({len(left_out)} of '
                f'{len(left_out + of_scales)}): nothing is written. Give --calibration more images '
                'like those of the use, or export with --precision fp16'
            )
        put_in_place(written, out)
    return Written(out, difference)


def calibration_files(images: str | Path) -> tuple[list[Path], list[Path]]:
    """Return the images of a folder that scales are of, and those that are left out for measuring.

    Raises:
        DataError: There are fewer than two images.
    """
    found = files_of(images)
    if len(found) < 2:
        raise DataError(
            f'{images}: one image is too few for --calibration; give two or more, '
            'since some are left out to measure what int8 keeps'
        )
    places = np.linspace(0, len(found) - 1, min(len(found), MOST_IMAGES)).round().astype(int)
    chosen = [found[place] for place in places]
    left_out = chosen[1::EVERY]
    return [file for file in chosen if file not in left_out], left_out


def quantise(path: Path, out: Path, inputs: Iterable[np.ndarray]) -> None:
    """Write a graph of float32 in int8.

    Args:
        path: The graph.
        out: The file.
        inputs: What the graph is given to find the largest values, images (B, C, H, W).
    """
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    model = onnx.load(path)
    rows = ({model.graph.input[0].name: images} for images in inputs)
    with silent(logging.WARNING):  # advice to run a pass of onnxruntime's that has run
        quantize_static(
            str(path),
            str(out),
            SimpleNamespace(get_next=lambda: next(rows, None)),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=quantised_nodes(model),
            use_external_data_format=data_file(path).is_file(),
            extra_options=dict(ActivationSymmetric=True),
        )
    made = onnx.load(out)
    del made.metadata_props[:]
    made.metadata_props.extend(model.metadata_props)
    for entry in made.metadata_props:
        if entry.key == 'precision':
            entry.value = 'int8'
    save(made, out)


def quantised_nodes(model: 'onnx.ModelProto') -> list[str]:
    """Return the names of the nodes that are computed in int8."""
    graph = model.graph
    constants = constants_of(graph)
    exact = exact_places(graph, final=True) | _choosing(graph)
    return [
        node.name
        for place, node in enumerate(graph.node)
        if node.op_type in PRODUCTS and place not in exact and node.input[1] in constants
    ]


def _choosing(graph: 'onnx.GraphProto') -> set[int]:
    """Return the places of the last convolution but one before a choice of boxes: of a detector's RPN.

    In int8 it costs Mask R-CNN more objects than all other layers, since others are chosen.
    """
    choices = [node for node in graph.node if node.op_type in ('NonMaxSuppression', 'TopK')]
    places = places_before(graph, [name for node in choices for name in node.input])
    convolutions = [graph.node[place] for place in places if graph.node[place].op_type == 'Conv']
    return places_before(graph, [node.input[0] for node in convolutions])


class _Recorder(Graph):
    """A graph that keeps the images that it gets."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.images: list[np.ndarray] = []

    def __call__(self, images: Tensor) -> list[Tensor]:
        """Return the outputs."""
        self.images.append(images.numpy())
        return super().__call__(images)


def _inputs(cfg: Config, path: Path, files: Sequence[Path]) -> Iterator[np.ndarray]:
    """Yield what a graph is given for images, one or several of each where windows slide over it."""
    model, recorder = init_model(cfg, path, 'cpu'), _Recorder(path)
    exported_class(model).install(model, recorder, Input.of(model, cfg))
    for file in _tracked(files, 'calibrating'):
        predict_batch(model, [model.preparation.of_file(file)], logits=False)
        yield from recorder.images
        recorder.images.clear()


def _agreement(cfg: Config, one: Path, other: Path, files: Sequence[Path]) -> float:
    """Return the share of labels that two graphs have in common, of the mean image."""
    models = [init_model(cfg, path, 'cpu') for path in (one, other)]
    equal = []
    for file in _tracked(files, 'comparing'):
        inputs = models[0].preparation.of_file(file)
        first, second = (predict_batch(model, [copy.deepcopy(inputs)], logits=False)[0] for model in models)
        equal.append(equal_labels(models[0].task, first, second))
    return mean_share(equal)


def _tracked(files: Sequence[Path], what: str) -> Iterable[Path]:
    """Show a bar where somebody looks."""
    terminal = console(stderr=True)
    return track(files, what, console=terminal, disable=not terminal.is_terminal)
