"""Weights of a complete model, as an extension loads them, else exactly."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from mmlape.lab.extension import extensions, first_answer
from mmlape.weights.load_report import LoadReport
from mmlape.weights.loading import load_exactly
from mmlape.weights.reading import read_checkpoint


def load_model(
    model: nn.Module,
    path: str,
    *,
    strict: bool = True,
    resize: bool = False,
    fresh: Sequence[str] = (),
    content: Mapping[str, Any] | None = None,
) -> LoadReport:
    """Load a file into a complete model, see `mmlape.lab.extension.Extension.load_model`.

    Raises:
        CheckpointError: The file cannot be read, or does not fit.
    """
    stored = read_checkpoint(path) if content is None else content
    report = first_answer(lambda one: one.load_model(model, path, stored, strict=strict, resize=resize, fresh=fresh))
    return report or load_exactly(model, path, strict, fresh, stored)


def recorded_of(model: nn.Module) -> dict[str, Any]:
    """Return what checkpoints of a model record in ``meta`` beside MMEngine's entries."""
    recorded: dict[str, Any] = {}
    for one in extensions():
        recorded |= one.metadata(model)
    return recorded


def check_initialised(model: nn.Module) -> None:
    """Log warnings about a new model whose initial weights are loaded."""
    for one in extensions():
        one.check_initialised(model)


def position_parameters(model: nn.Module) -> set[str]:
    """Return the names of the parameters of position encodings."""
    return set().union(*(one.position_parameters(model) for one in extensions()))
