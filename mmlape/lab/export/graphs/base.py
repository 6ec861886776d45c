"""The contract of exported models: what a task gives to the exporter, and how a model runs its graph."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from torch import Tensor, nn

from mmlape.lab.export.graphs.session import Graph, Input
from mmlape.lab.training.frozen.shared import SharedPart

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
    """What is exported: from images to tensors, with shapes that depend on the images' size alone.

    Args:
        model: As a configuration builds it.
        given: How it normalises images.

    Attributes:
        outputs: Names of what ``forward`` returns.
    """

    outputs: tuple[str, ...]

    def __init__(self, model: nn.Module, given: Input) -> None:
        super().__init__()
        self.model = model
        self.given = given

    @property
    def backbone(self) -> nn.Module:
        """The backbone of the model."""
        return self.model.backbone

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


class ExportedModel(Exported):
    """A trained model as it is exported, and how one of its task runs by a graph."""

    task: str

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
    def install(model: nn.Module, graph: Graph, given: Input) -> None:
        """Make a model predict by a graph instead of its own network.

        All around the network stays.
        """


class ExportedTogether(Exported):
    """Several models over one frozen part, which runs once; names of outputs begin with those of the models.

    Args:
        parts: The models by name.
    """

    def __init__(self, parts: Mapping[str, ExportedModel]) -> None:
        first = next(iter(parts.values()))
        super().__init__(first.model, first.given)
        self.parts = nn.ModuleList(parts.values())
        self.outputs = tuple(f'{name}/{output}' for name, part in parts.items() for output in part.outputs)
        self.shared = SharedPart({name: part.model for name, part in parts.items()})

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of all models."""
        with self.shared.running_once():
            return tuple(output for part in self.parts for output in part(images))

    def predicted(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return what the packages predict, each model alone."""
        return tuple(output for part in self.parts for output in part.predicted(images))

    def difference(self, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
        """Return the largest difference of a model's outputs."""
        return max(part.difference(*values) for part, *values in self._each(ours, theirs))

    def difference_of_predicted(self, predicted: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> float:
        """Return the largest difference of a model's outputs."""
        return max(part.difference_of_predicted(*values) for part, *values in self._each(predicted, outputs))

    def is_empty(self, outputs: Sequence[np.ndarray]) -> bool:
        """Return whether a model has next to nothing to compare."""
        return any(part.is_empty(values) for part, values in self._each(outputs))

    def _each(self, *outputs: Sequence[np.ndarray]) -> Iterator[tuple]:
        """Yield each model with what is its own of outputs."""
        start = 0
        for part in self.parts:
            stop = start + len(part.outputs)
            yield part, *(values[start:stop] for values in outputs)
            start = stop
