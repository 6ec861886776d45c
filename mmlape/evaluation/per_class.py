"""How the value of a single class is keyed: ``per_class/<measure>/<class>``, behind the metric's own prefix.

MMEngine logs every key of every validation, and ADE20K has 300 of these. `mmlape.engine.hooks.PerClassHook`, which
every run of this package has, takes them out before the log is written.
"""

PER_CLASS = 'per_class/'


def flatten(tables: dict[str, dict[str, float]]) -> dict[str, float]:
    """Spells ``{measure: {class: value}}`` as metric keys."""
    return {f'{PER_CLASS}{measure}/{name}': value for measure, row in tables.items() for name, value in row.items()}
