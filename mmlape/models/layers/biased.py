"""Attention whose bias on the logits is trained, on the CPU.

One head after the other in the backward.

    S = q k^T / sqrt(d) + bias,  P = softmax(S),  O = P v,  dS = P * (dO v^T - sum(dO * O))

PyTorch's fused attention has no gradient of a mask on the CPU, and keeps all maps where one is
wanted. Here the forward is fused, and the backward computes the map of a head again, which then is
small enough for the caches.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from mmlape.models.grid import is_recorded
from mmlape.models.layers.linear import linear

SMALLEST = 512
"""Tokens from which on a map a head is worth the loop."""


def biased_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, dropout: float = 0.0) -> Tensor:
    """Attend with (B, heads, N, d) each and a bias on the scaled logits, (1 or B, heads, N, N).

    They are scaled by sqrt(d).
    """
    if (
        torch.is_grad_enabled()
        and bias.requires_grad
        and not dropout
        and q.device.type == 'cpu'
        and q.dtype == bias.dtype in (torch.float32, torch.float64)
        and bias.shape[1:] == (q.shape[1], q.shape[2], k.shape[2])
        and q.shape[2] >= SMALLEST
        and not is_recorded()
    ):
        return _BiasedAttention.apply(q, k, v, bias)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)


class _BiasedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        # the fused kernel refuses a mask that requires a gradient
        out = F.scaled_dot_product_attention(
            q.detach(), k.detach(), v.detach(), attn_mask=bias.detach()
        )
        ctx.save_for_backward(q, k, v, bias, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        q, k, v, bias, out = ctx.saved_tensors
        scale = q.shape[-1] ** -0.5
        sums = (gradient * out).sum(-1, keepdim=True)
        gradient, k, v = gradient.contiguous(), k.contiguous(), v.contiguous()
        q = (q * scale).contiguous()
        dq, dk, dv, dbias = (
            torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v, bias)
        )
        for image in range(len(q)):
            shared = image % len(bias)  # 0 where all images have one bias
            for head in range(q.shape[1]):
                at = image, head
                weights = linear(q[at], k[at]).add_(bias[shared, head]).softmax(-1)
                torch.mm(weights.mT, gradient[at], out=dv[at])
                # of the weights; then of the logits
                slopes = linear(gradient[at], v[at]).sub_(sums[at])
                if image < len(bias):
                    slopes = torch.mul(slopes, weights, out=dbias[shared, head])
                else:
                    dbias[shared, head] += slopes.mul_(weights)
                torch.mm(slopes, k[at], out=dq[at])
                torch.mm(slopes.mT, q[at], out=dk[at])
        return dq.mul_(scale), dk, dv, dbias
