"""Inference: build a config's trained model, and run it on an image file."""

import copy
import logging
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import cv2
import mmcv
import numpy as np
import torch
from mmcv.transforms import Compose
from mmengine import Config
from mmengine.dataset import pseudo_collate
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DATASETS, init_default_scope
from mmengine.structures import BaseDataElement
from PIL import Image
from torch import nn

from mmlape.checkpoint.closed_world import as_now
from mmlape.checkpoint.opening import OpenedFile
from mmlape.console.log import log
from mmlape.errors import ConfigError, DataError, listed
from mmlape.lab.config.config_file import name_types
from mmlape.lab.config.stored_config import classes_of, preprocessor_of
from mmlape.lab.datasets.formats import CocoSource, SegmentationSource
from mmlape.lab.datasets.retarget import iter_heads, set_num_classes
from mmlape.lab.datasets.transforms import LoadImageFromFile, loads, patch_size
from mmlape.lab.export.graphs import Graph, install_graph
from mmlape.lab.inference import TASKS
from mmlape.lab.inference.drawing import draw_sample, palette_of, write_image
from mmlape.lab.inference.images import to_array
from mmlape.lab.model_weights import load_model, other_names
from mmlape.lab.registry import TRANSFORMS, class_of
from mmlape.lab.training.optim import build_model


def init_model(config: Config, checkpoint: OpenedFile | Graph | None, device: str | None = None) -> nn.Module:
    """Build a config's model for inference, with attributes ``cfg``, ``task``, ``classes`` and others.

    Args:
        config: Left as it is. The checkpoint's class names, if it has any, replace the config's.
        checkpoint: Its weights, opened, or a graph of it; None for an untrained model.
        device: Such as 'cpu'; None for a GPU if there is one.

    Raises:
        ConfigError: The config is of no known task, or there is no such device.
        CheckpointError: The weights are not this model's.
    """
    cfg = copy.deepcopy(config)
    name_types(cfg)
    scope = cfg.get('default_scope')
    if scope not in TASKS:
        raise ConfigError(f'default_scope={scope!r}: inference is for models of {", ".join(TASKS)}')
    device, names = _device(device), None
    if checkpoint is not None:
        stored = checkpoint.classes if isinstance(checkpoint, Graph) else classes_of(checkpoint.meta)
        names = _adopt_classes(cfg, stored)
    model = revert_sync_batchnorm(build_model(cfg))
    names = names or _class_names(cfg)
    if isinstance(checkpoint, Graph):
        install_graph(model, checkpoint, cfg, names)
    elif checkpoint is None:
        model.init_weights()
    else:
        load_model(model, checkpoint)
    model.cfg, model.task, model.classes = cfg, TASKS[scope], names
    # an image to predict on has no annotations to load
    steps = cfg.test_dataloader.dataset.pipeline
    model.annotation_steps = [step for step in steps if loads(step, scope, 'Annotations')]
    cfg.test_pipeline = [step for step in steps if step not in model.annotation_steps]
    cfg.test_dataloader.dataset.pipeline = cfg.test_pipeline
    model.preparation = Preparation(cfg)
    return model.to(device).eval()


class Preparation:
    """The pipeline of a config's test, for image files and for arrays.

    Args:
        cfg: Its ``test_pipeline`` loads no annotations.
    """

    def __init__(self, cfg: Config) -> None:
        steps = copy.deepcopy(cfg.test_pipeline)
        init_default_scope(cfg.default_scope)
        # not those of a subclass, which loads in its own way
        loading = bool(steps) and class_of(steps[0], cfg.default_scope, 'TRANSFORMS')
        self.loads = loading in (mmcv.transforms.LoadImageFromFile, LoadImageFromFile)
        first = steps[0] if self.loads else {}
        self.dtype = np.float32 if first.get('to_float32') else np.uint8
        channels = len(preprocessor_of(cfg).get('mean') or range(3))
        self.grey = channels == 1 or str(first.get('color_type', '')).startswith('gr')
        self.rest = Compose(steps[1:] if self.loads else steps)
        self.smallest = patch_size(cfg) if self.loads else 1
        load = dict(first, type='mmlape.LoadImageFromFile', smallest=self.smallest)
        self.load = TRANSFORMS.build(load) if self.loads else None
        self.world = as_now()

    def of_file(self, path: str | Path) -> dict:
        """Return the model's input of an image file; DataError if it cannot be read."""
        if self.load is None:
            return self.of_array(to_array(path))
        with self.world():
            loaded = self.load(dict(img_path=str(path), img_id=0))
        return self._prepared(loaded)

    def of_array(self, image: np.ndarray) -> dict:
        """Return the model's input of an image, (H, W, 3), RGB, uint8."""
        if self.grey:
            image = np.asarray(Image.fromarray(image).convert('L'))
        elif self.loads:
            image = image[..., ::-1]  # as MMCV loads files; datasets that are arrays have RGB
        size = image.shape[:2]
        if min(size) < self.smallest:
            raise DataError(
                f'an image of {size[1]} x {size[0]} pixels is smaller than one '
                f'{self.smallest} x {self.smallest} patch: enlarge it'
            )
        image = np.ascontiguousarray(image, self.dtype)
        loaded = dict(img=image, img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0), img_path=None, img_id=0)
        return self._prepared(loaded)

    def _prepared(self, loaded: dict) -> dict:
        height, width = loaded['ori_shape']
        try:
            with self.world():
                packed = self.rest(loaded)
        except (cv2.error, ValueError) as error:  # such as a side that becomes 0 pixels
            reason = str(error).strip().splitlines()[-1]
            raise DataError(
                f'{loaded["img_path"] or "an image"} of {width} x {height} pixels does not fit the '
                f'test pipeline ({reason}): crop or enlarge it'
            ) from error
        if 'inputs' not in packed:
            raise ConfigError('test_dataloader.dataset.pipeline packs no inputs: end it with the Pack... transform')
        return packed


