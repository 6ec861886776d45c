"""The contract of exported models: what a task gives to the exporter, and how a model runs its graph."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn

from mmlape.lab.export.graphs.session import Graph, Input

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


class ExportedModel(nn.Module, ABC):
    """A trained model from images to tensors, with shapes that depend on the images' size alone.

    Args:
        model: As a configuration builds it.
        given: How it normalises images.

    Attributes:
        outputs: Names of what ``forward`` returns.
    """

    task: str
    outputs: tuple[str, ...]

    def __init__(self, model: nn.Module, given: Input) -> None:
        super().__init__()
        self.model = model
        self.given = given

    @property
    def backbone(self) -> nn.Module:
        """The backbone of the model."""
        return self.model.backbone

    @staticmethod
    @abstractmethod
    def fits(model: nn.Module) -> bool:
        """Return whether a model is of this task."""

    @staticmethod
    def check(model: nn.Module) -> None:
        """Raise ExportError if a model of this task cannot be exported; the message says why."""

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
