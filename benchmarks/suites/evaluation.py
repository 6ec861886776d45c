"""Computing metrics from predictions: ours (unrounded, class by class) beside MMDetection's and MMSegmentation's."""

import contextlib
import importlib
import io
from collections.abc import Callable

from benchmarks.comparison import Comparison, Settings, Side

CLASSES = tuple(f'class {number}' for number in range(20))


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one for COCO box and mask AP, and one for IoU."""
    images = 8 if settings.quick else 100
    side = 64 if settings.quick else 256
    found = []
    for case, sides in (('COCO box and mask AP', _coco(images, side)), ('IoU', _iou(images, 2 * side))):
        found.append(
            Comparison(
                suite='evaluation', case=case, work='process and compute', shape=f'{images} images', dtype='-',
                sides=sides, items=images, timed=False, counted=False,
            )
        )  # fmt: skip
    return found


def _sides(peer: str, package: str, metric: str, options: dict, samples: Callable[[], list[dict]]) -> list[Side]:
    """Return a package's metric and ours of the same name, on the same samples."""

    def build(module: str) -> Callable:
        def prepare():
            cls, found = getattr(importlib.import_module(module), metric), samples()

            def work():
                one = cls(**options)
                one.dataset_meta = dict(classes=CLASSES)
                with contextlib.redirect_stdout(io.StringIO()):
                    one.process({}, found)
                    return one.evaluate(len(found))

            return work

        return prepare

    return [Side(peer, build(f'{package}.evaluation')), Side('mmlape', build('mmlape.lab.evaluation'))]


def _coco(images: int, side: int) -> list[Side]:
    return _sides(
        'mmdetection', 'mmdet', 'CocoMetric', dict(metric=['bbox', 'segm']), lambda: _detections(images, side)
    )


def _detections(images: int, side: int) -> list[dict]:
    """Return five true objects per image, and twenty detections near them."""
    import numpy as np
    import torch
    from mmdet.structures.mask import encode_mask_results

    random = np.random.RandomState(0)

    def boxes(count: int) -> np.ndarray:
        corner = random.randint(0, side // 2, (count, 2))
        return np.concatenate([corner, corner + random.randint(8, side // 2, (count, 2))], axis=1)

    def masks(found: np.ndarray) -> np.ndarray:
        out = np.zeros((len(found), side, side), np.uint8)
        for mask, (x0, y0, x1, y1) in zip(out, found):
            mask[y0:y1, x0:x1] = 1
        return out

    samples = []
    for number in range(images):
        true, labels = boxes(5), random.randint(0, len(CLASSES), 5)
        rle = encode_mask_results(masks(true))
        instances = [
            dict(bbox=box.tolist(), bbox_label=int(label), mask=mask, ignore_flag=0)
            for box, label, mask in zip(true, labels, rle)
        ]
        found = np.clip(np.repeat(true, 4, axis=0) + random.randint(-3, 4, (20, 4)), 0, side)
        prediction = dict(
            bboxes=torch.tensor(found, dtype=torch.float32),
            scores=torch.tensor(random.uniform(0.05, 1, 20), dtype=torch.float32),
            labels=torch.tensor(np.repeat(labels, 4)),
            masks=torch.tensor(masks(found)).bool(),
        )
        samples.append(dict(img_id=number, ori_shape=(side, side), instances=instances, pred_instances=prediction))
    return samples


def _iou(images: int, side: int) -> list[Side]:
    return _sides('mmsegmentation', 'mmseg', 'IoUMetric', dict(iou_metrics=['mIoU']), lambda: _maps(images, side))


def _maps(images: int, side: int) -> list[dict]:
    """Return random label maps, predicted and true."""
    import torch

    generator = torch.Generator().manual_seed(0)
    maps = [torch.randint(0, len(CLASSES), (2, 1, side, side), generator=generator) for _ in range(images)]
    return [dict(pred_sem_seg=dict(data=found), gt_sem_seg=dict(data=true)) for found, true in maps]
