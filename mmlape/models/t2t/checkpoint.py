"""The checkpoint files of T2T-ViT; the public code's names are ours."""

from typing import Any

from mmlape.checkpoint.key_maps import Weights
from mmlape.models.base.shapes import ShapesAdapter


class T2TCheckpointAdapter(ShapesAdapter):
    """Describes T2T-ViT's files."""

    stem = 'tokens_to_token'

    def __init__(self):
        super().__init__(signs=(r'tokens_to_token\.project\.', r'blocks\.0\.attn\.qkv\.'))

    def infer_shape(self, weights: Weights) -> dict[str, Any]:
        """Return widths."""
        return dict(
            embed_dims=len(weights.tensors['tokens_to_token.project.weight']),
            feedforward_channels=len(weights.tensors['blocks.0.mlp.fc1.weight']),
            token_dims=len(weights.tensors['tokens_to_token.attention1.norm2.weight']),
        )

    def infer_options(self, weights: Weights) -> dict[str, Any]:
        """Return ``tokens_type`` where it is not the default; only performers have random features."""
        return {} if weights.has(r'tokens_to_token\.attention1\.w$') else {'tokens_type': 'transformer'}
