"""Complete models as ONNX graphs in onnxruntime beside PyTorch: the same image, the same numbers, on the CPU."""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from benchmarks.comparison import Comparison, Settings, Side
from benchmarks.suites.models import MINI, RECIPES


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per configuration, at the smallest size; none on a GPU, where the graphs are not run."""
    if settings.device != 'cpu' or settings.arch in ('deit-base', 'deit-large'):
        return []
    size = min(settings.sizes)
    configs = MINI if settings.arch == 'mini' else [path.format(arch=settings.arch) for path in RECIPES]
    return [_comparison(config, size) for config in configs]


def _comparison(config: str, size: int) -> Comparison:
    return Comparison(
        suite='export',
        case=config.rpartition('/')[2].removesuffix('.py').split('_4xb')[0],
        work='inference',
        shape=f'1 x 3 x {size} x {size}',
        dtype='fp32',
        sides=[
            Side('PyTorch', lambda: _torch(config, size)),
            Side('onnxruntime', lambda: _graph(config, size)),
        ],
        items=1,
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


def _image(size: int) -> torch.Tensor:
    return torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0)) * 255


def _torch(config: str, size: int) -> Callable[[], object]:
    model, image = _exported(config), _image(size)

    def infer() -> object:
        with torch.inference_mode():
            return model(image)

    return infer


def _graph(config: str, size: int) -> Callable[[], object]:
    from mmlape.lab.engine.graphs import Graph
    from mmlape.lab.export.writing import OPSET, export_graph

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'model.onnx'
        export_graph(_exported(config), (size, size), path, OPSET, tolerance=float('inf'), notes={})
        graph = Graph(path)
    image = _image(size)
    return lambda: graph(image)
