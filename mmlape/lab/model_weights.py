"""Weights of a complete model, as an extension loads them, else exactly."""

import logging
from collections.abc import Sequence
from typing import Any

from torch import nn

from mmlape.checkpoint.exact_loading import LoadReport, load_exactly
from mmlape.checkpoint.opening import OpenedFile, open_file
from mmlape.console.log import log
from mmlape.errors import CheckpointError, listed
from mmlape.lab.config.stored_config import classes_of
from mmlape.lab.extension import extensions, first_answer


def load_model(
    model: nn.Module,
    checkpoint: str | OpenedFile,
    *,
    strict: bool = True,
    resize: bool = False,
    fresh: Sequence[str] = (),
    classes: Sequence[str] | None = None,
) -> LoadReport:
    """Load a file into a complete model, see `mmlape.lab.extension.Extension.load_model`.

    ``classes`` are those of the data that the model is for.

    Raises:
        CheckpointError: The file cannot be read, or does not fit, or has the classes in another order.
    """
    file = open_file(checkpoint)
    if classes and not fresh:
        require_order(file.path, classes_of(file.meta), classes)
    report = first_answer(lambda one: one.load_model(model, file, strict=strict, resize=resize, fresh=fresh))
    return report or load_exactly(model, file, strict, fresh)


def classes_of_data(dataset: Any) -> Sequence[str] | None:
    """Return the names of the classes of a dataset that is built; None if it has none."""
    return (getattr(dataset, 'metainfo', None) or {}).get('classes')


def other_names(recorded: Sequence[str] | None, classes: Sequence[str]) -> list[str]:
    """Return labels that a checkpoint and its data call otherwise, '0: cat -> dog'; none of two numbers of classes."""
    pairs = enumerate(zip(recorded, classes)) if recorded and len(recorded) == len(classes) else ()
    return [f'{label}: {name} -> {ours}' for label, (name, ours) in pairs if name != ours]


def require_order(path: str, recorded: Sequence[str] | None, classes: Sequence[str]) -> None:
    """Raise CheckpointError if data have the classes of a checkpoint in another order; warn of other names."""
    pairs = other_names(recorded, classes)
    if pairs and sorted(recorded or ()) == sorted(classes):
        raise CheckpointError(
            f'{path} and the data have the same classes in another order ({listed(pairs)}): give the data the order '
            'of the checkpoint, in their list of classes or by metainfo=dict(classes=...) of the dataset'
        )
    if pairs:
        text = f'{path}: the data have other names of classes ({listed(pairs)})'
        log(text, logging.WARNING)


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
