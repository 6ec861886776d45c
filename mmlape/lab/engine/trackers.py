"""Experiment trackers beside MMEngine's own log, each a visualizer backend.

TensorBoard, Weights & Biases, MLflow.
"""

import argparse
import contextlib
import importlib.util
import os
from pathlib import Path

import portalocker
from mmengine.config import Config
from mmengine.visualization.vis_backend import MLflowVisBackend, WandbVisBackend, force_init_env

from mmlape.errors import ConfigError
from mmlape.lab.engine.options import TRACKERS
from mmlape.lab.engine.plan import default_work_dir
from mmlape.lab.registry import VISBACKENDS

PROJECT = 'mmlape'
"""Of Weights & Biases and MLflow, unless WANDB_PROJECT and MLFLOW_EXPERIMENT_NAME say otherwise."""
MLFLOW_FILE = Path('mlflow.db')


@VISBACKENDS.register_module()
class WandbBackend(WandbVisBackend):
    """MMEngine's backend; it would upload all Python files below the current folder, an environment's too."""

    @force_init_env
    def add_config(self, config: Config, **kwargs) -> None:
        """Record the config."""
        self._wandb.config.update(config.to_dict(), allow_val_change=True)


@VISBACKENDS.register_module()
class MlflowBackend(MLflowVisBackend):
    """MMEngine's backend; the store's address may hold a password, so it is not part of the config."""

    def __init__(self, save_dir: str, **kwargs) -> None:
        super().__init__(save_dir, tracking_uri=_store(), **kwargs)


def _store() -> str:
    return os.environ.get('MLFLOW_TRACKING_URI') or f'sqlite:///{MLFLOW_FILE.absolute()}'


def require_trackers(options: argparse.Namespace) -> list[str]:
    """Return the chosen trackers; ConfigError if the package of one is not installed."""
    chosen = [name for name in TRACKERS if getattr(options, name)]
    for name in chosen:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f'--{name} needs the package {name}: pip install {name}')
    return chosen


def add_trackers(cfg: Config, options: argparse.Namespace) -> None:
    """Make a run log to the chosen trackers, too, under the name of its work dir.

    Raises:
        ConfigError: The package of one is not installed, or MLflow's store cannot be used.
    """
    visualizer, work_dir = (cfg.get('visualizer') or dict(type='Visualizer'), default_work_dir(cfg, options.work_dir))
    for name in require_trackers(options):
        backends = visualizer.get('vis_backends') or [dict(type='LocalVisBackend')]
        if not any(name in str(backend.get('type')).lower() for backend in backends):
            cfg.visualizer = visualizer = dict(visualizer, vis_backends=[*backends, _backend(name, work_dir)])


def _backend(name: str, work_dir: Path) -> dict:
    """Return the config of a backend; runs of an arm are a group, and called '<arm>/seed_<S>'."""
    arm = work_dir.parent.name if work_dir.name.startswith('seed_') else work_dir.name
    run = arm if arm == work_dir.name else f'{arm}/{work_dir.name}'
    if name == 'wandb':
        project = os.environ.get('WANDB_PROJECT', PROJECT)
        start = dict(project=project, name=run, group=arm, dir=str(work_dir), resume='auto')
        return dict(
            type='mmlape.WandbBackend', init_kwargs=start, define_metric_cfg=[dict(name='*', step_metric='iter')]
        )
    if name == 'mlflow':
        return _mlflow(run, arm)
    return dict(type='TensorboardVisBackend')


def _mlflow(run: str, arm: str) -> dict:
    """Return MLflow's backend, and create its database and experiment, which runs that start at once cannot."""
    import mlflow

    uri, experiment = _store(), os.environ.get('MLFLOW_EXPERIMENT_NAME', PROJECT)
    remote = os.environ.get('MLFLOW_TRACKING_URI')
    try:
        lock = portalocker.Lock(f'{MLFLOW_FILE}.lock', timeout=600)
        with contextlib.nullcontext() if remote else lock:
            mlflow.set_tracking_uri(uri)
            mlflow.set_experiment(experiment)
    except (mlflow.MlflowException, portalocker.LockException, OSError) as error:
        raise ConfigError(f'--mlflow: {uri} cannot be used: {error}; MLFLOW_TRACKING_URI names another') from error
    # MLflow refuses keys and lengths that configs have, so that they are no parameters; the file is
    # an artifact
    more = dict(tags=dict(arm=arm), tracked_config_keys=())
    return dict(type='mmlape.MlflowBackend', exp_name=experiment, run_name=run, **more)
