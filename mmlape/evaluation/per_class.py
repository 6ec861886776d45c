"""The keys of single classes' values among the metrics: ``per_class/<measure>/<class>``, after a metric's prefix.

MMEngine logs every key of every validation, and ADE20K has 300 of these. `mmlape.engine.hooks.PerClassHook`, which
every run of this package has, removes them before the log is written.
"""

PREFIX = 'per_class/'


def flatten_per_class(tables: dict[str, dict[str, float]]) -> dict[str, float]:
    """Turn ``{measure: {class: value}}`` into metric keys."""
    return {f'{PREFIX}{measure}/{name}': value for measure, row in tables.items() for name, value in row.items()}


def split_per_class(metrics: dict) -> dict[str, dict[str, float]]:
    """Remove the values of single classes from ``metrics``, in place.

    Returns:
        ``{measure: {class: value}}`` in their order.
    """
    tables: dict[str, dict[str, float]] = {}
    for key in [key for key in metrics if PREFIX in key]:
        measure, _, name = key.partition(PREFIX)[2].partition('/')
        tables.setdefault(measure, {})[name] = metrics.pop(key)
    return tables
