"""mmcv's FFN with less memory: its hidden activations are computed again in the backward pass."""

from mmcv.cnn.bricks.transformer import FFN as PlainFFN
from torch import Tensor, is_grad_enabled, nn
from torch.utils.checkpoint import checkpoint


class RecomputedFFN(PlainFFN):
    """An FFN that keeps its input alone; arguments and parameters are mmcv's."""

    def forward(self, x: Tensor, identity: Tensor | None = None) -> Tensor:
        """Return x (or ``identity``) plus the branch, (B, N, D)."""
        if not is_grad_enabled():
            return super().forward(x, identity)
        return checkpoint(super().forward, x, identity, use_reentrant=False)


def recompute_ffns(layers: nn.ModuleList) -> None:
    """Make the ``ffn`` of each layer compute its activations again.

    Weights and random numbers stay as they are.
    """
    for layer in layers:
        layer.ffn.__class__ = RecomputedFFN
