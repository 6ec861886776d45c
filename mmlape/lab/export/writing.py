"""ONNX graphs written by torch's exporter for images of one size, and held to PyTorch's numbers by onnxruntime.

An adapter's deformable attention becomes gathers, without GridSample; position embeddings are resized to the one
size; windows and padding are constants.
"""

import contextlib
import io
import itertools
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from mmengine.config import Config
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import mmlape
from mmlape.console.log import log
from mmlape.errors import ExportError
from mmlape.files import naming, sha256
from mmlape.lab.export.graphs import Exported, Graph, Size, Together, largest_difference
from mmlape.lab.export.graphs.operators import translations
from mmlape.lab.export.graphs.session import PACKAGES, SUFFIX, data_file, require_onnx
from mmlape.lab.extension import extensions
from mmlape.lab.runs.record import check_writable

if TYPE_CHECKING:
    import onnx

OPSET = 18
TOLERANCE = 1e-4
"""How far a graph may be from PyTorch."""
LARGEST_FILE = 2 * 10**9
"""Bytes of values above which they go into a file of their own: a graph is one message of protobuf, at most 2 GiB."""
ANY_BATCH = (1, 3)
"""Numbers of images with which a graph for any number is compared."""


@dataclass(frozen=True)
class Form:
    """What a graph is to be."""

    size: Size  # of the images
    batch: int | None = 1  # how many images at once; None for any number
    tolerance: float = TOLERANCE  # the largest difference

    @property
    def images(self) -> str:
        """How many images of which size, for a message."""
        count = {None: 'any number of images', 1: 'one image'}.get(self.batch, f'{self.batch} images')
        return f'{count} of {self.size[0]} x {self.size[1]}'


def names_of(cfg: Config, checkpoint: str | None) -> dict[str, str]:
    """Return what a graph says of its files: their names and no folders, as it is given to others."""
    notes = dict(config=Path(str(cfg.filename)).name, checkpoint=Path(str(checkpoint)).name)
    if checkpoint and Path(checkpoint).is_file():
        notes['checkpoint_sha256'] = sha256(checkpoint)
    return notes


def export_graph(model: nn.Module, form: Form, out: str | Path, notes: dict[str, str] | None = None) -> float:
    """Write the graph of a backbone or of exported models with metadata, and return how far it is from PyTorch.

    Nothing is written if an output differs from PyTorch's by more than the form's tolerance.

    Raises:
        ExportError: That; or torch cannot export the model, or ``out`` is no name of a graph.
    """
    require_onnx(*PACKAGES)
    models: Mapping[str, nn.Module] = model.named if isinstance(model, Together) else {'': model}
    first = next(iter(models.values()))
    backbone = first.model.backbone if isinstance(first, Exported) else first
    if min(form.size) < getattr(backbone, 'patch_size', 1):
        raise ExportError(
            f'--size {form.size[0]} {form.size[1]}: a side is smaller than a patch of {backbone.patch_size} pixels'
        )
    out = check_out(out)
    notes = dict(notes or {}, size=f'{form.size[0]} {form.size[1]}', batch=str(form.batch or 'dynamic'))
    with tempfile.TemporaryDirectory(dir=out.absolute().parent, prefix='.export-') as folder, naming(out):
        written = Path(folder) / out.name
        _write(model, form, written, notes)
        difference = max(compare(one, written, form, name) for name, one in models.items())
        put_in_place(written, out)
    return difference


def check_out(out: str | Path) -> Path:
    """Return where a graph is to be; ExportError if it is no name of one, or cannot be written."""
    out = Path(out)
    if out.is_dir():
        raise ExportError(f'{out} is a folder: name another file with --out')
    if out.suffix != SUFFIX:
        raise ExportError(f'--out {out}: the name of a graph ends with {SUFFIX}')
    check_writable(out.absolute().parent, '--out')
    return out


def size_on_disk(graph: Path) -> int:
    """Return the bytes of a graph and of its values beside it."""
    return sum(file.stat().st_size for file in (graph, data_file(graph)) if file.is_file())


def put_in_place(written: Path, out: Path) -> None:
    """Move a graph and its values.

    An old graph goes first: killed in between, there is none rather than one with other values.
    """
    if data_file(written).is_file():
        out.unlink(missing_ok=True)
        os.replace(data_file(written), data_file(out))
        os.replace(written, out)
    else:
        os.replace(written, out)
        data_file(out).unlink(missing_ok=True)


