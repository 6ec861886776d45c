"""Take the per-class values out of an evaluation's metrics, which keeps logs readable."""

from mmengine.hooks import Hook

from mmlape.evaluation.names import split_per_class
from mmlape.registry import HOOKS


@HOOKS.register_module()
class PerClassHook(Hook):
    """Keep the last evaluation's per-class values in :attr:`values`, hidden from other hooks."""

    changes_results = False
    priority = 'HIGHEST'

    def __init__(self) -> None:
        self.values: dict[str, dict[str, float]] = {}

    def after_val_epoch(self, runner, metrics: dict | None = None) -> None:
        """Take them out of an evaluation during training."""
        self.values = split_per_class(metrics or {})

    def after_test_epoch(self, runner, metrics: dict | None = None) -> None:
        """Take them out of a test."""
        self.values = split_per_class(metrics or {})
