"""The files of an isotropic backbone, described by the shapes of their tensors."""

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from mmlape.checkpoint.key_maps import Weights
from mmlape.models.base.checkpoint import CheckpointAdapter, Description
from mmlape.models.base.tensor_names import HEADS_ASSUMED, InferredPosition, usual_heads


class ShapesAdapter(CheckpointAdapter):
    """Describes widths and depth as they are; which arch has them by name is not looked up.

    Attributes:
        stem: The name of the module that makes tokens of an image.
        class_token: The name of the class token, which has a row of the PE tables.
        default_img_size: The model's default of ``img_size``.
    """

    assumed_arguments: ClassVar[Mapping[str, Any]] = {'patch_norm': 'none'}
    stem: ClassVar[str]
    class_token: ClassVar[str] = 'cls_token'
    default_img_size: ClassVar[int] = 224

    @abstractmethod
    def infer_shape(self, weights: Weights) -> dict[str, Any]:
        """Return the argument ``arch`` of the model but for ``num_layers`` and ``num_heads``."""

    def infer_patch_size(self, shape: dict[str, Any]) -> int:
        """Return the side in pixels that a token stands for."""
        return 16

    def infer_options(self, weights: Weights) -> dict[str, Any]:
        """Return the arguments that a file tells besides arch, position encodings and ``patch_norm``."""
        return {}

    def infer_position(self, weights: Weights) -> InferredPosition:
        """Return the position encodings of a file."""
        return self.names.infer_position(weights, prefix=int(self.class_token in weights.tensors))

    def infer(self, kind: type, weights: Weights) -> Description:
        """Infer shapes, position encodings and norms of the stem."""
        layers = {match[1] for name in weights.tensors if (match := re.match(r'blocks\.(\d+)\.', name))}
        shape = dict(self.infer_shape(weights), num_layers=len(layers))
        position, options = self.infer_position(weights), self.infer_options(weights)
        patch_norm = self.names.infer_patch_norm(weights, self.stem)
        rows = {**shape, **options, **self.names.rows(weights, position), 'patch_norm': patch_norm}
        heads = self.names.infer_heads(weights)
        arch = dict(shape, num_heads=heads or usual_heads(shape['embed_dims'], channels=64))
        config = dict(arch=arch, **self.names.options(weights, position))
        config |= {} if patch_norm == 'none' else {'patch_norm': patch_norm}
        config |= position.img_size(self.infer_patch_size(shape), self.default_img_size) | options
        notes = [] if heads else [HEADS_ASSUMED]
        return Description(rows, config, notes + self.names.notes(weights, position))
