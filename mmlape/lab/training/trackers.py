"""MMEngine's back ends of Weights & Biases and MLflow, without what would give code or a password away."""

import os
from pathlib import Path

from mmengine.config import Config
from mmengine.visualization.vis_backend import MLflowVisBackend, WandbVisBackend, force_init_env

from mmlape.lab.registry import VISBACKENDS


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