def predict_batch(model: nn.Module, inputs: Sequence[dict], logits: bool = True) -> list[BaseDataElement]:
    """Run a model of `init_model` on the inputs that its ``preparation`` has made.

    Args:
        model: It has the attributes that `init_model` sets.
        inputs: One for each image.
        logits: Whether to keep those of a segmentor, classes x height x width floats.
    """
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter('ignore')
        samples = model.test_step(pseudo_collate(list(inputs)))
    for sample in samples:
        if 'seg_logits' in sample and not logits:
            del sample.seg_logits
    return [sample.cpu() for sample in samples]


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


def _adopt_classes(cfg: Config, names: Sequence[str] | None) -> list[str] | None:
    """Return class names of weights, if they have any.

    Set the heads' numbers of outputs to theirs.
    """
    if not names:
        return None
    others = (cfg.test_dataloader.dataset.get('metainfo') or {}).get('classes') or ()
    if pairs := other_names(names, others):
        text = f'predictions have the names of classes of the checkpoint, not those of the config: {listed(pairs)}'
        log(text, logging.WARNING)
    for head in iter_heads(cfg):
        set_num_classes(*head, len(names))
    return list(names)


def _class_names(cfg: Config) -> list[str]:
    """Return the class names of a config's test set, without reading its files."""
    dataset_cfg = dict(copy.deepcopy(cfg.test_dataloader.dataset), lazy_init=True)
    if 'type' in dataset_cfg:
        names = DATASETS.build(dataset_cfg).metainfo.get('classes')
    else:  # of a published file, which has no data
        names = dataset_cfg.get('metainfo', {}).get('classes')
    if names is None:
        raise ConfigError('the test dataset has no class names: set metainfo=dict(classes=...) in its config')
    return list(names)


def compare_on_dataset(model: nn.Module, indices: Iterable[int], out_dir: str | Path) -> list[Path]:
    """Draw predictions on images of the test set, those of a score of 0.3 and more, beside their ground truth.

    Return the drawings' paths.

    Args:
        model: A detector or segmenter from `init_model`.
        indices: Of images in the test set.
        out_dir: The folder of the drawings, named like their images.

    Raises:
        ConfigError: The model is a classifier, or its test set has no annotations.
    """
    if model.task == 'classification' or not model.annotation_steps:
        raise ConfigError('no ground truth to draw: use a detector or segmenter with LoadAnnotations')
    init_default_scope(model.cfg.default_scope)
    dataset_cfg = copy.deepcopy(model.cfg.test_dataloader.dataset)
    pack = (CocoSource if model.task == 'detection' else SegmentationSource).pack_transform
    dataset_cfg.pipeline = [dict(type='mmlape.LoadImageFromFile'), *model.annotation_steps, dict(type=pack)]
    dataset = DATASETS.build(dataset_cfg)
    paths = []
    for index in indices:
        sample = dataset[index]
        truth, image = sample['data_samples'], sample['inputs'].numpy()[::-1].transpose(1, 2, 0)
        predicted = 'pred_instances' if model.task == 'detection' else 'pred_sem_seg'
        (prediction,) = predict_batch(model, [model.preparation.of_array(image)])
        truth.set_field(prediction.get(predicted), predicted)
        paths.append(Path(out_dir) / f'{Path(truth.img_path).stem}.png')
        drawn = draw_sample(image, truth, model.classes, palette_of(model.cfg, model.classes), 0.3)
        write_image(drawn, paths[-1])
    return paths
