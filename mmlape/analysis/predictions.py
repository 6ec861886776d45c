"""Drawings of a model's predictions: on an image, and beside the ground truth of a dataset."""

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path

import mmcv
from mmengine import Config
from mmengine.registry import DATASETS, init_default_scope
from mmengine.structures import BaseDataElement
from torch import nn

from mmlape.analysis.drawing import check_image_path, draw_sample, write_image
from mmlape.analysis.inference import init_model, predict
from mmlape.datasets.formats import CocoSource, SegmentationSource
from mmlape.datasets.formats.base import open_image
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
    drawing = draw_sample(
        mmcv.imread(str(image), channel_order='rgb'), prediction, model.classes, score_thr, ('pred',)
    )
    write_image(drawing, out)
    return list_prediction(prediction, model.classes, score_thr)


def list_prediction(prediction: BaseDataElement, classes: Sequence[str], score_thr: float = 0.3) -> list[dict]:
    """List a prediction's objects or classes, the most certain or largest first.

    Returns:
        ``class``, ``score`` and ``box`` (x1, y1, x2, y2) of each object; or ``class`` and ``share`` of the pixels; or
        ``class`` and ``score`` of the five most likely classes.
    """
    if 'pred_instances' in prediction:
        objects = prediction.pred_instances
        rows = zip(objects.labels.tolist(), objects.scores.tolist(), objects.bboxes.tolist())
        listed = [{'class': classes[k], 'score': score, 'box': box} for k, score, box in rows if score >= score_thr]
        return sorted(listed, key=lambda row: -row['score'])
    if 'pred_sem_seg' in prediction:
        labels, counts = prediction.pred_sem_seg.data.unique(return_counts=True)
        shares = (counts / counts.sum()).tolist()
        listed = [{'class': classes[k], 'share': share} for k, share in zip(labels.tolist(), shares)]
        return sorted(listed, key=lambda row: -row['share'])
    scores, labels = prediction.pred_score.topk(min(5, len(classes)))
    return [{'class': classes[k], 'score': score} for k, score in zip(labels.tolist(), scores.tolist())]


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
        predicted = 'pred_instances' if model.task == 'detection' else 'pred_sem_seg'
        truth.set_field(predict(model, truth.img_path).get(predicted), predicted)
        paths.append(Path(out_dir) / f'{Path(truth.img_path).stem}.png')
        write_image(draw_sample(image, truth, model.classes, score_thr), paths[-1])
    return paths
