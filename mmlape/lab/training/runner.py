"""MMEngine's runner with checkpoints that survive a kill, safe reading of them, and resumable randomness.

:mod:`mmlape.lab.training.trainer` shows what a run does; here is how it differs from MMEngine's.
"""

import atexit
import contextlib
import copy
import gc
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.dist import master_only
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook, logger_hook
from mmengine.model import is_model_wrapper
from mmengine.optim import OptimWrapper
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop
from mmengine.runner import Runner as _Runner
from mmengine.runner.base_loop import BaseLoop
from mmengine.visualization import Visualizer
from mmengine.visualization.vis_backend import MLflowVisBackend, WandbVisBackend, force_init_env
from torch import nn
from torch.utils.data import DataLoader

from mmlape.checkpoint.closed_world import opened
from mmlape.checkpoint.opening import OpenedFile, guard_mmengine
from mmlape.checkpoint.plain_config import write_plain
from mmlape.errors import CheckpointError, ConfigError, MMLaPEError, NotFiniteError
from mmlape.files import atomic_path
from mmlape.lab.config.known_keys import runner_arguments
from mmlape.lab.datasets.fraction import data_fraction, with_fraction
from mmlape.lab.datasets.transforms import guard_loading
from mmlape.lab.model_weights import check_initialised, classes_of_data, load_model, recorded_of
from mmlape.lab.registry import VISBACKENDS
from mmlape.lab.runs.failures import building
from mmlape.lab.runs.record import Recorder
from mmlape.lab.runs.resume import open_resumable
from mmlape.lab.runs.schema import Stop
from mmlape.lab.runs.signals import StopRequest
from mmlape.lab.training import hooks
from mmlape.lab.training.frozen.hook import views_of
from mmlape.lab.training.optim import InitialModel, group_parameters, quiet_logger
from mmlape.lab.training.plan import RunPlan
from mmlape.lab.training.seeding import (
    Batches,
    SeededDataset,
    prefer_deterministic_kernels,
    seeded_dataloader,
    set_random_states,
)
from mmlape.lab.training.workers import adopt, end_workers, plain_worker_errors, require_shared_memory

_NUMBERS = itertools.count(1)


def _write_metrics_once() -> None:
    """Let process 0 alone write the metrics of a test: MMEngine's hook lets all write one file at the same time."""
    if not hasattr(logger_hook.dump, '__wrapped__'):
        logger_hook.dump = master_only(logger_hook.dump)


class PlainConfig(Config):
    """A configuration whose text `read_plain` and MMEngine read back as it is, whatever stands in its texts."""

    @classmethod
    def of(cls, cfg: Config) -> 'PlainConfig':
        """Take over a configuration."""
        taken = cls.__new__(cls)
        taken.__setstate__(cfg.__getstate__())
        return taken

    @property
    def pretty_text(self) -> str:
        """The configuration as Python."""
        return write_plain(self.to_dict())


@VISBACKENDS.register_module()
class WandbBackend(WandbVisBackend):
    """MMEngine's back end; it would upload all Python files below the current folder, an environment's too."""

    @force_init_env
    def add_config(self, config: Config, **kwargs) -> None:
        """Record the config."""
        self._wandb.config.update(config.to_dict(), allow_val_change=True)


@VISBACKENDS.register_module()
class MlflowBackend(MLflowVisBackend):
    """MMEngine's back end; the store's address may hold a password, so it is not part of the config.

    The keys of the config are no parameters by default, since MLflow refuses lengths that configs have; the file is
    an artifact.
    """

    def __init__(self, save_dir: str, tracked_config_keys: tuple = (), **kwargs) -> None:
        store = os.environ.get('MLFLOW_TRACKING_URI') or f'sqlite:///{Path("mlflow.db").absolute()}'
        super().__init__(save_dir, tracking_uri=store, tracked_config_keys=tracked_config_keys, **kwargs)


