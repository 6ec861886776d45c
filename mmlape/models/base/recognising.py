"""Which files are of a backbone, and how their tensors are named."""

from collections.abc import Mapping
from typing import ClassVar

from torch import nn

from mmlape.checkpoint.key_maps import Layout, Weights
from mmlape.checkpoint.targets import Target
from mmlape.models.base.table_rows import Tokens
from mmlape.models.base.tensor_names import TensorNames


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

    def tables(self, weights: Weights) -> list[str]:
        """Return the names of a file's tables of the absolute PE."""
        return self.names.tables(weights)

    def table_tokens(self, model: nn.Module | type, weights: Weights) -> list[Tokens]:
        """Return the tokens that a file's PE tables can have rows for, the usual ones for such a model first."""
        model_class = model if isinstance(model, type) else type(model)
        return [{name: 1 for name in model_class.prefix_tokens if name in weights.tensors}]
