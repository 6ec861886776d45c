"""A run's model and its optimiser: the rules of each parameter, its groups, and bfloat16 that also runs on the CPU."""

import contextlib
import copy
import difflib
import inspect
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from mmcv.cnn.bricks.transformer import MultiheadAttention
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.optim import AmpOptimWrapper, DefaultOptimWrapperConstructor, OptimWrapper, build_optim_wrapper
from mmengine.registry import MODELS as ROOT_MODELS
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS as ROOT_CONSTRUCTORS
from mmengine.registry import OPTIMIZERS, init_default_scope
from mmengine.runner.amp import autocast
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from mmlape.bf16 import require_right_convolutions
from mmlape.checkpoint import gate
from mmlape.checkpoint.opening import OpenedFile
from mmlape.checkpoint.plain_config import read_plain
from mmlape.errors import ConfigError, require_choice
from mmlape.lab.config.stored_config import config_of_checkpoint
from mmlape.lab.model_weights import position_parameters
from mmlape.lab.recipe import OF_PRECISION, Recipe
from mmlape.lab.registry import OPTIM_WRAPPER_CONSTRUCTORS, OPTIM_WRAPPERS
from mmlape.lab.runs.failures import building
from mmlape.lab.training.frozen.part import outermost_frozen
from mmlape.lab.training.seeding import isolated, random_states
from mmlape.param_rules import ParamRules, groups_of, require_known, rules_of, with_position_decay


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


