"""A run's model, its optimiser's groups as they are built, and a bfloat16 wrapper that also runs on the CPU."""

import contextlib
import copy
import inspect
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from mmcv.cnn.bricks.transformer import MultiheadAttention
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.optim import OptimWrapper, OptimWrapperDict, build_optim_wrapper
from mmengine.registry import MODELS as ROOT_MODELS
from mmengine.registry import init_default_scope
from mmengine.runner.amp import autocast
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from mmlape.bf16 import require_right_convolutions
from mmlape.errors import ConfigError
from mmlape.lab.engine.building import building
from mmlape.lab.engine.paramwise import parameter_rules
from mmlape.lab.engine.seeding import isolated, random_states
from mmlape.lab.registry import OPTIM_WRAPPERS


@OPTIM_WRAPPERS.register_module()
class BFloat16OptimWrapper(OptimWrapper):
    """Forward passes under bfloat16 autocast; its range is float32's, so losses need no scaling."""

    _is_tried = False  # whether the model's convolutions are right here

    @contextlib.contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Enter MMEngine's context for one training step.

        Raises:
            ConfigError: Before the first step, if this processor convolves wrongly in bfloat16.
        """
        if not self._is_tried:
            require_right_convolutions(model)
            self._is_tried = True
        with super().optim_context(model), autocast(dtype=torch.bfloat16), float32_for_mmcv(model):
            yield


@contextlib.contextmanager
def float32_for_mmcv(model: nn.Module) -> Iterator[None]:
    """Give MMCV's compiled ops float32: they know no bfloat16.

    These are RoIAlign, in modules with ``roi_layers``, and the suppression of overlapping boxes
    (NMS), behind those with a ``prior_generator``.
    """

    def cast(values):
        return tree_map_only(Tensor, lambda value: value.float() if value.is_floating_point() else value, values)

    with contextlib.ExitStack() as stack:
        for module in model.modules():
            if hasattr(module, 'roi_layers'):
                stack.enter_context(module.register_forward_pre_hook(lambda _, args: cast(args)))
            elif hasattr(module, 'prior_generator'):
                stack.enter_context(module.register_forward_hook(lambda _, args, out: cast(out)))
        yield


def set_amp(cfg: Config, dtype: str) -> None:
    """Make ``cfg`` train in mixed precision: 'bf16', or 'fp16' (GPUs only, with dynamic loss scaling)."""
    wrapper = cfg.optim_wrapper
    name = str(wrapper.get('type', 'OptimWrapper')).rpartition('.')[2]
    if name not in ('OptimWrapper', 'AmpOptimWrapper', 'BFloat16OptimWrapper'):
        raise ConfigError(f'--amp cannot replace the optim_wrapper {name}: set its precision in the configuration')
    for key in ('dtype', 'loss_scale'):
        wrapper.pop(key, None)
    if dtype == 'bf16':
        wrapper.type = 'mmlape.BFloat16OptimWrapper'
    elif dtype != 'fp16':
        raise ConfigError(f'--amp {dtype}: choose from bf16, fp16')
    else:
        wrapper.update(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic')


def check_precision(dtype: str | None) -> None:
    """Raise ConfigError if this machine cannot train in a precision that ``--amp`` accepts."""
    if dtype == 'fp16' and not torch.cuda.is_available():
        raise ConfigError('--amp fp16 needs a GPU: use --amp bf16 on the CPU')


@dataclass
class ParameterGroup:
    """Parameters that share learning rate and weight decay."""

    lr: float | None  # None for frozen parameters, as ``weight_decay`` is
    weight_decay: float | None
    # what scales ``lr`` and ``weight_decay``: empty where nothing does or it is not known
    rules: tuple[str, str] = ('', '')
    names: list[str] = field(default_factory=list)
    count: int = 0

    def __str__(self) -> str:
        rates = 'frozen' if self.lr is None else f'lr {self.lr:g}, weight decay {self.weight_decay:g}'
        return f'{rates}: {len(self.names)} tensors, {self.count:,} parameters'

    def patterns(self) -> list[str]:
        """Return the names with layer numbers replaced by ``*``, each pattern once."""
        return list(dict.fromkeys(re.sub(r'(?<=\.)\d+(?=\.)', '*', name) for name in self.names))


@contextlib.contextmanager
def quiet_logger(level: int = logging.WARNING) -> Iterator[None]:
    """Raise the log level: MMEngine logs up to three lines per parameter while it builds or initialises."""
    logger = MMLogger.get_current_instance()
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)


_DROPOUT_LAYER = inspect.signature(MultiheadAttention).parameters['dropout_layer'].default
"""A default that MMCV overwrites by the deprecated `dropout` of an attention, as DETR has it: attention in each later
model of the process would have that dropout, too."""


def build_model(cfg: Config) -> nn.Module:
    """Build the model of a configuration on the CPU, without loading weights."""
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    # mmpretrain's classifiers write defaults into their data preprocessor's
    model_cfg = copy.deepcopy(cfg.model)
    if cfg.get('data_preprocessor') and 'data_preprocessor' not in model_cfg:
        model_cfg = dict(model_cfg, data_preprocessor=copy.deepcopy(cfg.data_preprocessor))
    _DROPOUT_LAYER.update(drop_prob=0.0)
    with building(cfg, 'model'):
        return ROOT_MODELS.build(model_cfg)


class InitialModel(NamedTuple):
    """A model that is built before its runner, and the states of the random generators after that."""

    model: nn.Module
    states: tuple

    @classmethod
    def build(cls, cfg: Config, seed: int) -> 'InitialModel':
        """Build the model as a run with this seed starts with it.

        An error in its configuration is raised here, before anything is written and before MMEngine
        logs pages.
        """
        with quiet_logger(), isolated(seed):
            return cls(build_model(cfg), random_states())


def parameter_groups(cfg: Config) -> list[ParameterGroup]:
    """Return the groups of the optimiser that ``cfg`` builds; see :func:`group_parameters`."""
    model = build_model(cfg)
    wrapper_cfg = cfg.optim_wrapper.copy()
    if str(wrapper_cfg.get('type')).rpartition('.')[2] == 'AmpOptimWrapper':
        wrapper_cfg['type'] = 'OptimWrapper'
        for key in ('dtype', 'loss_scale'):
            wrapper_cfg.pop(key, None)
    with quiet_logger(), building(cfg, 'optim_wrapper'):
        built = build_optim_wrapper(model, wrapper_cfg)
    return group_parameters(model, built, parameter_rules(model, wrapper_cfg))


def group_parameters(
    model: nn.Module, optim_wrapper: OptimWrapper, rules: dict[str, tuple[str, str]] | None = None
) -> list[ParameterGroup]:
    """Group a model's parameters by learning rate and weight decay, largest group first, frozen ones last.

    With the rules that :func:`mmlape.lab.engine.paramwise.parameter_rules` returns, groups are those of
    equal rules, too.
    """
    wrappers = optim_wrapper.values() if isinstance(optim_wrapper, OptimWrapperDict) else [optim_wrapper]
    trained = {
        id(parameter): (group['lr'], group.get('weight_decay', 0.0))
        for wrapper in wrappers
        for group in wrapper.optimizer.param_groups
        for parameter in group['params']
        if parameter.requires_grad
    }
    groups: dict[tuple, ParameterGroup] = {}
    for name, parameter in model.named_parameters():
        rates = trained.get(id(parameter))
        key = (*rates, (rules or {}).get(name, ('', ''))) if rates else (None, None)
        group = groups.setdefault(key, ParameterGroup(*key))
        group.names.append(name)
        group.count += parameter.numel()
    return sorted(groups.values(), key=lambda group: (group.lr is None, -group.count))
