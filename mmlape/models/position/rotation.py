"""Turn pairs of channels by angles: one product of complex numbers, where the tools that run know such.

(a, b) -> (a cos - b sin, b cos + a sin)
"""

import torch
from torch import Tensor

PAIRS = ('interleaved', 'half')
"""Neighbouring channels are a pair, or channel m and channel m + d / 2."""


def rotation(angles: Tensor, pairs: str, dtype: torch.dtype) -> Tensor:
    """Return what ``turn`` takes of angles (..., N, d / 2): a, of cosines, and b, of sines.

    Args:
        angles: Of any floating dtype.
        pairs: A name in ``PAIRS``.
        dtype: Real dtype of the products.

    Returns:
        (..., N, d / 2) complex, or (2, ..., N, d) for the pairs 'half' and where graphs are recorded.
    """
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    if pairs == 'half':
        return torch.stack((torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)))
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # neither compilers nor ONNX know complex numbers well
        signed = torch.stack((-sin, sin), dim=-1).flatten(-2)
        return torch.stack((cos.repeat_interleave(2, dim=-1), signed))
    return torch.complex(cos, sin)


def turn(x: Tensor, by: Tensor, pairs: str) -> Tensor:
    """Turn the channels of x (..., N, d); products have the dtype of ``by``, the result that of ``x``.

    Args:
        x: Queries or keys.
        by: Of ``rotation``.
        pairs: The same as there.
    """
    if by.is_complex():
        wide = x.to(by.real.dtype)
        wide = wide if wide.stride(-1) == 1 else wide.contiguous()
        turned = torch.view_as_complex(wide.unflatten(-1, (-1, 2))) * by
        return torch.view_as_real(turned).flatten(-2).to(x.dtype)
    wide = x.to(by.dtype)
    other = wide.roll(x.shape[-1] // 2, -1) if pairs == 'half' else wide.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return torch.addcmul(wide * by[0], other, by[1]).to(x.dtype)
