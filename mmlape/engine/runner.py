"""MMEngine's runner with checkpoints that survive a kill, safe reading of them, and resumable randomness."""

import copy
import itertools
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.dist import master_only
from mmengine.evaluator import Evaluator
from mmengine.model import is_model_wrapper
from mmengine.optim import OptimWrapper, OptimWrapperDict
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop
from mmengine.runner import Runner as _Runner
from mmengine.runner.base_loop import BaseLoop
from torch import nn

from mmlape.checkpoint import load_model, read_checkpoint
from mmlape.checkpoint.loading import fill_model
from mmlape.checkpoint.reading import guard_mmengine
from mmlape.engine.batch import batch_plan
from mmlape.engine.distributed.sharding import ShardedModel, whole, whole_states
from mmlape.engine.optim import group_parameters, quiet_logger
from mmlape.engine.seeding import Batches, seeded_dataloader
from mmlape.errors import CheckpointError, MMLaPEError, NotFiniteError

_NUMBERS = itertools.count(1)
RESUME_KEYS = ('state_dict', 'optimizer', 'meta', 'message_hub')


def read_resumable(path: str | Path, map_location: str = 'cpu') -> dict:
    """Reads a checkpoint to go on from, which holds the optimiser's state and the position beside the weights.

    Raises:
        CheckpointError: If it holds weights only.
    """
    checkpoint = read_checkpoint(path, map_location)
    missing = [key for key in RESUME_KEYS if not isinstance(checkpoint.get(key), Mapping)]
    missing += [f'meta.{key}' for key in ('iter', 'epoch') if not missing and key not in checkpoint['meta']]
    if missing:
        raise CheckpointError(
            f'{path} cannot be resumed, it holds no {", ".join(missing)}: give a checkpoint named iter_N or epoch_N, '
            'or start a new run from its weights with --cfg-options load_from=PATH'
        )
    return checkpoint


