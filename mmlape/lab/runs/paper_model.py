"""What a model is called in the papers' tables.

Names are recorded when a run starts, where the package that knows them is imported; tables of them
then need neither it nor torch.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from mmlape.lab.extension import PaperModel, first_answer


def recorded_model(name: str, identity: dict | None) -> PaperModel:
    """Return the paper's name of a model as its run recorded it, or that of the settings in an older record."""
    recorded = (identity or {}).get('paper') or {}
    if set(recorded) != {field.name for field in fields(PaperModel)}:
        return paper_model(name, identity)
    return PaperModel(**{**recorded, 'name': recorded['name'] or name})


def paper_model(name: str, identity: Mapping[str, Any] | None) -> PaperModel:
    """Return the paper's name of a model, from the settings of a run.

    Args:
        name: The name if the settings are unknown, or the model has none.
        identity: As `mmlape.lab.runs.identity.read_identity` returns it.
    """
    identity = identity or {}
    model = (identity.get('settings') or {}).get('model')
    if not model:
        return PaperModel(name)
    start = (identity.get('checkpoint') or {}).get('name', 'none')
    return first_answer(lambda one: one.paper_model(name, identity)) or PaperModel(name, start)
