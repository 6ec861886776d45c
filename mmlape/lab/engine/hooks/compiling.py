"""The hook that compiles the backbone."""

import time
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from torch import nn

from mmlape.errors import ConfigError
from mmlape.lab.engine.compiling import KEY, SIZES, allow_variants, check_compile, compile_mode
from mmlape.lab.registry import HOOKS


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
        self.started: float | None = None

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
        """Let go of what the last replay of a CUDA graph has left, and start the clock of the first iteration."""
        if self.mode == 'graphs':
            torch.compiler.cudagraph_mark_step_begin()
        if self.mode and self.started is None:
            self.started = time.monotonic()

    def after_train_iter(self, runner, batch_idx: int, data_batch=None, outputs=None) -> None:
        """Log how long the first iteration took."""
        if self.started:
            seconds, self.started = time.monotonic() - self.started, 0.0
            runner.logger.info(f'compiled: the first iteration took {seconds:.0f} s')

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
