"""Draws what a trained model finds in a picture, and its predictions beside the ground truth of a data set."""

import copy
import os
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import mmcv
import numpy as np
import torch
from mmengine import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.structures import BaseDataElement, InstanceData
from PIL import Image
from torch import nn

from mmlape.analysis.drawing import beside, draw_instances, draw_label_map, enlarge, legend, titled
from mmlape.checkpoint import load_model, read_checkpoint
from mmlape.datasets.heads import iter_heads
from mmlape.datasets.image_files import open_image
from mmlape.engine.config import load_config
from mmlape.engine.evaluator import TASKS
from mmlape.errors import ConfigError, DataError


def predict_and_draw(
    image: str | Path,
    config: str | Path | Config,
    checkpoint: str | Path,
    out: str | Path,
    score_thr: float = 0.3,
    device: str | None = None,
    cfg_options: dict | None = None,
) -> list[dict]:
    """Draws a model's prediction on a picture.

    Args:
        image: A picture file.
        config: A configuration of detection, segmentation or classification.
        checkpoint: Weights for it.
        out: The picture to write; its suffix says in which format.
        score_thr: Objects with a lower score are not drawn.
        device: Where to compute; None for a GPU if there is one.
        cfg_options: Changes of the configuration.

    Returns:
        What was drawn, as `findings` lists it.

    Raises:
        DataError: The picture is missing or broken, or ``out`` cannot be written.
        ConfigError: The configuration is of no such task, or there is no such device.
        CheckpointError: The weights cannot be read, or are not this model's.
    """
    open_image(str(image))
    check_output(out)
    model = load(config, checkpoint, device, cfg_options)
    prediction = predict(model, image)
    write_picture(draw(mmcv.imread(str(image), channel_order='rgb'), prediction, model.classes, score_thr), out)
    return findings(prediction, model.classes, score_thr)


def load(
    config: str | Path | Config,
    checkpoint: str | Path | None,
    device: str | None = None,
    cfg_options: dict | None = None,
) -> nn.Module:
    """Builds a configuration's model for inference; it carries its ``cfg``, ``task`` and ``classes``.

    Args:
        config: A configuration, or its file. Class names, and the number of them, are the checkpoint's if it has any.
        checkpoint: Weights; None leaves the model untrained.
        device: Where to compute; None for a GPU if there is one.
        cfg_options: Changes of the configuration.

    Raises:
        ConfigError: The configuration is of no known task, or there is no such device.
        CheckpointError: The weights cannot be read, or are not this model's.
    """
    cfg = copy.deepcopy(config) if isinstance(config, Config) else load_config(str(config), cfg_options)
    scope = cfg.get('default_scope')
    if scope not in TASKS:
        raise ConfigError(f'default_scope={scope!r}: a picture can be shown to models of {", ".join(TASKS)}')
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
    # The inference functions of the MM packages look for the pipeline here, and have no annotations to load.
    steps = cfg.test_dataloader.dataset.pipeline
    model.annotation_steps = [step for step in steps if step['type'].endswith('Annotations')]
    cfg.test_pipeline = [step for step in steps if step not in model.annotation_steps]
    cfg.test_dataloader.dataset.pipeline = cfg.test_pipeline
    return model.to(device).eval()


def predict(model: nn.Module, image: str | Path) -> BaseDataElement:
    """Runs a model that `load` built on a picture file, through its package's inference function."""
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


def draw(image: np.ndarray, prediction: BaseDataElement, classes: Sequence[str], score_thr: float = 0.3) -> np.ndarray:
    """Draws a prediction on an image, by what it holds: objects, a label map with a legend, or a class.

    Args:
        image: (H, W, 3), RGB.
        prediction: What `predict` returns.
        classes: Name of each label.
        score_thr: Objects with a lower score are not drawn.
    """
    if 'pred_instances' in prediction:
        return draw_instances(image, prediction.pred_instances, classes, score_thr)
    if 'pred_sem_seg' in prediction:
        picture, colours = draw_label_map(image, prediction.pred_sem_seg.data[0].numpy(), classes)
        return beside([picture, legend(colours, picture.shape[0])])
    scores = prediction.pred_score
    best = int(scores.argmax())
    return titled(enlarge(image), f'{classes[best]}: {100 * float(scores[best]):.1f} %')


def findings(prediction: BaseDataElement, classes: Sequence[str], score_thr: float = 0.3) -> list[dict]:
    """Lists what a prediction holds, the most certain or largest first.

    Returns:
        ``class``, ``score`` and ``box`` (x1, y1, x2, y2) of each object; or ``class`` and ``share`` of the pixels; or
        ``class`` and ``score`` of the five likeliest classes.
    """
    if 'pred_instances' in prediction:
        objects = prediction.pred_instances
        rows = zip(objects.labels.tolist(), objects.scores.tolist(), objects.bboxes.tolist())
        found = [{'class': classes[k], 'score': score, 'box': box} for k, score, box in rows if score >= score_thr]
        return sorted(found, key=lambda row: -row['score'])
    if 'pred_sem_seg' in prediction:
        labels, counts = prediction.pred_sem_seg.data.unique(return_counts=True)
        shares = (counts / counts.sum()).tolist()
        found = [{'class': classes[k], 'share': share} for k, share in zip(labels.tolist(), shares)]
        return sorted(found, key=lambda row: -row['share'])
    scores, labels = prediction.pred_score.topk(min(5, len(classes)))
    return [{'class': classes[k], 'score': score} for k, score in zip(labels.tolist(), scores.tolist())]


