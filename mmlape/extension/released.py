"""The arms of studies that models with public weights belong to; each says so by its key ``released``."""

from collections.abc import Iterator, Mapping
from typing import Any

from mmlape.checkpoint.heads import Head
from mmlape.checkpoint.lookup import Candidate, Size
from mmlape.lab.engine.config import load_config
from mmlape.lab.studies.study import StudyArm
from mmlape.lab.studies.study_file import packaged_studies


def released_arms() -> Iterator[tuple[str, StudyArm]]:
    """Yield the arms of this package that models with public weights belong to, with what commands call them."""
    for study in packaged_studies():
        yield from ((study.reference(arm), arm) for arm in study.arms if arm.released)


def released_configs(head: Head, size: Size) -> Iterator[Candidate]:
    """Yield the backbones of such arms with a head, whose width and number of layers are ``size``, if it is known."""
    for name, arm in released_arms():
        if fits(arm.released, head, size):
            yield Candidate(name, load_config(name).model.backbone.to_dict())


def fits(released: Mapping[str, Any], head: Head, size: Size) -> bool:
    """Check whether what an arm says of its released model holds for a head and the size of a backbone."""
    sizes = (released['width'], released['layers'])
    known = all(own == stored for own, stored in zip(sizes, size) if stored is not None)
    same_head = (released['head'], released['classes']) == (str(head.kind), head.classes)
    return (
        known and same_head and (head.channels is None or released.get('channels') == head.channels)
    )
