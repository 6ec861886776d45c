"""Inference: build a config's trained model, and run it on an image file."""

import copy
import warnings
from pathlib import Path

import torch
from mmengine import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.structures import BaseDataElement
from torch import nn

from mmlape.checkpoint import load_model, read_checkpoint
from mmlape.datasets.sources import iter_heads
from mmlape.engine.config import load_config
from mmlape.engine.evaluator import TASKS
from mmlape.errors import ConfigError


def init_model(
    config: str | Path | Config,
    checkpoint: str | Path | None,
    device: str | None = None,
    cfg_options: list[str] | dict | None = None,
) -> nn.Module:
    """Build a config's model for inference, with attributes ``cfg``, ``task``, ``classes`` and ``annotation_steps``.

    Args:
        config: A config, or its file. The checkpoint's class names, if it has any, replace the config's.
        checkpoint: Weights; None for an untrained model.
        device: Such as 'cpu'; None for a GPU if there is one.
        cfg_options: Overrides of the config.

    Raises:
        ConfigError: The config is of no known task, or there is no such device.
        CheckpointError: The weights cannot be read, or are not this model's.
    """
    cfg = copy.deepcopy(config) if isinstance(config, Config) else load_config(str(config), cfg_options)
    scope = cfg.get('default_scope')
    if scope not in TASKS:
        raise ConfigError(f'default_scope={scope!r}: inference is for models of {", ".join(TASKS)}')
    device, names = _device(device), None
    if checkpoint is not None:
        names = _adopt_classes(cfg, checkpoint)
    init_default_scope(scope)
    model_cfg = dict(cfg.model)
    model_cfg.setdefault('data_preprocessor', cfg.get('data_preprocessor'))
    model = revert_sync_batchnorm(MODELS.build(model_cfg))
    if checkpoint is None:
        model.init_weights()
    else:
        load_model(model, str(checkpoint))
    model.cfg, model.task, model.classes = cfg, TASKS[scope], names or _class_names(cfg)
    # The inference functions of the MM packages read the pipeline here, and have no annotations to load.
    steps = cfg.test_dataloader.dataset.pipeline
    model.annotation_steps = [step for step in steps if step['type'].endswith('Annotations')]
    cfg.test_pipeline = [step for step in steps if step not in model.annotation_steps]
    cfg.test_dataloader.dataset.pipeline = cfg.test_pipeline
    return model.to(device).eval()


def predict(model: nn.Module, image: str | Path) -> BaseDataElement:
    """Run a model of `init_model` on an image file, with its package's inference function."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        if model.task == 'detection':
            from mmdet.apis import inference_detector

            return inference_detector(model, str(image)).cpu()
        if model.task == 'segmentation':
            from mmseg.apis import inference_model

            return inference_model(model, str(image)).cpu()
        from mmpretrain.apis import ImageClassificationInferencer

        model._config = model.cfg
        return ImageClassificationInferencer(model, device=None)(str(image), return_datasamples=True)[0].cpu()


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split('\n')[0]
        raise ConfigError(f'device {name!r} cannot be used on this machine ({reason}): try --device cpu') from error
    return device


def _adopt_classes(cfg: Config, checkpoint: str | Path) -> list[str] | None:
    """Return the class names of a checkpoint, if it has any; set the heads' numbers of outputs to theirs."""
    meta = read_checkpoint(str(checkpoint)).get('meta')
    names = (meta.get('dataset_meta') or {}).get('classes') if isinstance(meta, dict) else None
    if not names:
        return None
    for _, head in iter_heads(cfg):
        head['num_classes'] = len(names)
    return list(names)


def _class_names(cfg: Config) -> list[str]:
    """Return the class names of a config's test set, without reading its files."""
    settings = dict(copy.deepcopy(cfg.test_dataloader.dataset), lazy_init=True)
    names = DATASETS.build(settings).metainfo.get('classes')
    if names is None:
        raise ConfigError('the test dataset has no class names: set metainfo=dict(classes=...) in its config')
    return list(names)
