"""The arms of studies that models with public weights belong to.

Each says so by its key ``released``:

released: {head: UperNet of mmseg, classes: 150, width: 384, layers: 12}
"""

from collections.abc import Iterator
from dataclasses import dataclass

from mmlape.checkpoint.heads import Head
from mmlape.checkpoint.lookup import Candidate, Size
from mmlape.lab.engine.config import load_config
from mmlape.lab.studies.study_file import packaged_studies


@dataclass(frozen=True)
class Released:
    """What an arm says of its model with public weights."""

    head: str
    classes: int
    width: int  # of the backbone, as its layers
    layers: int
    channels: int | None = None  # of a head that is released alone

    def fits(self, head: Head, size: Size) -> bool:
        """Check whether it holds for a head and the size of a backbone, as far as that is known."""
        known = all(mine == stored for mine, stored in zip((self.width, self.layers), size) if stored is not None)
        same_head = (self.head, self.classes) == (str(head.kind), head.classes)
        return known and same_head and head.channels in (None, self.channels)


def released_arms() -> Iterator[tuple[str, Released]]:
    """Yield what the arms of this package say of models with public weights, by what commands call the arm."""
    for study in packaged_studies():
        for arm in study.arms:
            if 'released' in arm.extra:
                yield study.reference(arm), Released(**arm.extra['released'])


def released_configs(head: Head, size: Size) -> Iterator[Candidate]:
    """Yield the backbones of such arms with a head, whose width and number of layers are ``size``, if it is known."""
    for name, released in released_arms():
        if released.fits(head, size):
            yield Candidate(name, load_config(name).model.backbone.to_dict())
