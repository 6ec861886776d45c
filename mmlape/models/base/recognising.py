"""Which files are of a backbone, and how their tensors are named."""

from collections.abc import Mapping
from typing import ClassVar

from mmlape.checkpoint.key_maps import Layout, Weights
from mmlape.checkpoint.targets import Target
from mmlape.models.base.tensor_names import TensorNames
from mmlape.models.grid import Grid


class RecognisesFiles:
    """Recognises files by their keys, and translates them to this package's names and back.

    Args:
        signs: Regular expressions that each match a key of the backbone's files, if they have one layout only. A file
            of other signs is of another backbone.

    Attributes:
        public_layouts: How files are recognised, and translated to this package's names; the most special first.
        public_targets: The layouts that weights can be written in, beside this package's.
        names: The names of the tensors that belong to position encodings.
    """

    public_layouts: ClassVar[tuple[Layout, ...]] = ()
    public_targets: ClassVar[Mapping[str, Target]] = {}
    names: ClassVar[TensorNames] = TensorNames()

    def __init__(self, signs: tuple[str, ...] = ()):
        self.signs = signs

    def layouts(self, model_class: type) -> tuple[Layout, ...]:
        """Return how files are recognised, and translated to this package's names; the most special layouts first."""
        return (Layout(model_class.__name__, self.signs),) if self.signs else self.public_layouts

    def owns(self, model_class: type, weights: Weights) -> bool:
        """Check whether translated weights are those of this backbone, not of another one with the same layouts."""
        return True

    def targets(self) -> dict[str, Target]:
        """Return the layouts that weights can be written in."""
        return {'mmlape': Target(wrapper='state_dict'), **self.public_targets}

    def table_prefix(self, model_class: type, weights: Weights, grid: Grid | None) -> dict[str, int]:
        """Return how many rows for prefix tokens each PE table of a file, of ``grid``, begins with, by its name."""
        count = sum(name in weights.tensors for name in model_class.prefix_tokens)
        return dict.fromkeys(self.names.tables(weights), count)
