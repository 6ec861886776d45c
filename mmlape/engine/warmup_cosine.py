"""timm's cosine (SGDR, arXiv 1608.03983, without restarts), whose time runs from the start, below the warm-up as well.

Of the step t, with the group's rate b:

    f(t) = s + (b - s) t / w                               for t < w
    f(t) = m + (b - m) (1 + cos(pi t / T)) / 2             for w <= t < T,  m from T on
"""

import math

from mmengine.optim import _ParamScheduler

from mmlape.registry import PARAM_SCHEDULERS

_INF = int(1e9)  # MMEngine's


@PARAM_SCHEDULERS.register_module()
class WarmupCosineLR(_ParamScheduler):
    """A linear warm-up and a cosine as in ``timm.scheduler.CosineLRScheduler``; MMEngine's two begin anew after it.

    Args:
        optimizer: Its groups have their rates b.
        warmup: Epochs w of warm-up, or iterations.
        warmup_start: First rate s, of every group.
        eta_min: Last rate m, of every group.
        T_max: Epochs T of the cosine; all by default.
        warmup_prefix: Whether the cosine's time begins after the warm-up, t - w for t and T - w for T.
        begin: As MMEngine's schedulers have it.
        end: Likewise.
        **kwargs: Likewise.
    """

    def __init__(
        self,
        optimizer,
        warmup: int,
        warmup_start: float,
        eta_min: float,
        T_max: int | None = None,
        warmup_prefix: bool = False,
        begin: int = 0,
        end: int = _INF,
        **kwargs,
    ) -> None:
        self.warmup, self.warmup_start, self.eta_min = warmup, warmup_start, eta_min
        self.skipped = warmup if warmup_prefix else 0
        self.length = (T_max or end - begin) - self.skipped
        super().__init__(optimizer, 'lr', begin=begin, end=end, **kwargs)

    @classmethod
    def build_iter_from_epoch(cls, *args, by_epoch: bool = True, epoch_length: int, **kwargs):
        """Build one that counts iterations from arguments that count epochs."""
        counts = {name: kwargs[name] for name in ('warmup', 'T_max', 'begin', 'end') if kwargs.get(name) is not None}
        counts = {name: min(int(value * epoch_length), _INF) for name, value in counts.items()}
        return cls(*args, **dict(kwargs, **counts, by_epoch=False))

    def _get_value(self) -> list[float]:
        if self.last_step < self.warmup:
            share = self.last_step / self.warmup
            return [self.warmup_start + share * (base - self.warmup_start) for base in self.base_values]
        passed = min((self.last_step - self.skipped) / self.length, 1.0)
        share = (1 + math.cos(math.pi * passed)) / 2
        return [self.eta_min + share * (base - self.eta_min) for base in self.base_values]