def draw_comparison(
    image: np.ndarray,
    ground_truth: InstanceData | np.ndarray,
    prediction: InstanceData | np.ndarray,
    classes: Sequence[str],
    score_thr: float = 0.3,
) -> np.ndarray:
    """Puts the ground truth of an image beside a prediction.

    Args:
        image: (H, W, 3), RGB.
        ground_truth: Objects, or a label map (H, W).
        prediction: The same kind.
        classes: Name of each label.
        score_thr: Predicted objects with a lower score are not drawn.

    Returns:
        One picture with two titled halves, and a legend for label maps.
    """
    if isinstance(ground_truth, InstanceData):
        left = draw_instances(image, ground_truth, classes)
        right = draw_instances(image, prediction, classes, score_thr)
        return beside([titled(left, 'ground truth'), titled(right, 'prediction')])
    left, colours = draw_label_map(image, ground_truth, classes)
    right, found = draw_label_map(image, prediction, classes)
    names = legend({**colours, **found}, left.shape[0])
    return beside([titled(left, 'ground truth'), titled(right, 'prediction'), titled(names, '')])


def compare_on_dataset(
    model: nn.Module, indices: Iterable[int], out_dir: str | Path, score_thr: float = 0.3
) -> list[Path]:
    """Draws predictions for images of the test set beside their ground truth.

    Args:
        model: A detector or segmenter from `load`.
        indices: Which images of the test set.
        out_dir: Where the pictures go, as ``<name of the image>.png``.
        score_thr: Predicted objects with a lower score are not drawn.

    Returns:
        The pictures, in the order of ``indices``.
    """
    if model.task == 'classification' or not model.annotation_steps:
        raise ConfigError('no ground truth to draw: neither a detector nor a segmenter, or no LoadAnnotations')
    init_default_scope(model.cfg.default_scope)
    settings = copy.deepcopy(model.cfg.test_dataloader.dataset)
    pack = 'PackDetInputs' if model.task == 'detection' else 'PackSegInputs'
    settings.pipeline = [dict(type='LoadImageFromFile'), *model.annotation_steps, dict(type=pack)]
    dataset = DATASETS.build(settings)
    pictures = []
    for index in indices:
        truth = dataset[index]['data_samples']
        image = mmcv.imread(truth.img_path, channel_order='rgb')
        prediction = predict(model, truth.img_path)
        if model.task == 'detection':
            pair = truth.gt_instances, prediction.pred_instances
        else:
            pair = truth.gt_sem_seg.data[0].numpy(), prediction.pred_sem_seg.data[0].numpy()
        pictures.append(Path(out_dir) / f'{Path(truth.img_path).stem}.png')
        write_picture(draw_comparison(image, *pair, model.classes, score_thr), pictures[-1])
    return pictures


def check_output(path: str | Path) -> None:
    """Makes the folder of a picture to come; raises DataError if the picture could not be written there."""
    path = Path(path)
    Image.init()
    known = {suffix for suffix, name in Image.registered_extensions().items() if name in Image.SAVE}
    if path.suffix.lower() not in known:
        raise DataError(f'{path}: a picture needs a suffix such as .png or .jpg, not {path.suffix!r}')
    if path.is_dir():
        raise DataError(f'{path} is a folder: name the picture to write')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise DataError(f'cannot write {path}: {error.strerror}') from error


def write_picture(picture: np.ndarray, path: str | Path) -> None:
    """Writes a picture, whole or not at all; raises DataError if that is not possible."""
    path = Path(path)
    check_output(path)
    part = path.with_name(f'.{os.getpid()}.{path.name}')
    try:
        Image.fromarray(picture).save(part)
        part.replace(path)
    except (OSError, ValueError) as error:
        part.unlink(missing_ok=True)
        raise DataError(f'cannot write {path}: {error}') from error


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split('\n')[0]
        raise ConfigError(f'device {name!r} cannot be used here ({reason}): try --device cpu') from error
    return device


def _adopt_classes(cfg: Config, checkpoint: str | Path) -> list[str] | None:
    """The classes that a model was trained on, where its checkpoint names them; heads get as many outputs."""
    meta = read_checkpoint(str(checkpoint)).get('meta')
    names = (meta.get('dataset_meta') or {}).get('classes') if isinstance(meta, dict) else None
    if not names:
        return None
    for _, head in iter_heads(cfg):
        head['num_classes'] = len(names)
    return list(names)


def _class_names(cfg: Config) -> list[str]:
    """The classes that the test set of a configuration has, without reading its files."""
    settings = dict(copy.deepcopy(cfg.test_dataloader.dataset), lazy_init=True)
    names = DATASETS.build(settings).metainfo.get('classes')
    if names is None:
        raise ConfigError('the test data set names no classes: set metainfo=dict(classes=...) in its configuration')
    return list(names)
