"""Computing metrics from predictions: ours (unrounded, class by class) beside MMDetection's and MMSegmentation's."""

import contextlib
import io
from collections.abc import Callable

from benchmarks.comparison import Comparison, Settings, Side

CLASSES = tuple(f'class {number}' for number in range(20))


def comparisons(settings: Settings) -> list[Comparison]:
    """COCO box and mask AP, and IoU."""
    images = 8 if settings.quick else 100
    side = 64 if settings.quick else 256
    found = []
    for case, sides in (('COCO box and mask AP', _coco(images, side)), ('IoU', _iou(images, 2 * side))):
        found.append(
            Comparison(
                suite='evaluation', case=case, work='process and compute', shape=f'{images} images', dtype='-',
                sides=sides, items=images, timed=False, counted=False, rounds=5,
            )
        )  # fmt: skip
    return found


def _coco(images: int, side: int) -> list[Side]:
    def build(cls: Callable) -> Callable:
        samples = _detections(images, side)

        def work():
            metric = cls(metric=['bbox', 'segm'])
            metric.dataset_meta = dict(classes=CLASSES)
            with contextlib.redirect_stdout(io.StringIO()):
                metric.process({}, samples)
                return metric.evaluate(images)

        return work

    def theirs():
        from mmdet.evaluation import CocoMetric

        return build(CocoMetric)

    def ours():
        from mmlape.evaluation import CocoMetric

        return build(CocoMetric)

    return [Side('mmdetection', theirs), Side('mmlape', ours)]


def _detections(images: int, side: int) -> list[dict]:
    """Five true objects an image, and twenty detections near them."""
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
    def build(cls: Callable) -> Callable:
        import torch

        generator = torch.Generator().manual_seed(0)
        samples = []
        for _ in range(images):
            maps = torch.randint(0, len(CLASSES), (2, 1, side, side), generator=generator)
            samples.append(dict(pred_sem_seg=dict(data=maps[0]), gt_sem_seg=dict(data=maps[1])))

        def work():
            metric = cls(iou_metrics=['mIoU'])
            metric.dataset_meta = dict(classes=CLASSES)
            with contextlib.redirect_stdout(io.StringIO()):
                metric.process({}, samples)
                return metric.evaluate(images)

        return work

    def theirs():
        from mmseg.evaluation import IoUMetric

        return build(IoUMetric)

    def ours():
        from mmlape.evaluation import IoUMetric

        return build(IoUMetric)

    return [Side('mmsegmentation', theirs), Side('mmlape', ours)]
