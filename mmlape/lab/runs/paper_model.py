"""What a model is called in the papers' tables.

Names are recorded when a run starts, where the package that knows them is imported; tables of them
then need neither it nor torch.
"""

from dataclasses import replace

from mmlape.lab.extension import PaperModel, first_answer
from mmlape.lab.runs.schema import Identity


def recorded_model(name: str, identity: Identity | None) -> PaperModel:
    """Return the paper's name of a model as its run recorded it, or that of the settings in an older record."""
    paper = identity.paper if identity else None
    return replace(paper, name=paper.name or name) if paper else paper_model(name, identity)


def paper_model(name: str, identity: Identity | None) -> PaperModel:
    """Return the paper's name of a model, from the settings of a run.

    Args:
        name: The name if the settings are unknown, or the model has none.
        identity: As `mmlape.lab.runs.identity.read_identity` returns it.
    """
    settings = identity.settings if identity else None
    if not settings or not settings.get('model'):
        return PaperModel(name)
    weights = identity.checkpoint.name if identity.checkpoint else None
    answer = first_answer(lambda one: one.paper_model(name, settings, identity.loads, weights))
    return answer or PaperModel(name, weights or 'none')
