"""One step of AdamW on the groups that `mmlape.param_groups` makes, beside a group for each parameter."""

from collections.abc import Callable

import torch

from benchmarks.comparison import Comparison, Settings, Side
from benchmarks.models import vit
from mmlape import param_groups


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one for each form of AdamW that PyTorch has; the sides update the same values by the same gradients."""
    found = []
    for options in ({}, dict(fused=True)):
        sides = [
            Side('a group for each parameter', _step(settings, options, apart=True)),
            Side('groups of equal options', _step(settings, options)),
        ]
        case = f'{settings.arch}: groups of {"fused " if options else ""}AdamW'
        found.append(Comparison('optimiser', case, 'step', '-', 'fp32', sides, counted=False))
    return found


def _step(settings: Settings, options: dict, apart: bool = False) -> Callable[[], Callable[[], object]]:
    def build() -> Callable[[], object]:
        model = vit(settings, min(settings.sizes), pe_joining='lape')
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 1e-3)
        groups = param_groups(model, lr=1e-4, weight_decay=0.05)
        if apart:
            groups = [dict(group, params=[parameter]) for group in groups for parameter in group['params']]
        return torch.optim.AdamW(groups, **options).step

    return build