AMP = {
    'bf16': (BFloat16OptimWrapper, dict(type='mmlape.BFloat16OptimWrapper')),
    'fp16': (AmpOptimWrapper, dict(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic')),
}
"""What ``--amp`` makes of the optimiser's wrapper; fp16 is for GPUs only."""


def set_amp(recipe: Recipe, dtype: str) -> None:
    """Let a recipe train in mixed precision; its config changes in place."""
    require_choice('--amp', dtype, AMP)
    part = recipe.wrapper
    if part.cls not in (OptimWrapper, AmpOptimWrapper, BFloat16OptimWrapper):
        raise ConfigError(
            f'--amp cannot replace the optim_wrapper {part.name}: set its precision in the configuration'
        )
    for key in ('dtype', 'loss_scale'):
        part.cfg.pop(key, None)
    cls, options = AMP[dtype]
    part.cfg.update(options)
    recipe.wrapper = replace(part, cls=cls)


def check_precision(dtype: str | None) -> None:
    """Raise ConfigError if this machine cannot train in a precision that ``--amp`` accepts."""
    if dtype == 'fp16' and not torch.cuda.is_available():
        raise ConfigError('--amp fp16 needs a GPU: use --amp bf16 on the CPU')


@OPTIM_WRAPPER_CONSTRUCTORS.register_module(
    name=['ParamwiseOptimWrapperConstructor', 'LayerDecayOptimWrapperConstructor']
)
class ParamwiseOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """MMEngine's constructor, with rules that do not displace each other.

    ``paramwise_cfg`` has MMEngine's keys. A custom key applies to every parameter whose name
    contains it, but only to what it sets: of the keys with ``lr_mult`` the longest scales the
    learning rate, of those with ``decay_mult`` the longest scales the weight decay. So
    ``backbone=dict(lr_mult=0.1)`` leaves norms and biases without decay. What no key sets,
    ``norm_decay_mult``, ``bias_decay_mult``, ``bias_lr_mult`` and so on set. ``position_lr_mult``
    and ``position_decay_mult``, 0 by default, are those of position encodings, whatever the kind:
    tables, absolute and relative, frequencies, convolutions. ``layer_decay_rate``, of mmpretrain's
    constructor, scales the resulting learning rate, also in detectors and segmentors, whose
    ``backbone`` knows a parameter's depth. Parameters whose names begin with one of
    ``layer_decay_first`` train at the rate of the embeddings, as Mask2Former's queries and output
    layers do in ViT-Adapter's public code.

    Parameters of equal options are one group of the optimiser; MMEngine makes one for each. One
    that several modules share is there once, by the rules for the first of its names.

    Raises:
        ConfigError: ``paramwise_cfg`` has an unknown key. On the call, if it scales a learning rate
            that ``optimizer`` does not set, if it has ``layer_decay_rate`` and nothing knows a
            parameter's depth, or if it has ``layer_decay_first`` without that rate or with the
            beginning of no name.
    """

    def __init__(self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None):
        weight_decay = (optim_wrapper_cfg.get('optimizer') or {}).get('weight_decay')
        super().__init__(optim_wrapper_cfg, with_position_decay(paramwise_cfg or {}, weight_decay))

    def _validate_cfg(self) -> None:
        super()._validate_cfg()
        require_known(self.paramwise_cfg, 'optim_wrapper.')

    def add_params(self, params: list[dict], module: nn.Module, **kwargs) -> None:
        """Add the trained parameters of ``module`` to ``params``, in groups of equal options."""
        params += groups_of(module, self.paramwise_cfg, self.base_lr, self.base_wd, position_parameters(module))

    def rules(self, model: nn.Module) -> dict[str, ParamRules]:
        """Return the rules of every trained parameter, by its name."""
        return rules_of(model, self.paramwise_cfg, position_parameters(model))


def parameter_rules(model: nn.Module, optim_wrapper: dict) -> dict[str, tuple[str, str]]:
    """Return what scales learning rate and weight decay of every trained parameter.

    None with other constructors.
    """
    constructor = optim_wrapper.get('constructor', 'DefaultOptimWrapperConstructor')
    if isinstance(constructor, str):
        constructor = ROOT_CONSTRUCTORS.get(constructor)
    if not issubclass(constructor, ParamwiseOptimWrapperConstructor):
        return {}
    decided = constructor(optim_wrapper, optim_wrapper.get('paramwise_cfg')).rules(model)
    return {name: (', '.join(map(str, part.rates)), str(part.decay or '')) for name, part in decided.items()}


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
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    # mmpretrain's classifiers write defaults into their data preprocessor's
    model_cfg = copy.deepcopy(cfg.model)
    if cfg.get('data_preprocessor') and 'data_preprocessor' not in model_cfg:
        model_cfg = dict(model_cfg, data_preprocessor=copy.deepcopy(cfg.data_preprocessor))
    _DROPOUT_LAYER.update(drop_prob=0.0)
    with building(cfg, 'model'):
        return ROOT_MODELS.build(model_cfg)


def started_model(file: OpenedFile) -> tuple[nn.Module, list[str]]:
    """Build the model of a checkpoint as its training started, with the files of weights that its config names.

    Nothing is downloaded.

    Returns:
        The model, and the names of its frozen parts.

    Raises:
        ConfigError: The file holds no config.
        CheckpointError: The config is more than plain values, or builds no model; or a file that it names is missing.
    """
    cfg = config_of_checkpoint(file)
    _name_files(cfg.model, read_plain(file.meta['cfg'], file.path)['model'])
    with gate.building(file.path, file.tensors), quiet_logger():
        model = build_model(cfg).train()
        model.init_weights()
    return model, outermost_frozen(model)


def _name_files(admitted: dict, stored: Mapping[str, Any]) -> None:
    """Restore what the gate leaves out of a config: how models are started."""
    for key, value in stored.items():
        if key == 'init_cfg':
            admitted[key] = value
        elif isinstance(value, Mapping):
            _name_files(admitted[key], value)


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


def check_optimizer(recipe: Recipe) -> None:
    """Raise ConfigError if there is no such optimiser: MMEngine reads the arguments of None before it says so."""
    part = recipe.optimizer
    if part.cls is None and isinstance(part.cfg.get('type'), str):
        close = difflib.get_close_matches(part.name, OPTIMIZERS.module_dict, n=2)
        hint = f': did you mean {" or ".join(close)}?' if close else ''
        raise ConfigError(f'{part.key}.type={part.name}: there is no such optimiser{hint}')


def parameter_groups(cfg: Config) -> list[ParameterGroup]:
    """Return the groups of the optimiser that ``cfg`` builds; see :func:`group_parameters`."""
    model, recipe = build_model(cfg), Recipe.of(cfg)
    check_optimizer(recipe)
    wrapper_cfg = recipe.wrapper.cfg.copy()
    if recipe.wrapper.is_a(AmpOptimWrapper):  # of a precision that this machine need not have
        for key in OF_PRECISION:
            wrapper_cfg.pop(key, None)
        wrapper_cfg['type'] = 'OptimWrapper'
    with quiet_logger(), building(cfg, 'optim_wrapper'):
        built = build_optim_wrapper(model, wrapper_cfg)
    return group_parameters(model, built, parameter_rules(model, wrapper_cfg))


def group_parameters(
    model: nn.Module, optim_wrapper: OptimWrapper, rules: dict[str, tuple[str, str]] | None = None
) -> list[ParameterGroup]:
    """Group a model's parameters by learning rate and weight decay, largest group first, frozen ones last.

    With the rules that :func:`parameter_rules` returns, groups are those of equal rules, too.
    """
    trained = {
        id(parameter): (group['lr'], group.get('weight_decay', 0.0))
        for group in optim_wrapper.optimizer.param_groups
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
