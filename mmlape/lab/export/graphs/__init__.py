"""Complete models as ONNX graphs: what is exported of a model of each task, and a model that runs such a graph.

A graph takes ``image``, one RGB image (1, 3, H, W) of float32 in 0..255 (grey: one channel) at one
size, and holds the normalisation. Padding, sliding windows and the resizing to the original image
stay outside.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TypeAlias

import numpy as np
from mmengine.config import Config
from torch import Tensor, nn

from mmlape.errors import CheckpointError, ExportError, listed
from mmlape.lab.export.graphs.session import SUFFIX, Graph, Input, Size
from mmlape.lab.training.frozen.shared import SharedPart

MODULES = {'mmseg': 'segmentor', 'mmdet': 'detector', 'mmpretrain': 'classifier'}
"""The module with the ``EXPORTED`` classes of the models of a package."""
Outputs: TypeAlias = Callable[[Tensor], Sequence[Tensor]]
"""Returns the outputs of an exported model for what its network takes, (B, C, h, w)."""

CHUNK = 2**22
"""How many values are compared at once: the logits of 150 classes at 1024 x 1024 would take 4 GB more."""


def largest_difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """Return the largest absolute difference of two lists of arrays; infinity if their shapes or values do not fit."""
    largest = 0.0
    for one, other in zip(ours, theirs, strict=True):
        if one.shape != other.shape:
            return np.inf
        one, other = one.ravel(), other.ravel()
        for start in range(0, len(one), CHUNK):
            part = slice(start, start + CHUNK)
            apart = np.abs(one[part].astype(np.float64) - other[part]).max()
            largest = max(largest, float(apart)) if np.isfinite(apart) else np.inf
    return largest


class Exported(nn.Module, ABC):
    """A trained model as it is exported, and how one of its task runs by a graph.

    It makes tensors of images, with shapes that depend on the images' size alone.

    Args:
        model: As a configuration builds it.
        given: How it normalises images.

    Attributes:
        task: Of the models.
        outputs: Names of what ``forward`` returns.
    """

    task: str
    outputs: tuple[str, ...]

    def __init__(self, model: nn.Module, given: Input) -> None:
        super().__init__()
        self.model = model
        self.given = given

    @abstractmethod
    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of images, (B, C, H, W), RGB in 0..255; the first axis of each is B."""

    @abstractmethod
    def predicted(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return what the package of the model predicts on such images by itself, as the outputs."""

    def difference(self, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
        """Return how far two sets of outputs are apart; infinity if they cannot be compared."""
        return largest_difference(ours, theirs)

    def difference_of_predicted(self, predicted: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> float:
        """Return how far outputs are from those of `predicted`."""
        return self.difference(predicted, outputs)

    def is_empty(self, outputs: Sequence[np.ndarray]) -> bool:
        """Return whether outputs hold next to nothing to compare: of a detector, no two objects of an image."""
        return False

    @staticmethod
    @abstractmethod
    def fits(model: nn.Module) -> bool:
        """Return whether a model is of this task."""

    @staticmethod
    def check(model: nn.Module) -> None:
        """Raise ExportError if a model of this task cannot be exported; the message says why."""

    @staticmethod
    @abstractmethod
    def declared(model: nn.Module, graph: Graph) -> dict[str, tuple[str, tuple]]:
        """Return the type and the shape for one image of each output that a graph of a model has.

        See `Graph.require`.
        """

    @staticmethod
    @abstractmethod
    def install(model: nn.Module, outputs: Outputs) -> None:
        """Make a model predict by the outputs of a graph instead of its own network.

        All around the network stays.
        """


class Together(nn.Module):
    """Several models over one frozen part, which runs once; names of outputs begin with those of the models.

    Args:
        named: The models by name.
    """

    def __init__(self, named: Mapping[str, Exported]) -> None:
        super().__init__()
        self.named = dict(named)
        self.parts = nn.ModuleList(named.values())
        self.given = next(iter(named.values())).given
        self.outputs = tuple(f'{name}/{output}' for name, part in named.items() for output in part.outputs)
        self.shared = SharedPart({name: part.model for name, part in named.items()})

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of all models."""
        with self.shared.running_once():
            return tuple(output for part in self.parts for output in part(images))


def exported_class(model: nn.Module) -> type[Exported]:
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


def exported_model(model: nn.Module, cfg: Config, labels: bool = False) -> Exported:
    """Return the model of a configuration as it is exported; ``labels`` ends a segmentor in the class of each pixel.

    Raises:
        ExportError: As `exported_class`; or ``labels`` is for another task.
    """
    exported = exported_class(model)
    if labels and exported.task != 'segmentation':
        raise ExportError(f'--labels is for segmentors, and this is a model for {exported.task}')
    return exported(model, Input.of(model, cfg), **(dict(labels=True) if labels else {})).eval()


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
    exported.install(model, partial(graph.of_batch, given=given))


__all__ = ['SUFFIX', 'Exported', 'Graph', 'Input', 'Size', 'Together', 'exported_model', 'install_graph']
