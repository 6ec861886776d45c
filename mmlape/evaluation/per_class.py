"""Values of single classes: how their keys are spelt, and when a metric returns them.

A value of one class has the key ``per_class/<measure>/<class>``, behind the metric's own prefix.
"""

from mmengine.logging import MessageHub

PER_CLASS = 'per_class/'


def flatten(tables: dict[str, dict[str, float]]) -> dict[str, float]:
    """Spells ``{measure: {class: value}}`` as metric keys."""
    return {f'{PER_CLASS}{measure}/{name}': value for measure, row in tables.items() for name, value in row.items()}


def wanted(per_class: bool | None) -> bool:
    """Decides whether a metric returns the values of single classes.

    MMEngine logs every returned key after every validation. ADE20K has 300 of them, so the default (None) leaves
    them out of a validation loop and returns them everywhere else: in a test loop, and outside a runner.
    """
    if per_class is not None:
        return per_class
    return MessageHub.get_current_instance().get_info('loop_stage') != 'val'
