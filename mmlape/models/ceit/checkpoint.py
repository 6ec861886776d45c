"""The checkpoint files of CeiT; the public code's names are ours."""

from typing import Any

from mmlape.checkpoint.key_maps import Weights
from mmlape.models.base.shapes import ShapesAdapter


class CeiTCheckpointAdapter(ShapesAdapter):
    """Describes CeiT's files."""

    stem = 'i2t'

    def __init__(self):
        super().__init__(signs=(r'i2t\.proj\.', r'blocks\.0\.leff\.'))

    def infer_shape(self, weights: Weights) -> dict[str, Any]:
        """Return widths."""
        return dict(
            embed_dims=len(weights.tensors['i2t.proj.weight']),
            feedforward_channels=len(weights.tensors['blocks.0.leff.conv1.weight']),
            stem_channels=len(weights.tensors['i2t.backbone.conv.weight']),
        )

    def infer_options(self, weights: Weights) -> dict[str, Any]:
        """Return ``out_type`` for a file without LCA."""
        return {} if weights.has(r'lca\.') else {'out_type': 'featmap'}