class Runner(_Runner):
    """MMEngine's runner, changed where a run could be lost, mislabelled or made to run a checkpoint's code.

    Hooks of training use ``plan``, ``recorder`` and ``stop``, which a test lacks. ``initial`` is
    the model, if it is built already, and ``resumed`` the checkpoint that a run resumes from.
    """

    plan: RunPlan
    recorder: Recorder
    stop: StopRequest
    diff_rank_seed: bool

    def __init__(
        self,
        *args,
        cfg: Config,
        initial: InitialModel | None = None,
        plan: RunPlan | None = None,
        recorder: Recorder | None = None,
        stop: StopRequest | None = None,
        resumed: OpenedFile | None = None,
        **kwargs,
    ) -> None:
        self.initial, self.plan, self.recorder, self.stop, self.resumed = initial, plan, recorder, stop, resumed
        # work dir and checkpoints get the plain transforms, which the inferencers of the MM
        # packages look for
        stored = copy.deepcopy(cfg)
        guard_loading(cfg)  # the data loaders among the other arguments are parts of it
        super().__init__(*args, cfg=stored, **kwargs)

    @classmethod
    def from_cfg(
        cls,
        cfg: Config,
        initial: InitialModel | None = None,
        plan: RunPlan | None = None,
        recorder: Recorder | None = None,
        stop: StopRequest | None = None,
        resumed: OpenedFile | None = None,
    ) -> 'Runner':
        """Build a runner with a state of its own.

        MMEngine shares it between runs started in the same second.
        """
        guard_mmengine()
        _write_metrics_once()
        cfg = PlainConfig.of(copy.deepcopy(cfg))
        cfg.experiment_name = f'{cfg.get("experiment_name") or Path(cfg.work_dir).name}-{next(_NUMBERS)}'
        arguments = {key: cfg[key] for key in runner_arguments() if key in cfg}
        with building(cfg, 'the runner'):
            return cls(**arguments, cfg=cfg, initial=initial, plan=plan, recorder=recorder, stop=stop, resumed=resumed)

    def _log_env(self, env_cfg: dict) -> None:
        with opened():  # it asks compilers for their versions
            super()._log_env(env_cfg)

    def build_model(self, model: nn.Module | dict) -> nn.Module:
        """Build the model; one that is built already leaves random numbers as if it was built here."""
        if self.initial is None:
            return super().build_model(model)
        set_random_states(self.initial.states)
        return self.initial.model

    def set_randomness(
        self, seed: int | None, diff_rank_seed: bool | None = None, deterministic: bool | None = None
    ) -> None:
        """Seed every process alike, because samplers need that, and prefer deterministic kernels if asked to.

        ``diff_rank_seed`` is for :class:`mmlape.lab.training.hooks.ReseedHook`; None stands for True.
        """
        super().set_randomness(seed)
        self.diff_rank_seed, self._deterministic = diff_rank_seed is not False, bool(deterministic)
        if deterministic:
            prefer_deterministic_kernels()

    @staticmethod
    def build_dataloader(dataloader: DataLoader | dict, *args, **kwargs) -> DataLoader:
        """Build a data loader whose workers leave signals to this process."""
        if isinstance(dataloader, dict) and not dataloader.get('num_workers'):
            # which torch refuses without any
            only_of_workers = ('persistent_workers', 'prefetch_factor', 'timeout')
            dataloader = {key: value for key, value in dataloader.items() if key not in only_of_workers}
        built = _Runner.build_dataloader(dataloader, *args, **kwargs)
        adopt(built)
        return built

    def build_train_loop(self, loop: BaseLoop | dict) -> BaseLoop:
        """Build the loop on samples that are seeded by their position (see :mod:`mmlape.lab.training.seeding`)."""
        if isinstance(loop, BaseLoop):
            return loop
        loader, fraction = self._train_dataloader, data_fraction(self.cfg)
        if fraction is not None:
            dataset = with_fraction(loader['dataset'], fraction, self.seed, self.plan.batch.total)
            loader = type(loader)(loader, dataset=dataset)
        per_seed = bool(views_of(self.cfg) and self.cfg.cache_features.get('per_seed'))
        self._train_dataloader = seeded_dataloader(loader, views=views_of(self.cfg), per_seed=per_seed)
        built = self._build_loop('train', super().build_train_loop, loop)
        batches = built.dataloader.batch_sampler
        if isinstance(built, IterBasedTrainLoop) and hasattr(batches, 'skip'):
            built.dataloader_iterator = Batches(built.dataloader)
        elif isinstance(built, EpochBasedTrainLoop) and getattr(batches.sampler, 'endless', False):
            raise ConfigError(
                f'train_dataloader.sampler ({self.cfg.train_dataloader.sampler.type}) has no end, so the first epoch '
                "would have none: set train_dataloader.sampler.type='DefaultSampler'"
            )
        return built

    def build_val_loop(self, loop: BaseLoop | dict) -> BaseLoop:
        """Build the loop of evaluations while training."""
        loader = self._val_dataloader
        if views_of(self.cfg) and isinstance(loader, dict):
            self._val_dataloader = type(loader)(loader, dataset=dict(type=SeededDataset, dataset=loader['dataset']))
        return self._build_loop('val', super().build_val_loop, loop)

    def build_test_loop(self, loop: BaseLoop | dict) -> BaseLoop:
        """Build the loop of a test."""
        return self._build_loop('test', super().build_test_loop, loop)

    def _build_loop(self, split: str, build: Callable, loop: BaseLoop | dict) -> BaseLoop:
        """Build data loader and evaluator of a split, then its loop, which would build them without naming the key."""
        loader, evaluator = vars(self)[f'_{split}_dataloader'], vars(self).get(f'_{split}_evaluator')
        if isinstance(loader, dict):
            with building(self.cfg, f'{split}_dataloader'):
                loader = self.build_dataloader(loader, seed=self.seed)
            setattr(self, f'_{split}_dataloader', loader)
            if not len(loader):
                raise ConfigError(
                    f'{self.cfg.filename}: {split}_dataloader has no batch: its {len(loader.dataset)} images do not '
                    f'fill one of {split}_dataloader.batch_size={self.cfg[f"{split}_dataloader"].batch_size}'
                )
            require_shared_memory(loader, f'{split}_dataloader')
        if isinstance(evaluator, dict | list):
            with building(self.cfg, f'{split}_evaluator'):
                setattr(self, f'_{split}_evaluator', self.build_evaluator(evaluator))
        with building(self.cfg, f'{split}_cfg'):
            return build(loop)

    def build_param_scheduler(self, scheduler: dict | list) -> list | dict:
        """Build the schedulers."""
        with building(self.cfg, 'param_scheduler'):
            return super().build_param_scheduler(scheduler)

    def register_hooks(self, default_hooks: dict | None = None, custom_hooks: list | None = None) -> None:
        """Build the hooks."""
        with building(self.cfg, 'default_hooks'):
            self.register_default_hooks(default_hooks)
        with building(self.cfg, 'custom_hooks'):
            self.register_custom_hooks(custom_hooks or [])

        if self._train_dataloader is None:
            self._hooks = [hook for hook in self._hooks if not _is_of_training(hook)]

    def call_hook(self, fn_name: str, **kwargs) -> None:
        """Call all hooks, as MMEngine does; note which one ends training."""
        for hook in self._hooks:
            if not hasattr(hook, fn_name):
                continue
            try:
                getattr(hook, fn_name)(self, **kwargs)
            except TypeError as error:
                raise TypeError(f'{error} in {hook}') from None
            stops = getattr(self._train_loop, 'stop_training', False) and self.iter < self.max_iters
            if stops and not self.recorder.record.stopped:
                self.note_stop(hook, in_iteration=fn_name == 'after_train_iter')

    def note_stop(self, hook: Hook, in_iteration: bool = False) -> None:
        """Record that a hook ends training now, also for a run that is killed before it has ended."""
        self.recorder.record.stopped = Stop(
            hook=type(hook).__name__, cause=hooks.cause_of_stop(hook), iter=self.iter + in_iteration
        )
        self.recorder.write()

    def build_visualizer(self, visualizer: Visualizer | dict | None = None) -> Visualizer:
        """Build a visualiser of this run's own: one of the same name would log into an earlier run's folder."""
        if isinstance(visualizer, dict):
            visualizer = type(visualizer)(visualizer, name=self._experiment_name)
        with building(self.cfg, 'visualizer'):
            return super().build_visualizer(visualizer)

    def resume(self, *args, **kwargs) -> None:
        """Resume from a checkpoint, also from one in the middle of an epoch."""
        super().resume(*args, **kwargs)
        loop = self.train_loop
        if isinstance(loop, EpochBasedTrainLoop) and loop.iter % len(loop.dataloader):
            loop.dataloader.batch_sampler.skip(loop.iter)

    def build_evaluator(self, evaluator: dict | list | Evaluator) -> Evaluator:
        """Build an evaluator that gathers results under the work dir instead of the current directory.

        A metric that reads more of the model than its predictions is attached to it.
        """
        built = super().build_evaluator(evaluator)
        for metric in built.metrics:
            if hasattr(metric, 'attach'):
                metric.attach(self.bare_model)
            if getattr(metric, 'collect_dir', '') is None and metric.collect_device == 'cpu':
                metric.collect_dir = os.path.join(self.work_dir, '.gather')
        return built

    def build_optim_wrapper(self, optim_wrapper: OptimWrapper | dict) -> OptimWrapper:
        """Build the optimiser and log one line per group, not three per parameter."""
        if isinstance(optim_wrapper, OptimWrapper):
            return optim_wrapper
        with quiet_logger(), building(self.cfg, 'optim_wrapper'):
            built = super().build_optim_wrapper(optim_wrapper)
        for group in group_parameters(self.bare_model, built):
            self.logger.info(f'optimiser group: {group}')
        return built

    def scale_lr(self, optim_wrapper: OptimWrapper, auto_scale_lr: dict | None = None) -> None:
        """Multiply learning rates by total batch / ``base_batch_size``.

        The total includes accumulation.
        """
        if not auto_scale_lr or not auto_scale_lr.get('enable', False):
            return
        ratio = self.plan.batch.total / auto_scale_lr['base_batch_size']
        self.logger.info(f'learning rates are multiplied by {ratio:g} (--auto-scale-lr)')
        for group in optim_wrapper.optimizer.param_groups:
            group['lr'] *= ratio

    @property
    def bare_model(self) -> nn.Module:
        """The model without the wrapper of distributed training."""
        return self.model.module if is_model_wrapper(self.model) else self.model

    def load_checkpoint(self, filename: str | OpenedFile, *args, **kwargs) -> dict:
        """Load the checkpoint to resume from.

        No object in it is unpickled and no configuration in it is run.

        Raises:
            CheckpointError: The file is unreadable, is no training checkpoint, or belongs to
                another model.
        """
        opened = open_resumable(filename)
        meta = {key: value for key, value in opened.meta.items() if key != 'config'}
        checkpoint = dict(opened.content, meta=meta)
        self.call_hook('after_load_checkpoint', checkpoint=checkpoint)
        file = OpenedFile(checkpoint, opened.path)
        load_model(self.bare_model, file, classes=classes_of_data(self.train_dataloader.dataset))
        self._has_loaded = True
        return checkpoint

    def _init_model_weights(self) -> None:
        super()._init_model_weights()
        check_initialised(self.bare_model)

    def load_or_resume(self) -> None:
        """Resume from ``load_from``, or load its weights.

        All of them, unless ``load_strict=False``; a PE is resized. Tensors whose names begin as
        ``load_fresh`` says keep their initial values.
        """
        if not self._has_loaded and self._load_from is not None:
            if self._resume:
                opened, self.resumed = self.resumed or self._load_from, None  # the run may delete the file later
                try:
                    self.resume(opened)
                except MMLaPEError:
                    raise
                # of another optimiser or schedule
                except (KeyError, TypeError, ValueError, RuntimeError) as error:
                    reason = ' '.join(f'{type(error).__name__}: {error}'.split())
                    message = f'{self._load_from} cannot be resumed with this configuration: {reason}'
                    raise CheckpointError(message) from error
            else:
                options = dict(strict=self.cfg.get('load_strict', True), fresh=self.cfg.get('load_fresh', ()))
                options['classes'] = classes_of_data(self.train_dataloader.dataset)
                load_model(self.bare_model, self._load_from, resize=True, **options)
            self._has_loaded = True

    def train(self) -> nn.Module:
        """Train; see :meth:`_with_workers`."""
        if not gc.isenabled():  # the start-up ends here: what is in use is not searched again
            gc.enable()
            gc.collect()
            gc.freeze()
            atexit.register(gc.unfreeze)  # else Triton's bindings complain of leaks at the end
        with self._with_workers():
            return super().train()

    def test(self) -> dict:
        """Test; see :meth:`_with_workers`."""
        with self._with_workers():
            return super().test()

    @contextlib.contextmanager
    def _with_workers(self) -> Iterator[None]:
        """End the workers of the data loaders at the end, and shorten their errors."""
        with plain_worker_errors():
            try:
                yield
            finally:
                end_workers(self._train_loop, self._val_loop, self._test_loop)

    @master_only
    def dump_config(self) -> None:
        """Write the configuration to the work dir; a test leaves the training run's there alone."""
        if self._train_dataloader is not None:
            with atomic_path(Path(self.work_dir) / Path(self.cfg.filename or f'{self.timestamp}.py').name) as partial:
                self.cfg.dump(partial)

    @master_only
    def save_checkpoint(self, out_dir: str, filename: str, *args, meta: dict | None = None, **kwargs) -> None:
        """Write a checkpoint atomically on rank 0."""
        kwargs['meta'] = {**(meta or {}), **recorded_of(self.bare_model)}
        with atomic_path(Path(out_dir) / filename) as partial:
            super().save_checkpoint(out_dir, partial.name, *args, **kwargs)
            with open(partial, 'rb') as file:
                os.fsync(file.fileno())  # a power cut after the move must not leave an empty file

    def check_finite(self) -> None:
        """Raise NotFiniteError if a weight is NaN or infinite, naming the first one."""
        for name, parameter in self.bare_model.named_parameters():
            if not torch.isfinite(parameter).all():
                raise NotFiniteError(
                    f'weight {name} is not finite after iteration {self.iter + 1}: no checkpoint is written from it'
                )


def _is_of_training(hook: Hook) -> bool:
    """Return whether a hook acts in training or validations, and in no test."""
    stages = hook.get_triggered_stages()
    acts_in = {split: any(f'_{split}' in stage for stage in stages) for split in ('train', 'val', 'test')}
    return (acts_in['train'] or acts_in['val']) and not acts_in['test']
