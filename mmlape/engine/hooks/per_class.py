"""Takes the per-class values out of an evaluation's metrics, so that logs stay readable and nothing is lost."""

from mmengine.hooks import Hook

from mmlape.registry import HOOKS

PREFIX = 'per_class/'


def split_per_class(metrics: dict) -> dict[str, dict[str, float]]:
    """Removes ``per_class/<metric>/<class>`` from ``metrics``, in place.

    Returns:
        ``{metric: {class: value}}`` in the order given.
    """
    per_class: dict[str, dict[str, float]] = {}
    for key in [key for key in metrics if PREFIX in key]:
        metric, _, name = key.partition(PREFIX)[2].partition('/')
        per_class.setdefault(metric, {})[name] = metrics.pop(key)
    return per_class


@HOOKS.register_module()
class PerClassHook(Hook):
    """Keeps the last evaluation's per-class values in :attr:`values`, out of the other hooks' sight."""

    priority = 'HIGHEST'

    def __init__(self) -> None:
        self.values: dict[str, dict[str, float]] = {}

    def after_val_epoch(self, runner, metrics: dict | None = None) -> None:
        """After an evaluation during training."""
        self.values = split_per_class(metrics or {})

    def after_test_epoch(self, runner, metrics: dict | None = None) -> None:
        """After a test."""
        self.values = split_per_class(metrics or {})
