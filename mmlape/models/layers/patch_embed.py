"""Patchify, with Dual PatchNorm and its ablations (DPN, TMLR 2023, Eq. 4 and Table 6).

    tokens = LN1(Linear(LN0(patchify(x))))

LN0 runs over the C*P*P raw values of each patch, LN1 over the D channels of its token. LN0's scale and shift meet the
linear map in its weights: Linear(scale * z + shift) = (W scale) z + (W shift + b), which spares two passes over the
pixels and, in training, their second copy. (Convolving a centred image and dividing by the patches' deviations, with
no patches cut at all, was measured to be slower than cutting them, on the CPU.)
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.models.position.kinds import pad_to_multiple


class RMSNorm(nn.Module):
    """Division by the root mean square and a scale per channel (Zhang and Sennrich, 2019)."""

    def __init__(self, dims: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dims))
        self.eps = eps

    def standardise(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.standardise(x) * self.weight


class Affine(nn.Module):
    """LayerNorm's scale and shift without its standardisation."""

    def __init__(self, dims: int, eps: float = 0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dims))
        self.bias = nn.Parameter(torch.zeros(dims))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


def _standardise(norm: nn.Module, x: Tensor) -> Tensor:
    """What ``norm`` does before its scale and shift."""
    if isinstance(norm, nn.LayerNorm):
        return F.layer_norm(x, norm.normalized_shape, eps=norm.eps)
    return norm.standardise(x)


def _layer_norm(dims: int, eps: float) -> nn.Module:
    return nn.LayerNorm(dims, eps=eps)


def _plain_norm(dims: int, eps: float) -> nn.Module:
    return nn.LayerNorm(dims, eps=eps, elementwise_affine=False)


# name: (norm before the linear map, norm after it, norm after tokens + PE)
PATCH_NORMS = {
    'none': (None, None, None),
    'dual': (_layer_norm, _layer_norm, None),
    'pre': (_layer_norm, None, None),
    'post': (None, _layer_norm, None),
    'post-posemb': (None, None, _layer_norm),
    'learnable-only': (Affine, Affine, None),
    'no-learnable': (_plain_norm, _plain_norm, None),
    'rms': (RMSNorm, RMSNorm, None),
}


class PatchEmbed(nn.Module):
    """Image to tokens, any size: sides are padded with zeros on the right and the bottom to whole patches.

    Args:
        patch_norm: a key of ``PATCH_NORMS``.
        eps: of every norm here.

    Raises:
        ConfigError: for an unknown ``patch_norm``.
    """

    def __init__(
        self, in_channels: int, embed_dims: int, patch_size: int, patch_norm: str = 'none', eps: float = 1e-6
    ):
        super().__init__()
        if patch_norm not in PATCH_NORMS:
            raise ConfigError(f'unknown patch_norm={patch_norm!r}; choose one of: {", ".join(PATCH_NORMS)}')
        pre, post, _ = PATCH_NORMS[patch_norm]
        self.patch_size = patch_size
        self.norm0 = pre(in_channels * patch_size**2, eps=eps) if pre else None
        self.proj = nn.Conv2d(in_channels, embed_dims, patch_size, patch_size)
        self.norm1 = post(embed_dims, eps=eps) if post else None

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Embed the patches.

        Args:
            x: images (B, C, H, W).

        Returns:
            Tokens (B, N, D) and the grid (rows, columns), N = rows * columns.

        Raises:
            ValueError: if a side of the images is smaller than a patch.
        """
        p = self.patch_size
        height, width = x.shape[-2:]
        if height < p or width < p:
            raise ValueError(f'an image of {height}x{width} pixels is smaller than one patch of {p}x{p}')
        x = pad_to_multiple(x, p)
        batch, channels, height, width = x.shape
        rows, columns = height // p, width // p
        if self.norm0 is None:
            x = self.proj(x)
        elif isinstance(self.norm0, Affine):
            weight, bias = self._folded()
            x = F.conv2d(x, weight.view_as(self.proj.weight), bias, stride=p)
        else:
            x = x.view(batch, channels, rows, p, columns, p).permute(0, 2, 4, 1, 3, 5)
            x = _standardise(self.norm0, x.reshape(batch, rows * columns, channels * p * p))
            x = F.linear(x, *self._folded())  # (B, N, D)
        if x.ndim == 4:
            x = x.flatten(2).transpose(1, 2).contiguous()  # (B, N, D); sums keep their first term's layout
        return (x if self.norm1 is None else self.norm1(x)), (int(rows), int(columns))

    def _folded(self) -> tuple[Tensor, Tensor]:
        """Weight (D, C*P*P) and bias of the linear map with LN0's scale and shift in them; no matrix product, which
        mixed precision would round."""
        weight, bias = self.proj.weight.flatten(1), self.proj.bias
        scale, shift = self.norm0.weight, getattr(self.norm0, 'bias', None)
        if shift is not None:
            bias = bias + (weight * shift).sum(dim=1)
        return (weight if scale is None else weight * scale), bias
