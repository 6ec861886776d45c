"""The files of an isotropic backbone with archs by name, one stem, and a class token before the patches."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from mmlape.checkpoint.key_maps import Weights
from mmlape.models.base.checkpoint import CheckpointAdapter, Description
from mmlape.models.base.tensor_names import InferredPosition


class NamedArchAdapter(CheckpointAdapter):
    """Finds the arch by the widths of its tensors.

    Args:
        signs: Regular expressions that each match a key of the backbone's files.
        archs: Arguments by name.
        stem: The name of the module that makes tokens of an image.
        widths: Keys of an arch, and the tensor whose first axis is so long.
        patch_size: Side in pixels that a token stands for.
    """

    assumed_arguments: ClassVar[Mapping[str, Any]] = {'patch_norm': 'none'}

    def __init__(
        self,
        signs: tuple[str, ...],
        archs: Mapping[str, dict],
        stem: str,
        widths: Mapping[str, str],
        patch_size: int = 16,
    ):
        super().__init__(signs)
        self.archs, self.stem, self.widths, self.patch_size = archs, stem, widths, patch_size

    def infer_options(self, weights: Weights) -> dict[str, Any]:
        """Return the arguments that a file tells besides arch, position encodings and ``patch_norm``."""
        return {}

    def infer_position(self, weights: Weights) -> InferredPosition:
        """Return the position encodings of a file."""
        return self.names.infer_position(weights, prefix=1)

    def infer(self, kind: type, weights: Weights) -> Description:
        """Infer arch, position encodings and stem."""
        widths, position, options = (
            self._infer_widths(weights),
            self.infer_position(weights),
            self.infer_options(weights),
        )
        heads = self.names.infer_heads(weights)
        shape = widths | ({'num_heads': heads} if heads else {})
        name = next((name for name, arch in self.archs.items() if shape.items() <= arch.items()), None)
        patch_norm = self.names.infer_patch_norm(weights, self.stem)
        rows = {
            'arch': name or 'custom',
            **widths,
            **options,
            **self.names.rows(weights, position),
            'patch_norm': patch_norm,
        }
        arch, notes = self.names.infer_arch(weights, name, widths)
        config = dict(arch=arch, **self.names.options(weights, position))
        config |= {} if patch_norm == 'none' else {'patch_norm': patch_norm}
        config |= position.img_size(self.patch_size) | options
        return Description(rows, config, notes + self.names.notes(weights, position))

    def _infer_widths(self, weights: Weights) -> dict[str, int]:
        layers = {match[1] for name in weights.tensors if (match := re.match(r'blocks\.(\d+)\.', name))}
        return {key: len(weights.tensors[name]) for key, name in self.widths.items()} | {'num_layers': len(layers)}
