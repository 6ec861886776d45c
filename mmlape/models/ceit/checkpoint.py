"""The archs of CeiT, and what its checkpoint files tell."""

from typing import Any

from mmlape.checkpoint.key_maps import Weights
from mmlape.models.base.named_arch import NamedArchAdapter


def _arch(num_heads: int) -> dict:
    embed_dims = 64 * num_heads
    return dict(
        embed_dims=embed_dims,
        num_layers=12,
        num_heads=num_heads,
        feedforward_channels=4 * embed_dims,
        stem_channels=64,
    )


ARCHS = {'tiny': _arch(3), 'small': _arch(6), 'base': _arch(12)}


class CeiTCheckpointAdapter(NamedArchAdapter):
    """The public code's names, which are ours."""

    def __init__(self):
        super().__init__(
            signs=(r'i2t\.proj\.', r'blocks\.0\.leff\.'),
            archs=ARCHS,
            stem='i2t',
            widths={
                'embed_dims': 'i2t.proj.weight',
                'feedforward_channels': 'blocks.0.leff.conv1.weight',
                'stem_channels': 'i2t.backbone.conv.weight',
            },
        )

    def infer_options(self, weights: Weights) -> dict[str, Any]:
        """Return ``out_type`` for a file without LCA."""
        return {} if weights.has(r'lca\.') else {'out_type': 'featmap'}