def _write(model: nn.Module, form: Form, path: Path, notes: dict[str, str]) -> None:
    """Write the graph by torch's exporter, with metadata."""
    import onnx

    count = form.batch or max(ANY_BATCH)
    images = _images(model, form.size, seed=0, count=count)
    outputs = _outputs(model, images)
    names = [*getattr(model, 'outputs', [f'feature_{i}' for i in range(len(outputs))])]
    shapes = None if form.batch else ({0: torch.export.Dim('batch', min=1, max=4096)},)
    try:
        # the fused attention kernels promise strides that their decomposition for ONNX does not
        # keep
        with silent(logging.ERROR), contextlib.ExitStack() as stack, sdpa_kernel(SDPBackend.MATH):
            # the exporter's advice to developers
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter('ignore')
            for one in extensions():
                stack.enter_context(one.exporting())
            torch.onnx.export(
                model, (images,), str(path), dynamo=True, opset_version=OPSET, external_data=True, verbose=False,
                input_names=['image'], output_names=names, custom_translation_table=translations(),
                dynamic_shapes=shapes,
            )  # fmt: skip
    except OSError:
        raise  # of the disk
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        of_any = '' if form.batch else ' for any number of images'
        raise ExportError(f'torch cannot export this model{of_any}: {reason[0]}') from error
    graph = onnx.load(path)
    _remove_provenance(graph)
    for port, value in (*zip(graph.graph.input, [images]), *zip(graph.graph.output, outputs)):
        # torch knows the shapes better than its exporter
        kind, shape = port.type.tensor_type.elem_type, [form.batch or 'batch', *value.shape[1:]]
        port.type.CopyFrom(onnx.helper.make_tensor_type_proto(kind, shape))
    for key, value in {'mmlape': mmlape.__version__, **notes}.items():
        entry = graph.metadata_props.add()
        entry.key, entry.value = key, value
    save(graph, path)
    onnx.checker.check_model(path)


def save(graph: 'onnx.ModelProto', path: Path) -> None:
    """Write a graph, with large values in a file of their own."""
    import onnx

    data_file(path).unlink(missing_ok=True)
    values = sum(len(tensor.raw_data) for tensor in graph.graph.initializer)
    if values < LARGEST_FILE:
        onnx.save(graph, path)
    else:
        onnx.save(graph, path, save_as_external_data=True, location=data_file(path).name)


def _remove_provenance(graph: 'onnx.ModelProto') -> None:
    """Remove what torch notes about the code that a graph is from: files of this machine, and its objects."""
    inner = graph.graph
    named = [inner.node, inner.initializer, inner.input, inner.output, inner.value_info, graph.functions]
    named += [part for function in graph.functions for part in (function.node, function.value_info)]
    for part in (graph, inner, *itertools.chain(*named)):
        part.ClearField('metadata_props')
        part.ClearField('doc_string')


@contextlib.contextmanager
def silent(level: int) -> Iterator[None]:
    """Keep what other packages log up to a level, or print, off the terminal."""
    before = logging.root.manager.disable
    logging.disable(max(before, level))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _images(model: nn.Module, size: Size, seed: int, count: int) -> Tensor:
    """Return random images as a model takes them, (B, C, H, W)."""
    generator = torch.Generator().manual_seed(seed)
    if not isinstance(model, Exported | Together):
        return torch.randn(count, model.in_channels, *size, generator=generator)
    return torch.rand(count, model.given.channels, *size, generator=generator) * 255


def _outputs(model: nn.Module, images: Tensor) -> list[Tensor]:
    """Return the outputs in one list: a distilled backbone returns pairs."""
    with torch.no_grad():
        return [leaf for out in model(images) for leaf in (out if isinstance(out, tuple) else (out,))]


def compare(model: nn.Module, path: str | Path, form: Form, name: str = '') -> float:
    """Measure the largest absolute difference between a graph in onnxruntime and a model, on images new to both.

    ``name`` is that of the model, where the graph has several.

    Raises:
        ExportError: If it exceeds the form's tolerance, or a number is not finite.
    """
    graph, largest = Graph(path, name), 0.0
    is_empty = isinstance(model, Exported)
    measure = model.difference if isinstance(model, Exported) else largest_difference
    counts = ANY_BATCH if form.batch is None else (form.batch,) * (2 if form.batch == 1 else 1)
    for seed, count in enumerate(counts, 1):
        images = _images(model, form.size, seed, count)
        ours = [value.numpy() for value in _outputs(model, images)]
        theirs = graph.run(images)
        apart = measure(ours, theirs)
        _check(apart, form.tolerance, 'PyTorch')
        if isinstance(model, Exported):
            is_empty &= model.is_empty(theirs)
            with torch.no_grad():
                predicted = [value.numpy() for value in model.predicted(images)]
            what = f'what {type(model.model).__name__} predicts'
            _check(model.difference_of_predicted(predicted, theirs), form.tolerance, what)
        largest = max(largest, apart)
    if is_empty:
        called = f'model {name}'.strip()
        log(
            f'the {called} finds no two objects in any of the random images on which the graph was '
            'compared with PyTorch: --check DIR compares them on images of yours',
            logging.WARNING,
        )
    return largest


def _check(difference: float, tolerance: float, what: str) -> None:
    if not difference <= tolerance:  # also if it is NaN
        raise ExportError(
            f'the exported graph differs from {what} by {difference:.3g}, more than {tolerance:g}: '
            'nothing is written. Large activations need a larger --tolerance; else this is a '
            'fault of the exporter'
        )
