"""ONNX graphs written by torch's exporter at a fixed image size, and held to PyTorch's numbers by onnxruntime.

Deformable attention becomes gathers, without GridSample; position embeddings are resized to the one
size; windows and padding are constants.
"""

import contextlib
import io
import itertools
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import mmlape
from mmlape.errors import ExportError
from mmlape.files import atomic_path
from mmlape.lab.engine.graphs import ExportedModel, Graph, Size
from mmlape.lab.engine.graphs.base import largest_difference
from mmlape.lab.engine.graphs.operators import translations
from mmlape.lab.engine.graphs.session import PACKAGES, SUFFIX, require_onnx
from mmlape.lab.export.fusion import fuse_batch_norms
from mmlape.lab.extension import extensions
from mmlape.lab.runs.record import check_writable

if TYPE_CHECKING:
    import onnx

OPSET = 18
TOLERANCE = 1e-4


def export_graph(
    model: nn.Module,
    size: Size,
    out: str | Path,
    opset: int,
    tolerance: float,
    notes: dict[str, str],
) -> float:
    """Write the graph of a backbone or of an exported model with metadata, and compare it.

    Nothing is written if an output differs from PyTorch's by more than ``tolerance``.
    """
    require_onnx(*PACKAGES)
    backbone = getattr(model, 'backbone', model)
    if min(size) < getattr(backbone, 'patch_size', 1):
        raise ExportError(
            f'--size {size[0]} {size[1]}: a side is smaller than a patch of {backbone.patch_size} pixels'
        )
    out = Path(out)
    if out.is_dir():
        raise ExportError(f'{out} is a folder: name another file with --out')
    if out.suffix != SUFFIX:
        raise ExportError(f'--out {out}: the name of a graph ends with {SUFFIX}')
    check_writable(out.absolute().parent, '--out')
    with atomic_path(out) as partial:
        with fuse_batch_norms(model):
            _write(model, size, partial, opset, notes)
        return compare(model, partial, size, tolerance)


def _write(model: nn.Module, size: Size, path: Path, opset: int, notes: dict[str, str]) -> None:
    """Write the graph by torch's exporter, in one file, with metadata."""
    import onnx

    (image,) = _images(model, size, seed=0)
    named = model.outputs if isinstance(model, ExportedModel) else None
    names = named or [f'feature_{i}' for i in range(len(_outputs(model, image)))]
    try:
        # the fused attention kernels promise strides that their decomposition for ONNX does not
        # keep
        with _quiet(), contextlib.ExitStack() as stack, sdpa_kernel(SDPBackend.MATH):
            for one in extensions():
                stack.enter_context(one.exporting())
            torch.onnx.export(
                model, (image,), str(path), dynamo=True, opset_version=opset, external_data=False, verbose=False,
                input_names=['image'], output_names=list(names), custom_translation_table=translations(),
            )  # fmt: skip
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ExportError(
            f'torch cannot export this model with opset {opset}: {reason[0]}'
        ) from error
    graph = onnx.load(path)
    got = next(entry.version for entry in graph.opset_import if entry.domain in ('', 'ai.onnx'))
    if got != opset:
        raise ExportError(
            f'torch writes this model with opset {got}, not {opset}: pass --opset {got}'
        )
    _remove_provenance(graph)
    for key, value in {'mmlape': mmlape.__version__, **notes}.items():
        entry = graph.metadata_props.add()
        entry.key, entry.value = key, value
    onnx.checker.check_model(graph)
    onnx.save(graph, path)


def _remove_provenance(graph: 'onnx.ModelProto') -> None:
    """Remove what torch notes about the code that a graph is from: files of this machine, and its objects."""
    inner = graph.graph
    named = (inner.node, inner.initializer, inner.input, inner.output, inner.value_info)
    for part in (graph, inner, *itertools.chain(*named), *graph.functions):
        part.ClearField('metadata_props')
        part.ClearField('doc_string')
    for function in graph.functions:
        for part in (*function.node, *function.value_info):
            part.ClearField('metadata_props')
            part.ClearField('doc_string')


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's progress and its advice to developers off the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter('ignore')
            yield
    finally:
        logging.disable(before)


def _images(model: nn.Module, size: Size, seed: int, count: int = 1) -> list[Tensor]:
    """Return random images as a model takes them, (1, C, H, W)."""
    generator = torch.Generator().manual_seed(seed)
    if not isinstance(model, ExportedModel):
        return [torch.randn(1, model.in_channels, *size, generator=generator) for _ in range(count)]
    channels = model.given.channels
    return [torch.rand(1, channels, *size, generator=generator) * 255 for _ in range(count)]


def _outputs(model: nn.Module, image: Tensor) -> list[Tensor]:
    """Return the outputs in one list: a distilled backbone returns pairs."""
    with torch.no_grad():
        return [
            leaf for out in model(image) for leaf in (out if isinstance(out, tuple) else (out,))
        ]


def compare(
    model: nn.Module, path: str | Path, size: Size, tolerance: float, images: int = 2
) -> float:
    """Measure the largest absolute difference between a graph in onnxruntime and a model, on images new to both.

    Raises:
        ExportError: If it exceeds ``tolerance``, or a number is not finite.
    """
    graph, largest = Graph(path), 0.0
    difference = model.difference if isinstance(model, ExportedModel) else largest_difference
    for image in _images(model, size, seed=1, count=images):
        ours, theirs = [value.numpy() for value in _outputs(model, image)], graph.run(image)
        apart = difference(ours, theirs)
        _check(apart, tolerance, 'PyTorch')
        if isinstance(model, ExportedModel):
            with torch.no_grad():
                predicted = [value.numpy() for value in model.predicted(image)]
            name = f'what {type(model.model).__name__} predicts'
            _check(model.difference_of_predicted(predicted, theirs), tolerance, name)
        largest = max(largest, apart)
    return largest


def _check(difference: float, tolerance: float, what: str) -> None:
    if not difference <= tolerance:  # also if it is NaN
        raise ExportError(
            f'the exported graph differs from {what} by {difference:.3g}, more than {tolerance:g}: '
            'nothing is written. Large activations need a larger --tolerance; else this is a '
            'fault of the exporter'
        )
