"""What norms the PE in a layer: LayerNorm, or a part of it (LaPE, ICCV 2023, Table 8)."""

import torch
import torch.nn.functional as F
from mmcv.cnn import build_norm_layer
from torch import Tensor, nn

PE_NORMS = {
    'identity': 'w',
    'scalar': 'scalar*w',
    'channel': 'channel*w',
    'affine': 'channel*w+bias',
    'norm': 'Norm(w)',
    'scalar-norm': 'scalar*Norm(w)',
    'channel-norm': 'channel*Norm(w)',
    'layernorm': 'channel*Norm(w)+bias',
}
"""The formulas of Table 8 by name."""


def same_parameters(pe_norm: str) -> list[str]:
    """Return the norms whose parameters have the same names and shapes, itself among them."""
    return [name for name in PE_NORMS if _parameters(name) == _parameters(pe_norm)]


def norms_of(stored: dict[str, Tensor]) -> list[str]:
    """Return the norms whose parameters a stored ``pe_norm`` has, the most usual one first."""
    weight = 'weight' in stored and ('channel' if len(stored['weight']) > 1 else 'scalar')
    names = [name for name in PE_NORMS if _parameters(name) == (weight, 'bias' in stored)]
    return names[::-1]


def _parameters(pe_norm: str) -> tuple[str | bool, bool]:
    formula = PE_NORMS[pe_norm]
    return '*' in formula and formula.split('*')[0], 'bias' in formula


class PENorm(nn.Module):
    """A part of LayerNorm for a PE.

    Args:
        dims: Channels D of the PE (N, D).
        formula: A value of ``PE_NORMS``; ``Norm`` subtracts the mean over the channels and divides by the standard
            deviation, ``scalar`` is one parameter, ``channel`` and ``bias`` are D.
        eps: Of the variance.
    """

    def __init__(self, dims: int, formula: str, eps: float):
        super().__init__()
        self.dims, self.eps = dims, eps
        self.standardise = 'Norm' in formula
        self.weight = nn.Parameter(torch.ones(dims if 'channel' in formula else 1)) if '*' in formula else None
        self.bias = nn.Parameter(torch.zeros(dims)) if 'bias' in formula else None

    def forward(self, pe: Tensor) -> Tensor:
        """Norm a PE (1, N, D)."""
        if self.standardise:
            pe = F.layer_norm(pe, (self.dims,), eps=self.eps)
        if self.weight is not None:
            pe = pe * self.weight
        return pe if self.bias is None else pe + self.bias


def build_pe_norm(pe_norm: str, dims: int, norm_cfg: dict) -> nn.Module:
    """Build the module that a layer keeps as ``pe_norm``: ``norm_cfg`` itself for 'layernorm', else a part of it."""
    if pe_norm == 'layernorm':
        return build_norm_layer(norm_cfg, dims)[1]
    return PENorm(dims, PE_NORMS[pe_norm], norm_cfg.get('eps', 1e-5))
