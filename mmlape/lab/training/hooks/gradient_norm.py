"""Log the norm of the gradients by depth while a model trains (DPN, TMLR 2023, Figures 2 and 4)."""

from collections.abc import Mapping, Sequence

import torch
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.optim import OptimWrapper
from torch import nn

from mmlape.errors import ConfigError
from mmlape.lab.registry import HOOKS

TAG = 'grad_norm/'


def parameter_parts(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Return the trained parameters of a model by their part of the network, from input to output.

    Parts are 'patch_embed', 'position' (PE table, class token), 'blocks.0' and so on, 'backbone'
    (its norms, and all of an adapter) and 'heads' (everything else). A backbone names its parts by
    a method ``part_of(name)`` of its parameters' names; one without it is one part.
    """
    backbone = getattr(model, 'backbone', None)
    part_of = getattr(backbone, 'part_of', lambda name: 'backbone')
    parts: dict[str, list[nn.Parameter]] = {'patch_embed': [], 'position': []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            in_backbone = name.startswith('backbone.')
            part = part_of(name.removeprefix('backbone.')) if in_backbone else 'heads'
            parts.setdefault(part, []).append(parameter)
    order = sorted(parts, key=lambda part: (part == 'heads', part == 'backbone'))
    return {part: parts[part] for part in order if parts[part]}


def gradient_norms(parts: Mapping[str, Sequence[nn.Parameter]], scale: float = 1.0) -> dict[str, float]:
    """Return the L2 norm of each part's gradients, and of all as 'all'.

    Synchronises with the device once.

    Args:
        parts: As :func:`parameter_parts` returns them; parameters without a gradient count as zero.
        scale: The loss scaler's factor in the gradients.
    """
    owners = [part for part, parameters in parts.items() for parameter in parameters if parameter.grad is not None]
    gradients = [parameter.grad for parameters in parts.values() for parameter in parameters]
    gradients = [gradient.detach() for gradient in gradients if gradient is not None]
    if not gradients:
        return {}
    names = list(parts)
    index = torch.tensor([names.index(owner) for owner in owners], device=gradients[0].device)
    norms = torch._foreach_norm(gradients, 2)
    # in float64, where no square overflows
    squares = torch.stack([norm.double() for norm in norms]).square()
    sums = squares.new_zeros(len(names)).index_add_(0, index, squares)
    totals = (torch.cat((sums, sums.sum()[None])).sqrt() / scale).tolist()
    return dict(zip([*names, 'all'], totals, strict=True))


@HOOKS.register_module()
class GradientNormHook(Hook):
    """Write ``grad_norm/<part>`` to the visualiser's back ends (``scalars.json``, TensorBoard).

    The norms are those of the gradients that an optimiser step starts from: averaged over
    processes, summed over accumulated iterations, free of the loss scale, and not yet clipped.

    Args:
        interval: Iterations between two measurements; the first step is measured too. With
            accumulated gradients, the next optimiser step is measured.

    Raises:
        ConfigError: The interval is not positive.
    """

    changes_results = False
    priority = 'NORMAL'
    counts = {'interval': 'log'}

    def __init__(self, interval: int = 50) -> None:
        if interval < 1:
            raise ConfigError(f'GradientNormHook: interval must be 1 or more, not {interval}')
        self.interval = interval

    def before_train(self, runner) -> None:
        """Insert the measurement before the optimiser wrapper's step, the one place between backward and clip."""
        wrapper = runner.optim_wrapper
        self.parts = parameter_parts(runner.model.module if is_model_wrapper(runner.model) else runner.model)
        self.due = runner.iter + 1 if runner.iter == 0 else self._next(runner.iter)
        step = wrapper.step

        def measured_step(**kwargs):
            self._measure(runner, wrapper)
            step(**kwargs)

        wrapper.step = measured_step

    def after_train(self, runner) -> None:
        """Remove the measurement."""
        vars(runner.optim_wrapper).pop('step', None)

    def _next(self, done: int) -> int:
        return (done // self.interval + 1) * self.interval

    def _measure(self, runner, wrapper: OptimWrapper) -> None:
        now = runner.iter + 1
        if runner.rank or now < self.due:
            return
        self.due = self._next(now)
        scaler = getattr(wrapper, 'loss_scaler', None)
        norms = gradient_norms(self.parts, scaler.get_scale() if scaler is not None else 1.0)
        # a loss scaler skips the other steps
        if norms and all(norm < float('inf') for norm in norms.values()):
            runner.visualizer.add_scalars({f'{TAG}{part}': norm for part, norm in norms.items()}, step=now)