class Runner(_Runner):
    """MMEngine's runner, changed where a run could be lost, mislabelled or made to run a checkpoint's code."""

    @classmethod
    def from_cfg(cls, cfg: Config) -> 'Runner':
        """Builds a runner whose state is its own; MMEngine shares it between runs begun in the same second."""
        guard_mmengine()
        cfg = copy.deepcopy(cfg)
        cfg.experiment_name = f'{cfg.get("experiment_name") or Path(cfg.work_dir).name}-{next(_NUMBERS)}'
        return super().from_cfg(cfg)

    def build_train_loop(self, loop: BaseLoop | dict) -> BaseLoop:
        """Builds the loop on samples that are seeded by their position (see :mod:`mmlape.engine.seeding`)."""
        if not isinstance(loop, BaseLoop):
            self._train_dataloader = seeded_dataloader(self._train_dataloader)
        built = super().build_train_loop(loop)
        if isinstance(built, IterBasedTrainLoop) and hasattr(built.dataloader.batch_sampler, 'skip'):
            built.dataloader_iterator = Batches(built.dataloader)
        return built

    def resume(self, *args, **kwargs) -> None:
        """Goes on from a checkpoint, also from one in the middle of an epoch."""
        super().resume(*args, **kwargs)
        loop = self.train_loop
        if isinstance(loop, EpochBasedTrainLoop) and loop.iter % len(loop.dataloader):
            loop.dataloader.batch_sampler.skip(loop.iter)

    def build_evaluator(self, evaluator: dict | list | Evaluator) -> Evaluator:
        """Builds an evaluator that gathers results under the work dir instead of the current directory."""
        built = super().build_evaluator(evaluator)
        for metric in built.metrics:
            if getattr(metric, 'collect_dir', '') is None and metric.collect_device == 'cpu':
                metric.collect_dir = os.path.join(self.work_dir, '.gather')
        return built

    def build_optim_wrapper(self, optim_wrapper: OptimWrapper | dict) -> OptimWrapper:
        """Builds the optimiser and logs its groups in a line each, not every parameter in three."""
        if isinstance(optim_wrapper, OptimWrapper):
            return optim_wrapper
        with quiet_logger():
            built = super().build_optim_wrapper(optim_wrapper)
        for group in group_parameters(self.bare_model, built):
            self.logger.info(f'optimiser group: {group}')
        return built

    def scale_lr(self, optim_wrapper: OptimWrapper, auto_scale_lr: dict | None = None) -> None:
        """Multiplies learning rates by total batch / ``base_batch_size``, accumulation counted in."""
        if not auto_scale_lr or not auto_scale_lr.get('enable', False):
            return
        ratio = batch_plan(self.cfg, self.world_size)['total_batch'] / auto_scale_lr['base_batch_size']
        self.logger.info(f'learning rates are multiplied by {ratio:g} (--auto-scale-lr)')
        wrappers = optim_wrapper.values() if isinstance(optim_wrapper, OptimWrapperDict) else [optim_wrapper]
        for wrapper in wrappers:
            for group in wrapper.optimizer.param_groups:
                group['lr'] *= ratio

    @property
    def bare_model(self) -> nn.Module:
        """The model without the wrapper of distributed training."""
        return self.model.module if is_model_wrapper(self.model) else self.model

    def load_checkpoint(self, filename: str, map_location='cpu', **kwargs) -> dict:
        """Loads a checkpoint to go on from; no object in it is unpickled and no configuration in it is run.

        Raises:
            CheckpointError: If the file is unreadable, is no training checkpoint, or is another model's.
        """
        checkpoint = read_resumable(filename, map_location)
        checkpoint['meta'].pop('config', None)
        self.call_hook('after_load_checkpoint', checkpoint=checkpoint)
        fill_model(self.bare_model, checkpoint, filename)
        self._has_loaded = True
        return checkpoint

    def load_or_resume(self) -> None:
        """Resumes from ``load_from``, or begins with the weights there: all of them, unless ``load_strict=False``.

        Then a model that is to be trained in shards is sharded.
        """
        self._load_or_resume()
        if isinstance(self.model, ShardedModel) and self.optim_wrapper is not None:
            self.model.shard(self.optim_wrapper)

    def _load_or_resume(self) -> None:
        if self._has_loaded or self._load_from is None:
            return
        if self._resume:
            self._go_on_from(self._load_from)
        else:
            load_model(self.bare_model, self._load_from, strict=self.cfg.get('load_strict', True))
        self._has_loaded = True

    def _go_on_from(self, path: str) -> None:
        try:
            self.resume(path)
        except MMLaPEError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as error:  # the state of another optimiser or schedule
            reason = ' '.join(f'{type(error).__name__}: {error}'.split())
            raise CheckpointError(f'{path} cannot be resumed with this configuration: {reason}') from error

    def dump_config(self) -> None:
        """Leaves a training run's configuration alone when its work dir is used for a test."""
        if self._train_dataloader is not None:
            super().dump_config()

    def save_checkpoint(self, *args, save_optimizer: bool = True, **kwargs) -> None:
        """Writes beside the place and moves there when it is whole, so that a kill leaves no half checkpoint.

        Rank 0 writes; where the model is sharded, this is a collective call.
        """
        with whole_states(self.model, self.optim_wrapper if save_optimizer else None):
            self._save_checkpoint(*args, save_optimizer=save_optimizer, **kwargs)

    @master_only
    def _save_checkpoint(self, out_dir: str, filename: str, *args, **kwargs) -> None:
        if '://' in str(out_dir):
            super().save_checkpoint(out_dir, filename, *args, **kwargs)
            return
        part = os.path.join(out_dir, f'{filename}.part')
        try:
            super().save_checkpoint(out_dir, f'{filename}.part', *args, **kwargs)
            with open(part, 'rb') as file:
                os.fsync(file.fileno())
            os.replace(part, os.path.join(out_dir, filename))
        except BaseException:
            Path(part).unlink(missing_ok=True)  # on a full disk every byte is wanted
            raise

    def check_finite(self) -> None:
        """Raises NotFiniteError if a weight is NaN or infinite, naming the first one."""
        for name, parameter in self.bare_model.named_parameters():
            if not torch.isfinite(whole(parameter)).all():
                raise NotFiniteError(
                    f'weight {name} is not finite after iteration {self.iter + 1}: no checkpoint is written from it'
                )
