"""Export to ONNX at a fixed image size, held to PyTorch's numbers by onnxruntime.

A complete model's graph has one input, ``image``, RGB in 0..255, and holds the normalisation; `mmlape.engine.graphs`
says what it returns. A backbone's graph takes an image that is normalised as the configuration's data preprocessor
does it, and returns ``feature_0`` and so on. Deformable attention becomes gathers, without GridSample; position
embeddings are resized to the one size; windows and padding are constants.
"""

import contextlib
import copy
import io
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import mmlape
from mmlape.analysis.inference import init_model
from mmlape.checkpoint import load_backbone
from mmlape.engine.graphs import ExportedModel, Input, kind_of
from mmlape.engine.graphs.operators import translations
from mmlape.engine.graphs.session import PACKAGES, Graph, require_onnx
from mmlape.errors import CheckpointError, ConfigError, ExportError
from mmlape.files import atomic_path
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.grid import Grid
from mmlape.models.layers.fusion import fuse_batch_norms

OPSET = 18
TOLERANCE = 1e-4


def export(
    cfg: Config,
    checkpoint: str | None,
    size: Grid,
    out: str | Path,
    *,
    backbone: bool = False,
    labels: bool = False,
    opset: int = OPSET,
    tolerance: float = TOLERANCE,
) -> float:
    """Write the graph of a configuration's model with the weights of a checkpoint, and compare it with PyTorch.

    Args:
        cfg: Of the model.
        checkpoint: Its weights; None for the initial ones.
        size: Height and width of the image.
        out: The file.
        backbone: Whether only the backbone is exported; see `export_backbone`.
        labels: See `export_model`.
        opset: Version of the operators.
        tolerance: The largest difference.

    Returns:
        The largest difference that was found.
    """
    notes = dict(config=str(cfg.filename), checkpoint=str(checkpoint))
    if not backbone:
        model = init_model(cfg, checkpoint, 'cpu')
        return export_model(model, model.cfg, model.classes, size, out, opset, tolerance, labels, notes)
    preprocessor = cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor') or {}
    used = ('mean', 'std', 'bgr_to_rgb', 'to_rgb')
    notes |= {key: str(preprocessor[key]) for key in used if key in preprocessor}
    return export_backbone(build_backbone(cfg, checkpoint), size, out, opset, tolerance, notes)


def image_size(cfg: Config) -> Grid:
    """Return the size of the images that a model sees: its sliding window, else the crop that it is trained on.

    Raises:
        ConfigError: The configuration has neither.
    """
    test_cfg = cfg.model.get('test_cfg') or {}
    window = test_cfg.get('crop_size') if test_cfg.get('mode') == 'slide' else None
    size = window or cfg.get('crop_size') or cfg.get('img_size')
    if size is None:
        raise ConfigError(f'{cfg.filename} has no crop_size or img_size: give --size HEIGHT WIDTH')
    return (size, size) if isinstance(size, int) else tuple(size)


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
    model = copy.deepcopy(backbone).cpu().float().eval()
    return _export(model, size, out, opset, tolerance, dict(notes or {}, size=f'{size[0]} {size[1]}'))


def export_model(
    model: nn.Module,
    cfg: Config,
    classes: Sequence[str],
    size: Grid,
    out: str | Path,
    opset: int = OPSET,
    tolerance: float = TOLERANCE,
    labels: bool = False,
    notes: dict[str, str] | None = None,
) -> float:
    """Write the graph of a complete model, as `export_backbone` writes that of a backbone.

    Args:
        model: With its weights, of ``cfg``.
        cfg: Its test pipeline says in which order images are loaded.
        classes: The name of each class, for the metadata.
        size: Height and width of the image.
        out: The file.
        opset: Version of the operators.
        tolerance: The largest absolute difference; that of boxes is in shares of the longest side.
        labels: Whether the graph of a segmentor ends in the class of each pixel.
        notes: More metadata.

    Raises:
        ExportError: As there, and if no such model can be exported, or ``labels`` is for another task.
        StackError: If a package is missing.
    """
    kind = kind_of(model)
    if labels and kind.task != 'segmentation':
        raise ExportError(f'--labels is for segmentors, and this is a model for {kind.task}')
    model = revert_sync_batchnorm(copy.deepcopy(model)).cpu().float().eval()
    given = Input.of(model, cfg)
    exported = kind(model, given, **(dict(labels=True) if labels else {})).eval()
    about = dict(task=kind.task, classes=json.dumps(list(classes)), size=f'{size[0]} {size[1]}', **given.notes())
    return _export(exported, size, out, opset, tolerance, dict(notes or {}, **about))


