"""A config as it is trained, read once: its parts, each with its class and the key that it came from."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmengine.config import Config

from mmlape.lab.registry import class_of


@dataclass(frozen=True)
class Part:
    """A part of a config that a class is built from."""

    key: str  # its place in the config, dotted
    cfg: Any  # the part itself, a dict: a change of it is one of the config
    cls: type | None  # None where it names no class, of which building tells

    @property
    def name(self) -> str:
        """The name of its class, or what the config has for it."""
        return self.cls.__name__ if self.cls else str(self.cfg.get('type'))

    @property
    def path(self) -> str:
        """The package and the name of its class, 'mmdet.CocoMetric'; '' without one."""
        return f'{self.cls.__module__.partition(".")[0]}.{self.cls.__name__}' if self.cls else ''

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """What its class is built from."""
        return inspect.signature(self.cls.__init__).parameters if self.cls else {}  # type: ignore[misc]

    def is_a(self, *classes: type) -> bool:
        """Return whether its class is one of these, or derived from one."""
        return self.cls is not None and issubclass(self.cls, classes)

    def __str__(self) -> str:
        """Return the key and the class, 'custom_hooks.0 (EMAHook)'."""
        return f'{self.key} ({self.name})'


PRECISIONS = {'OptimWrapper': None, 'AmpOptimWrapper': 'fp16', 'BFloat16OptimWrapper': 'bf16'}
"""Wrappers of an optimiser that differ in their precision alone, which `OF_PRECISION` are the keys of."""
OF_PRECISION = ('type', 'dtype', 'loss_scale')


@dataclass
class Recipe:
    """What a config trains with, and how."""

    cfg: Any  # the config
    model: Part
    loaders: dict[str, Any]  # of 'train', 'val' and 'test'; empty where the config has none
    loop: Part  # train_cfg; with no class where the config trains nothing
    wrapper: Part  # optim_wrapper
    optimizer: Part  # with no class where several optimisers have a constructor of theirs
    schedulers: list[Part]  # but those of several optimisers
    default_hooks: dict[str, Part]
    custom_hooks: list[Part]
    evaluators: list[Part]  # of the validation

    @classmethod
    def of(cls, cfg: Config | dict) -> 'Recipe':
        """Read a config."""
        scope = cfg.get('default_scope')

        def part(key: str, node: Any, registry: str, default: str | None = None) -> Part:
            return Part(key, node, class_of(node, scope, registry, default))

        def parts(key: str, nodes: Any, registry: str) -> list[Part]:
            listed = enumerate(nodes if isinstance(nodes, list | tuple) else [])
            return [part(f'{key}.{number}', one, registry) for number, one in listed if isinstance(one, Mapping)]

        keys = ('train_cfg', 'optim_wrapper', 'default_hooks', 'val_evaluator', 'param_scheduler')
        loop, wrapper, hooks, evaluators, schedule = (cfg.get(key) or {} for key in keys)
        kind = 'EpochBasedTrainLoop' if loop.get('by_epoch', not loop.get('max_iters')) else 'IterBasedTrainLoop'
        kinds = {'checkpoint': 'CheckpointHook'}
        schedulers = parts('param_scheduler', schedule, 'PARAM_SCHEDULERS')
        if 'type' in schedule:
            schedulers = [part('param_scheduler', schedule, 'PARAM_SCHEDULERS')]
        if isinstance(evaluators, Mapping):
            evaluators = evaluators.get('metrics', [evaluators] if evaluators else [])
        return cls(
            cfg,
            part('model', cfg.get('model') or {}, 'MODELS'),
            {split: cfg.get(f'{split}_dataloader') or {} for split in ('train', 'val', 'test')},
            part('train_cfg', loop, 'LOOPS', kind if loop else None),
            part('optim_wrapper', wrapper, 'OPTIM_WRAPPERS', 'OptimWrapper'),
            part('optim_wrapper.optimizer', wrapper.get('optimizer') or {}, 'OPTIMIZERS'),
            schedulers,
            {
                name: part(f'default_hooks.{name}', hook or {}, 'HOOKS', kinds.get(name))
                for name, hook in {'checkpoint': {}, **hooks}.items()
            },
            parts('custom_hooks', cfg.get('custom_hooks'), 'HOOKS'),
            parts('val_evaluator', evaluators, 'METRICS'),
        )

    @property
    def randomness(self) -> Mapping[str, Any]:
        """Arguments of MMEngine's `set_randomness`."""
        return self.cfg.get('randomness') or {}

    @property
    def precision(self) -> str | None:
        """'bf16' or 'fp16' if the optimiser's wrapper trains in mixed precision, else None."""
        if 'bfloat16' in str(self.wrapper.cfg.get('dtype')):
            return 'bf16'
        return PRECISIONS.get(self.wrapper.name)

    @property
    def base_batch(self) -> int | None:
        """Images of one optimiser step, for which the learning rate is; None where the config does not say."""
        return (self.cfg.get('auto_scale_lr') or {}).get('base_batch_size')

    @property
    def scales_rate(self) -> bool:
        """Whether the config has the learning rate scaled to another batch."""
        return bool((self.cfg.get('auto_scale_lr') or {}).get('enable'))

    @property
    def hooks(self) -> list[Part]:
        """Those of ``default_hooks`` and ``custom_hooks``."""
        return [*self.default_hooks.values(), *self.custom_hooks]

    @property
    def unit(self) -> str:
        """What the run is counted in, 'epochs' or 'iterations'."""
        return 'iterations' if self.loop.cfg.get('max_iters') else 'epochs'
