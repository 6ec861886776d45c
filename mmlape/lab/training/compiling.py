"""What of a model is compiled: its layers, each alone, or the backbone as one graph."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from torch import nn

from mmlape.errors import ConfigError
from mmlape.lab.registry import HOOKS

KEY = 'compile_backbone'
SIZES = 8
"""How many variants of one part are compiled; images of further sizes run as they are."""


def compile_mode(cfg: Mapping) -> str | None:
    """Return 'layers', 'backbone' (as one graph), or None, as a configuration says; ConfigError for another value."""
    value = cfg.get(KEY)
    if value is None or value is False:
        return None
    if value is True or isinstance(value, dict):
        return 'backbone'
    if value != 'layers':
        raise ConfigError(f"{KEY}={value!r}: give 'layers', True, or a dict of options of torch.compile")
    return value


def allow_variants(units: Sequence[nn.Module]) -> None:
    """Let as many variants of a code be compiled as parts that share it have: in sizes and in their constants."""
    import torch._dynamo  # here: it takes a second

    config, number = torch._dynamo.config, SIZES * len(units)
    config.recompile_limit = max(config.recompile_limit, number)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, SIZES * number)


@HOOKS.register_module()
class CompileBackboneHook(Hook):
    """Apply the configuration's ``compile_backbone``; heads, whose shapes follow the data, stay as they are.

    'layers' compiles each part that the backbone names by ``compile_units()``, for the first size of
    images, and for any size from the second on. True, or options of ``torch.compile``, compiles the
    backbone as one graph for any size. Modules are compiled in place, so no name in a checkpoint changes.
    """

    changes_results = False

    def before_run(self, runner) -> None:
        """Mark the backbone, which its first forward pass compiles, or raise ConfigError."""
        mode = compile_mode(runner.cfg)
        if mode is None:
            return
        if getattr(runner, 'deterministic', False) and torch.cuda.is_available():
            raise ConfigError(
                f'{KEY}: compiled deformable attention adds in any order: leave out --deterministic or this'
            )
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        if not hasattr(model, 'backbone'):
            raise ConfigError(f'{KEY}: {type(model).__name__} has no backbone')
        parts = _compile(model.backbone, mode, runner.cfg[KEY])
        what = 'the backbone is' if parts == 1 else f'{parts} parts of the backbone are'
        runner.logger.info(f'{what} compiled in the first iterations, which take minutes')


def _compile(backbone: nn.Module, mode: str, options: Any) -> int:
    """Compile a backbone in place; return how many parts of it are compiled, each alone."""
    if mode == 'backbone':
        backbone.compile(**{'dynamic': True, **({} if options is True else options)})
        return 1
    if not hasattr(backbone, 'compile_units'):
        raise ConfigError(
            f"{KEY}='layers': {type(backbone).__name__} names no parts, by a method compile_units(): "
            f'{KEY}=True compiles it as one'
        )
    units = list(backbone.compile_units())
    allow_variants(units)
    for unit in units:
        unit.compile()
    return len(units)
