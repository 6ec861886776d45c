"""What of a model is compiled: its layers, the backbone as one graph, or the backbone as CUDA graphs."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from torch import nn

from mmlape.errors import ConfigError
from mmlape.lab.registry import HOOKS

KEY = 'compile_backbone'
MODES = ('layers', 'graphs')
"""What ``--compile`` takes, and the key beside True and options of ``torch.compile``."""
SIZES = 8
"""How many variants of one part are compiled; images of further sizes run as they are."""


def compile_mode(cfg: Mapping) -> str | None:
    """Return 'layers', 'graphs', 'backbone' (as one graph), or None, as a configuration says.

    Raises:
        ConfigError: It says something else, or what cannot be trained like this.
    """
    value = cfg.get(KEY)
    if value is None or value is False:
        return None
    if value is True or isinstance(value, dict):
        return 'backbone'
    if value not in MODES:
        raise ConfigError(f"{KEY}={value!r}: give 'layers', 'graphs', True, or a dict of options of torch.compile")
    if value == 'graphs' and (cfg.get('optim_wrapper') or {}).get('accumulative_counts', 1) > 1:
        raise ConfigError(
            f"{KEY}='graphs': gradients that accumulate stay in memory that the next replay overwrites: "
            'use --compile layers'
        )
    return value


def check_compile(mode: str | None) -> None:
    """Raise ConfigError if this machine cannot train in a mode."""
    if mode == 'graphs' and not torch.cuda.is_available():
        raise ConfigError('--compile graphs needs a GPU: use --compile layers on the CPU')


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
    images, and for any size from the second on. 'graphs' compiles the backbone as one graph and
    captures it as CUDA graphs in training, for the first eight sizes of images; further ones, and
    evaluations, whose images have sizes of their own, run as they are. True, or options of
    ``torch.compile``, compiles it as one graph for any size. Modules are compiled in place, so no
    name in a checkpoint changes.
    """

    changes_results = False

    def __init__(self) -> None:
        self.mode: str | None = None

    def before_run(self, runner) -> None:
        """Mark the backbone, which its first forward pass compiles, or raise ConfigError."""
        self.mode = compile_mode(runner.cfg)
        if self.mode is None:
            return
        check_compile(self.mode)
        if getattr(runner, 'deterministic', False) and torch.cuda.is_available():
            raise ConfigError(
                f'{KEY}: compiled deformable attention adds in any order: leave out --deterministic or this'
            )
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        if not hasattr(model, 'backbone'):
            raise ConfigError(f'{KEY}: {type(model).__name__} has no backbone')
        parts = _compile(model.backbone, self.mode, runner.cfg[KEY])
        what = 'the backbone is' if parts == 1 else f'{parts} parts of the backbone are'
        sizes = f', for up to {SIZES} sizes of images' if self.mode == 'graphs' else ''
        runner.logger.info(f'{what} compiled in the first iterations, which take minutes{sizes}')

    def before_train_iter(self, runner, batch_idx: int, data_batch=None) -> None:
        """Let go of what the last replay of a CUDA graph has left."""
        if self.mode == 'graphs':
            torch.compiler.cudagraph_mark_step_begin()

    def before_test(self, runner) -> None:
        """Mark the backbone where a test alone is run."""
        if self.mode is None:
            self.before_run(runner)

    def before_val(self, runner) -> None:
        """Evaluate without graphs."""
        if self.mode == 'graphs':
            torch.compiler.set_stance('force_eager')

    def after_val(self, runner) -> None:
        """Train with them again."""
        if self.mode == 'graphs':
            torch.compiler.set_stance('default')


def _compile(backbone: nn.Module, mode: str, options: Any) -> int:
    """Compile a backbone in place; return how many parts of it are compiled, each alone."""
    if mode == 'graphs':
        allow_variants([backbone])
        backbone.compile(mode='reduce-overhead', dynamic=False)
        return 1
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
