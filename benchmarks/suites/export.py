"""Complete models as ONNX graphs in onnxruntime, of each precision, beside PyTorch, eager and compiled, on the CPU."""

import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from benchmarks.comparison import Comparison, Settings, Side
from benchmarks.suites.models import MINI, RECIPES

MANY = 4


def comparisons(settings: Settings) -> list[Comparison]:
    """Return two per configuration, at the smallest size; none on a GPU, where the graphs are not run."""
    if settings.device != 'cpu' or settings.arch in ('deit-base', 'deit-large'):
        return []
    size = min(settings.sizes)
    configs = MINI if settings.arch == 'mini' else [path.format(arch=settings.arch) for path in RECIPES]
    counts = (1, settings.batch or MANY)
    return [_comparison(config, count, size) for config in configs for count in dict.fromkeys(counts)]


def _comparison(config: str, count: int, size: int) -> Comparison:
    return Comparison(
        suite='export',
        case=config.rpartition('/')[2].removesuffix('.py').split('_4xb')[0],
        work='inference',
        shape=f'{count} x 3 x {size} x {size}',
        dtype='fp32',
        sides=[
            Side('PyTorch', lambda: _torch(config, count, size)),
            Side('compiled', lambda: _torch(config, count, size, compiled=True)),
            Side('onnxruntime', lambda: _graph(config, count, size)),
            Side('fp16', lambda: _graph(config, count, size, 'fp16')),
            Side('int8', lambda: _graph(config, count, size, 'int8')),
        ],
        items=count,
        counted=False,
        note='normalisation and suppression of boxes included, random weights',
    )


@cache
def _exported(config: str):
    """Build the model as it is exported, with random weights."""
    from mmlape.lab.engine.config import load_config
    from mmlape.lab.engine.graphs import Input, exported_class
    from mmlape.lab.engine.optim import build_model

    torch.manual_seed(0)
    cfg = load_config(f'mmlape::{config}')
    cfg.model.backbone.init_cfg = None
    model = build_model(cfg).eval()
    return exported_class(model)(model, Input.of(model, cfg)).eval()


def _images(count: int, size: int) -> torch.Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(0)) * 255


def _torch(config: str, count: int, size: int, compiled: bool = False) -> Callable[[], object]:
    model, images = _exported(config), _images(count, size)
    if compiled:
        model = torch.compile(model)

    def infer() -> object:
        with torch.inference_mode():
            return model(images)

    return infer


@cache
def _folder() -> tempfile.TemporaryDirectory:
    """Return the folder of the graphs, which goes when the process ends."""
    return tempfile.TemporaryDirectory()


@cache
def _written(config: str, count: int, size: int) -> Path:
    from mmlape.lab.engine.config import load_config
    from mmlape.lab.export.writing import Form, export_graph

    form = Form((size, size), count, tolerance=float('inf'))
    out = Path(_folder().name) / f'{Path(config).stem}-{count}-{size}.onnx'
    notes = dict(classes=json.dumps(list(load_config(f'mmlape::{config}').classes)))
    return export_graph(_exported(config), form, out, notes).path


def _graph(config: str, count: int, size: int, precision: str = 'fp32') -> Callable[[], object]:
    import onnx

    from mmlape.lab.engine.graphs import Graph
    from mmlape.lab.export.half import halve
    from mmlape.lab.export.integer import quantise
    from mmlape.lab.export.writing import save

    images, path = _images(count, size), _written(config, count, size)
    made = path.with_name(f'{precision}.onnx')
    if precision == 'int8':
        quantise(path, made, [images.numpy()])
    elif precision == 'fp16':
        model = onnx.load(path)
        halve(model)
        save(model, made)
    graph = Graph(path if precision == 'fp32' else made)
    return lambda: graph(images)
