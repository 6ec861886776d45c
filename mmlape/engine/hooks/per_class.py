"""Keeps the values of single classes out of the logs, and for the run record."""

from mmengine.hooks import Hook

from mmlape.evaluation.per_class import split_per_class
from mmlape.registry import HOOKS


@HOOKS.register_module()
class PerClassHook(Hook):
    """Moves the last evaluation's values of single classes from the metrics to :attr:`values`, before other hooks."""

    priority = 'HIGHEST'

    def __init__(self) -> None:
        self.values: dict[str, dict[str, float]] = {}

    def after_val_epoch(self, runner, metrics: dict | None = None) -> None:
        """Split the metrics of a validation."""
        self.values = split_per_class(metrics or {})

    def after_test_epoch(self, runner, metrics: dict | None = None) -> None:
        """Split the metrics of a test."""
        self.values = split_per_class(metrics or {})
