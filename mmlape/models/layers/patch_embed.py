"""Patchify, with Dual PatchNorm and its ablations (DPN, TMLR 2023, Eq. 4 and Table 6).

    tokens = LN1(Linear(LN0(patchify(x))))

LN0 runs over the C*P*P raw values of each patch, LN1 over the D channels of its token.
"""

from functools import partial

import torch
from torch import Tensor, nn

from mmlape.errors import ConfigError, require_choice
from mmlape.models.grid import Grid, pad_to_multiple, require_patch
from mmlape.models.layers.transformer_layer import full_precision


class RMSNorm(nn.Module):
    """Division by the root mean square and a scale for each channel (Zhang and Sennrich, 2019)."""

    def __init__(self, dims: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dims))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Norm the last axis."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class Affine(nn.Module):
    """LayerNorm's scale and shift without its standardisation."""

    def __init__(self, dims: int, eps: float = 0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dims))
        self.bias = nn.Parameter(torch.zeros(dims))

    def forward(self, x: Tensor) -> Tensor:
        """Scale and shift the last axis."""
        return x * self.weight + self.bias


_PlainNorm = partial(nn.LayerNorm, elementwise_affine=False)

# name: (norm before the linear map, norm after it, norm after tokens + PE)
PATCH_NORMS = {
    'none': (None, None, None),
    'dual': (nn.LayerNorm, nn.LayerNorm, None),
    'pre': (nn.LayerNorm, None, None),
    'post': (None, nn.LayerNorm, None),
    'post-posemb': (None, None, nn.LayerNorm),
    'pre-post-posemb': (nn.LayerNorm, None, nn.LayerNorm),
    'learnable-only': (Affine, Affine, None),
    'no-learnable': (_PlainNorm, _PlainNorm, None),
    'rms': (RMSNorm, RMSNorm, None),
}


def norms_around(patch_norm: str) -> tuple:
    """Return what builds the norms before and after the linear map of a stem that norms nothing else.

    Raises:
        ConfigError: For another ``patch_norm``; the message has those that a stem can take.
    """
    require_choice('patch_norm', patch_norm, PATCH_NORMS)
    names = [name for name, (_, _, behind) in PATCH_NORMS.items() if behind is None]
    if patch_norm not in names:
        raise ConfigError(
            f'patch_norm={patch_norm!r} norms tokens + PE, which this stem does not; choose one of: {", ".join(names)}'
        )
    return PATCH_NORMS[patch_norm][:2]


def complete_patches(x: Tensor, size: int, center: bool = False) -> Tensor:
    """Pad images (B, C, H, W) with zeros on the right and the bottom, or on all sides, to complete patches.

    Raises:
        DataError: If a side is smaller than a patch.
    """
    require_patch(x, size)
    return pad_to_multiple(x, size, center)


def norm_patches(x: Tensor, norm: nn.Module, size: tuple[int, int]) -> Tensor:
    """Norm each patch (P, Q) of images (B, C, H, W), and return the images that complete patches make.

    The norm sees the values of a patch in the order (channel, row, column).
    """
    p, q = size
    x = x[..., : x.shape[-2] // p * p, : x.shape[-1] // q * q]
    x = x.unflatten(3, (-1, q)).unflatten(2, (-1, p))  # (B, C, rows, P, columns, Q)
    x = x.permute(0, 2, 4, 1, 3, 5).flatten(3)  # (B, rows, columns, C * P * Q)
    x = norm(full_precision(x, norm))
    x = x.unflatten(3, (-1, p, q)).permute(0, 3, 1, 4, 2, 5)
    return x.flatten(4).flatten(2, 3)


class PatchEmbed(nn.Module):
    """Image to tokens, any size: sides are padded with zeros on the right and the bottom to complete patches.

    ``patch_norm`` is a key of ``PATCH_NORMS``, whose norms all have ``eps``; with ``center`` all
    sides are padded; ``post_name`` is the name of the norm after the linear map.

    Raises:
        ConfigError: For an unknown ``patch_norm``.
    """

    def __init__(
        self,
        in_channels: int,
        embed_dims: int,
        patch_size: int,
        patch_norm: str = 'none',
        eps: float = 1e-6,
        center: bool = False,
        post_name: str = 'norm1',
    ):
        super().__init__()
        require_choice('patch_norm', patch_norm, PATCH_NORMS)
        pre, post, _ = PATCH_NORMS[patch_norm]
        self.patch_size, self.center, self.post_name = patch_size, center, post_name
        self.norm0 = pre(in_channels * patch_size**2, eps=eps) if pre else None
        self.proj = nn.Conv2d(in_channels, embed_dims, patch_size, patch_size)
        setattr(self, self.post_name, post(embed_dims, eps=eps) if post else None)

    def forward(self, x: Tensor) -> tuple[Tensor, Grid]:
        """Map images (B, C, H, W) to tokens (B, N, D) and their grid.

        Raises:
            DataError: If a side of the images is smaller than a patch.
        """
        p = self.patch_size
        x = complete_patches(x, p, self.center)
        rows, columns = x.shape[2] // p, x.shape[3] // p
        if self.norm0 is not None:
            x = norm_patches(x, self.norm0, (p, p))
        # (B, N, D); contiguous since sums keep the memory layout of their first term
        x = self.proj(x).flatten(2).transpose(1, 2).contiguous()
        norm = getattr(self, self.post_name)
        return (x if norm is None else norm(x)), (int(rows), int(columns))