def _export(
    model: nn.Module, size: Grid, out: str | Path, opset: int, tolerance: float, notes: dict[str, str]
) -> float:
    require_onnx(*PACKAGES)
    backbone = getattr(model, 'backbone', model)
    if min(size) < getattr(backbone, 'patch_size', 1):
        raise ExportError(
            f'--size {size[0]} {size[1]}: a side is smaller than a patch of {backbone.patch_size} pixels'
        )
    out = Path(out)
    if out.is_dir():
        raise ExportError(f'--out {out} is a folder: name the file to write')
    with atomic_path(out) as partial:
        with fuse_batch_norms(model):
            _write(model, size, partial, opset, notes)
        return compare(model, partial, size, tolerance)


def _write(model: nn.Module, size: Grid, path: Path, opset: int, notes: dict[str, str]) -> None:
    """Write the graph by torch's exporter, in one file, with metadata."""
    import onnx

    (image,) = _images(model, size, seed=0)
    named = model.outputs if isinstance(model, ExportedModel) else None
    names = named or [f'feature_{i}' for i in range(len(_outputs(model, image)))]
    try:
        # the fused attention kernels promise strides that their decomposition for ONNX does not keep
        with _quiet(), sdpa_kernel(SDPBackend.MATH):
            torch.onnx.export(
                model, (image,), str(path), dynamo=True, opset_version=opset, external_data=False, verbose=False,
                input_names=['image'], output_names=list(names), custom_translation_table=translations(),
            )  # fmt: skip
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ExportError(f'torch cannot export this model with opset {opset}: {reason[0]}') from error
    graph = onnx.load(path)
    got = next(entry.version for entry in graph.opset_import if entry.domain in ('', 'ai.onnx'))
    if got != opset:
        raise ExportError(f'torch writes this model with opset {got}, not {opset}: pass --opset {got}')
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


def _images(model: nn.Module, size: Grid, seed: int, count: int = 1) -> list[Tensor]:
    """Return random images as a model takes them, (1, C, H, W)."""
    generator = torch.Generator().manual_seed(seed)
    if not isinstance(model, ExportedModel):
        return [torch.randn(1, model.in_channels, *size, generator=generator) for _ in range(count)]
    channels = model.given.channels
    return [torch.rand(1, channels, *size, generator=generator) * 255 for _ in range(count)]


def _outputs(model: nn.Module, image: Tensor) -> list[Tensor]:
    """Return the outputs in one list: a distilled backbone returns pairs."""
    with torch.no_grad():
        return [leaf for out in model(image) for leaf in (out if isinstance(out, tuple) else (out,))]


def compare(model: nn.Module, path: str | Path, size: Grid, tolerance: float, images: int = 2) -> float:
    """Measure the largest absolute difference between a graph in onnxruntime and a model, on images new to both.

    Raises:
        ExportError: If it exceeds ``tolerance``, or a number is not finite.
    """
    graph = Graph(path)
    difference = model.difference if isinstance(model, ExportedModel) else ExportedModel.difference
    largest = 0.0
    for image in _images(model, size, seed=1, count=images):
        ours = [value.numpy() for value in _outputs(model, image)]
        largest = max(largest, difference(ours, [value.numpy() for value in graph(image)]))
    if not largest <= tolerance:
        raise ExportError(
            f'the exported graph differs from PyTorch by {largest:.3g}, more than {tolerance:g}: nothing is written. '
            'Large activations need a larger --tolerance; else this is a fault of the exporter'
        )
    return largest
