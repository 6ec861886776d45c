"""Export of a backbone to ONNX at a fixed image size, held to PyTorch's numbers by onnxruntime.

A graph has one input, ``image`` (1, C, H, W): float32, normalised as the configuration's data preprocessor does it.
Its outputs, ``feature_0`` and so on, are what the backbone returns. Deformable attention becomes GridSample; position
embeddings are resized to the one size; windows and padding are constants.

A complete model needs more than that. A segmentor's decode head is made of the same operations, but sliding windows
and the resizing to the image's size stand around the network, in its ``predict``. A detector ends in proposals,
RoIAlign and non-maximum suppression, whose sizes depend on the image: mmdeploy rewrites those for ONNX.
"""

import contextlib
import copy
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import mmlape
from mmlape.checkpoint import load_backbone
from mmlape.errors import CheckpointError, ConfigError, ExportError, StackError
from mmlape.files import atomic_path
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.grid import Grid
from mmlape.models.layers.fusion import fuse_batch_norms

OPSET = 18
TOLERANCE = 1e-4


def build_backbone(cfg: Config, checkpoint: str | None) -> BaseBackbone:
    """Build the backbone of a configuration's model, with the weights of a checkpoint of either or the initial ones.

    Raises:
        ConfigError: If it is no backbone of this package.
        CheckpointError: If the checkpoint does not fit, or leaves parts of the backbone at their initial values.
    """
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    backbone_cfg = (cfg.get('model') or {}).get('backbone')
    backbone = MODELS.build(dict(backbone_cfg, init_cfg=None)) if backbone_cfg else None
    if not isinstance(backbone, BaseBackbone):
        raise ConfigError(f'{cfg.filename}: its model has no backbone of mmlape, but {type(backbone).__name__}')
    if checkpoint is not None:
        report = load_backbone(backbone, checkpoint)
        if report.new:
            raise CheckpointError(
                f'checkpoint {checkpoint}: lacks {len(report.new)} tensors of the backbone, such as '
                f'{report.new[0]}: give the checkpoint of a trained model'
            )
    return backbone


def export_backbone(
    backbone: nn.Module,
    size: Grid,
    out: str | Path,
    opset: int = OPSET,
    tolerance: float = TOLERANCE,
    notes: dict[str, str] | None = None,
) -> float:
    """Write the graph with notes in its metadata, unless its numbers differ from PyTorch's by more than ``tolerance``.

    Return the largest absolute difference of an output on random images of one size (height, width).

    Raises:
        ExportError: If torch cannot export it, a difference exceeds ``tolerance``, or ``out`` is a folder; nothing is
            written then.
        StackError: If a package is missing.
    """
    missing = [name for name in ('onnx', 'onnxscript', 'onnxruntime') if importlib.util.find_spec(name) is None]
    if missing:
        raise StackError(f'the export to ONNX needs {", ".join(missing)}: pip install {" ".join(missing)}')
    model = copy.deepcopy(backbone).cpu().float().eval()
    if min(size) < model.patch_size:
        raise ExportError(f'--size {size[0]} {size[1]}: a side is smaller than a patch of {model.patch_size} pixels')
    out = Path(out)
    if out.is_dir():
        raise ExportError(f'--out {out} is a folder: name the file to write')
    with atomic_path(out) as partial:
        with fuse_batch_norms(model):
            _write(model, size, partial, opset, notes or {})
        return compare(model, partial, size, tolerance)


def _write(model: nn.Module, size: Grid, path: Path, opset: int, notes: dict[str, str]) -> None:
    """Write the graph by torch's exporter, in one file, with metadata."""
    import onnx

    image = torch.randn(1, model.in_channels, *size, generator=torch.Generator().manual_seed(0))
    count = len(_outputs(model, image))
    try:
        # the fused attention kernels promise strides that their decomposition for ONNX does not keep
        with _quiet(), sdpa_kernel(SDPBackend.MATH):
            torch.onnx.export(
                model, (image,), str(path), dynamo=True, opset_version=opset, external_data=False, verbose=False,
                input_names=['image'], output_names=[f'feature_{i}' for i in range(count)],
            )  # fmt: skip
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ExportError(f'torch cannot export this backbone with opset {opset}: {reason[0]}') from error
    graph = onnx.load(path)
    got = next(entry.version for entry in graph.opset_import if entry.domain in ('', 'ai.onnx'))
    if got != opset:
        raise ExportError(f'torch writes this backbone with opset {got}, not {opset}: pass --opset {got}')
    for key, value in {'mmlape': mmlape.__version__, **notes}.items():
        entry = graph.metadata_props.add()
        entry.key, entry.value = key, value
    onnx.checker.check_model(graph)
    onnx.save(graph, path)


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


def _outputs(model: nn.Module, image: Tensor) -> list[Tensor]:
    """Return the outputs in one list: a distilled backbone returns pairs."""
    with torch.no_grad():
        return [leaf for out in model(image) for leaf in (out if isinstance(out, tuple) else (out,))]


def compare(model: nn.Module, path: str | Path, size: Grid, tolerance: float, images: int = 2) -> float:
    """Measure the largest absolute difference between a graph in onnxruntime and a backbone, on images new to both.

    Raises:
        ExportError: If it exceeds ``tolerance``, or a number is not finite.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=['CPUExecutionProvider'])
    generator = torch.Generator().manual_seed(1)
    largest = 0.0
    for _ in range(images):
        image = torch.randn(1, model.in_channels, *size, generator=generator)
        theirs = session.run(None, {session.get_inputs()[0].name: image.numpy()})
        for ours, other in zip(_outputs(model, image), theirs, strict=True):
            difference = np.abs(ours.numpy() - other).max() if ours.shape == other.shape else np.inf
            largest = max(largest, float(difference)) if np.isfinite(difference) else np.inf
    if not largest <= tolerance:
        raise ExportError(
            f'the exported graph differs from PyTorch by {largest:.3g}, more than {tolerance:g}: nothing is written. '
            'Large activations need a larger --tolerance; else this is a fault of the exporter'
        )
    return largest
