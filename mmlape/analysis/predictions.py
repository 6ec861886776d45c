"""Drawings of a model's predictions: on an image, and beside the ground truth of a dataset."""

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path

import mmcv
import numpy as np
from mmengine import Config
from mmengine.registry import DATASETS, init_default_scope
from mmengine.structures import BaseDataElement, InstanceData
from torch import nn

from mmlape.analysis.drawing import (
    beside,
    check_image_path,
    draw_instances,
    draw_label_map,
    enlarge,
    legend,
    titled,
    write_image,
)
from mmlape.analysis.inference import init_model, predict
from mmlape.datasets.formats import CocoSource, SegmentationSource
from mmlape.datasets.image_files import open_image
from mmlape.errors import ConfigError


def predict_and_draw(
    image: str | Path,
    config: str | Path | Config,
    checkpoint: str | Path,
    out: str | Path,
    score_thr: float = 0.3,
    device: str | None = None,
    cfg_options: dict | None = None,
) -> list[dict]:
    """Draw a model's prediction on an image.

    Args:
        image: An image file.
        config: A config of detection, segmentation or classification.
        checkpoint: Weights for it.
        out: The image to write, in the format of its suffix.
        score_thr: Objects with a lower score are not drawn.
        device: Such as 'cpu'; None for a GPU if there is one.
        cfg_options: Overrides of the config.

    Returns:
        The rows of `list_prediction`.

    Raises:
        DataError: The image is missing or broken, or ``out`` cannot be written.
        ConfigError: The config is of no such task, or there is no such device.
        CheckpointError: The weights cannot be read, or are not this model's.
    """
    open_image(str(image))
    check_image_path(out)
    model = init_model(config, checkpoint, device, cfg_options)
    prediction = predict(model, image)
    write_image(draw(mmcv.imread(str(image), channel_order='rgb'), prediction, model.classes, score_thr), out)
    return list_prediction(prediction, model.classes, score_thr)


def draw(image: np.ndarray, prediction: BaseDataElement, classes: Sequence[str], score_thr: float = 0.3) -> np.ndarray:
    """Draw a prediction on an image: objects, a label map with a legend, or a class.

    Args:
        image: (H, W, 3), RGB.
        prediction: The result of `predict`.
        classes: Name of each label.
        score_thr: Objects with a lower score are not drawn.
    """
    if 'pred_instances' in prediction:
        return draw_instances(image, prediction.pred_instances, classes, score_thr)
    if 'pred_sem_seg' in prediction:
        drawn, colours = draw_label_map(image, prediction.pred_sem_seg.data[0].numpy(), classes)
        return beside([drawn, legend(colours, drawn.shape[0])])
    scores = prediction.pred_score
    best = int(scores.argmax())
    return titled(enlarge(image), f'{classes[best]}: {100 * float(scores[best]):.1f} %')


def list_prediction(prediction: BaseDataElement, classes: Sequence[str], score_thr: float = 0.3) -> list[dict]:
    """List a prediction's objects or classes, the most certain or largest first.

    Returns:
        ``class``, ``score`` and ``box`` (x1, y1, x2, y2) of each object; or ``class`` and ``share`` of the pixels; or
        ``class`` and ``score`` of the five most likely classes.
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
    """Draw the ground truth of an image beside a prediction.

    Args:
        image: (H, W, 3), RGB.
        ground_truth: Objects, or a label map (H, W).
        prediction: The same kind.
        classes: Name of each label.
        score_thr: Predicted objects with a lower score are not drawn.

    Returns:
        One image with two titled halves, and a legend for label maps.
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
    """Draw predictions on images of the test set beside their ground truth.

    Args:
        model: A detector or segmenter from `init_model`.
        indices: Of images in the test set.
        out_dir: The folder of the drawings, named like their images.
        score_thr: Predicted objects with a lower score are not drawn.

    Returns:
        The paths of the drawings, in the order of ``indices``.

    Raises:
        ConfigError: The model is a classifier, or its test set has no annotations.
    """
    if model.task == 'classification' or not model.annotation_steps:
        raise ConfigError('no ground truth to draw: use a detector or segmenter with LoadAnnotations')
    init_default_scope(model.cfg.default_scope)
    settings = copy.deepcopy(model.cfg.test_dataloader.dataset)
    pack = (CocoSource if model.task == 'detection' else SegmentationSource).pack_transform
    settings.pipeline = [dict(type='LoadImageFromFile'), *model.annotation_steps, dict(type=pack)]
    dataset = DATASETS.build(settings)
    paths = []
    for index in indices:
        truth = dataset[index]['data_samples']
        image = mmcv.imread(truth.img_path, channel_order='rgb')
        prediction = predict(model, truth.img_path)
        if model.task == 'detection':
            pair = truth.gt_instances, prediction.pred_instances
        else:
            pair = truth.gt_sem_seg.data[0].numpy(), prediction.pred_sem_seg.data[0].numpy()
        paths.append(Path(out_dir) / f'{Path(truth.img_path).stem}.png')
        write_image(draw_comparison(image, *pair, model.classes, score_thr), paths[-1])
    return paths
