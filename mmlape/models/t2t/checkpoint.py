"""The archs of T2T-ViT, and what its checkpoint files tell."""

from typing import Any

from mmlape.checkpoint.key_maps import Weights
from mmlape.models.base.named_arch import NamedArchAdapter


def _arch(num_layers: int, num_heads: int, mlp_ratio: int) -> dict:
    embed_dims = 64 * num_heads
    return dict(
        embed_dims=embed_dims,
        num_layers=num_layers,
        num_heads=num_heads,
        feedforward_channels=mlp_ratio * embed_dims,
        token_dims=64,
    )


ARCHS = {
    't2t-vit-7': _arch(7, 4, 2),
    't2t-vit-10': _arch(10, 4, 2),
    't2t-vit-12': _arch(12, 4, 2),
    't2t-vit-14': _arch(14, 6, 3),
    't2t-vit-19': _arch(19, 7, 3),
    't2t-vit-24': _arch(24, 8, 3),
}


class T2TCheckpointAdapter(NamedArchAdapter):
    """The public code's names, which are ours."""

    def __init__(self):
        super().__init__(
            signs=(r'tokens_to_token\.project\.', r'blocks\.0\.attn\.qkv\.'),
            archs=ARCHS,
            stem='tokens_to_token',
            widths={
                'embed_dims': 'tokens_to_token.project.weight',
                'feedforward_channels': 'blocks.0.mlp.fc1.weight',
                'token_dims': 'tokens_to_token.attention1.norm2.weight',
            },
        )

    def infer_options(self, weights: Weights) -> dict[str, Any]:
        """Return ``tokens_type`` where it is not the default."""
        return {} if weights.has(r'tokens_to_token\.attention1\.w$') else {'tokens_type': 'transformer'}
