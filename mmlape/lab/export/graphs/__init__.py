"""Complete models as ONNX graphs: what is exported of a model of each task, and a model that runs such a graph.

A graph takes ``image``, one RGB image (1, 3, H, W) of float32 in 0..255 (grey: one channel) at one
size, and holds the normalisation. Padding, sliding windows and the resizing to the original image
stay outside.
"""

import json
from collections.abc import Sequence
from importlib import import_module

from mmengine.config import Config
from torch import nn

from mmlape.errors import CheckpointError, ExportError, listed
from mmlape.lab.export.graphs.base import Exported, ExportedModel, ExportedTogether
from mmlape.lab.export.graphs.session import SUFFIX, Graph, Input, Size

MODULES = {'mmseg': 'segmentor', 'mmdet': 'detector', 'mmpretrain': 'classifier'}
"""The module with the ``EXPORTED`` classes of the models of a package."""


def exported_class(model: nn.Module) -> type[ExportedModel]:
    """Return the class that exports a model.

    Raises:
        ExportError: There is none; the message says why.
    """
    packages = [base.__module__.partition('.')[0] for base in type(model).__mro__]
    for module in (MODULES[package] for package in packages if package in MODULES):
        for exported in import_module(f'{__name__}.{module}').EXPORTED:
            if exported.fits(model):
                exported.check(model)
                return exported
    raise ExportError(
        f'{type(model).__name__} cannot be exported: segmentors, Mask R-CNN, Faster R-CNN, '
        'detectors with `best_objects` and classifiers can; --backbone exports the backbone of any model'
    )


def install_graph(model: nn.Module, graph: Graph, cfg: Config, classes: Sequence[str] | None) -> None:
    """Make the model of a configuration predict by a graph of it.

    Args:
        model: Its own weights are not used any more.
        graph: Of such a model.
        cfg: Its configuration.
        classes: Names that the graph's must be equal to, if it has any; None for any.

    Raises:
        CheckpointError: The graph is of another task, of a backbone, or of other classes.
    """
    exported = exported_class(model)
    if graph.task not in (None, exported.task):
        raise CheckpointError(
            f'{graph.path} is the graph of a model for {graph.task}, and the config has a model for {exported.task}'
        )
    if 'classes' not in graph.notes:  # another tool has written it
        graph.notes['classes'] = json.dumps(list(classes or ()))
    if classes is not None and graph.classes != list(classes):
        raise CheckpointError(
            f'{graph.path} has {len(graph.classes)} classes, {listed(graph.classes, 3)}, and the test '
            f'set {len(classes)}, {listed(list(classes), 3)}: export with the config of these data'
        )
    given = Input.of(model, cfg)
    graph.require(given.channels, exported.declared(model, graph))
    exported.install(model, graph, given)


__all__ = [
    'SUFFIX',
    'Exported',
    'ExportedModel',
    'ExportedTogether',
    'Graph',
    'Input',
    'Size',
    'exported_class',
    'install_graph',
]
