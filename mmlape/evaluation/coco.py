"""COCO box and mask AP at full precision, overall and class by class."""

import contextlib
import io
import tempfile
from pathlib import Path

import numpy as np
from mmdet.datasets.api_wrappers import COCO, COCOeval, COCOevalMP
from mmdet.evaluation.metrics import CocoMetric as MMDetCocoMetric
from mmengine.fileio import load
from mmengine.logging import print_log
from pycocotools import mask as rle

from mmlape.errors import ConfigError, DataError
from mmlape.evaluation.names import flatten_per_class
from mmlape.registry import METRICS

STATS = (
    'mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l',
    'AR@100', 'AR@300', 'AR@1000', 'AR_s@1000', 'AR_m@1000', 'AR_l@1000',
)  # fmt: skip
"""MMDetection's names of `COCOeval.stats`, in order."""
MAX_DETECTIONS = 100  # of an image, by the definition of `mAP`


@METRICS.register_module()
class CocoMetric(MMDetCocoMetric):
    """MMDetection's COCO metric, unrounded, with the AP of each class under each of its two IoU types.

    Keys are MMDetection's (``bbox_mAP``, ``segm_mAP_50``, ...; prefix ``coco``), in [0, 1], or -1
    where the ground truth has no object of that size. ``per_class/bbox_AP/<class>`` and
    ``per_class/segm_AP/<class>`` are NaN for a class without ground truth; the mean of the others
    is ``bbox_mAP`` / ``segm_mAP``. No detection at all is 0.

    Args:
        *args: As in MMDetection.
        per_class: Whether to return the values of single classes too.
        **kwargs: As in MMDetection; ``metric`` is 'bbox', 'segm' or both, and ``per_class``
            replaces ``classwise``.

    Raises:
        ConfigError: ``metric`` is something else, or 'segm' and the model predicts no masks.
        DataError: The annotation file lacks classes or images.
    """

    def __init__(self, *args, per_class: bool = True, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        unknown = sorted(set(self.metrics) - {'bbox', 'segm'})
        if unknown:
            raise ConfigError(
                f"mmlape.CocoMetric supports 'bbox' and 'segm', not {unknown}: use mmdet.CocoMetric"
            )
        if MAX_DETECTIONS not in self.proposal_nums or len(self.proposal_nums) != 3:
            raise ConfigError(
                f'proposal_nums={self.proposal_nums}: give three numbers, one of them '
                f'{MAX_DETECTIONS}'
            )
        unknown = sorted(set(self.metric_items or ()) - set(STATS))
        if unknown:
            raise ConfigError(f'unknown metric_items {unknown}; known: {list(STATS)}')
        self.per_class = per_class

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Compute the values by key, without the prefix, from ``(ground truth, prediction)`` of each image."""
        with tempfile.TemporaryDirectory() as folder:
            prefix = self.outfile_prefix or str(Path(folder) / 'results')
            self._load_ground_truth([truth for truth, _ in results], prefix)
            predictions = [prediction for _, prediction in results]
            files = self.results2json(predictions, prefix) if predictions else {}
            if self.format_only:
                print_log(f'predictions are in {sorted(set(files.values()))}', 'current')
                return {}
            detections = {
                iou_type: self._load_detections(files, iou_type, bool(predictions))
                for iou_type in self.metrics
            }
        values, single = {}, {}
        for iou_type in self.metrics:
            evaluation = self._evaluate(detections[iou_type], iou_type)
            for name in self.metric_items or STATS[:6]:
                values[f'{iou_type}_{name}'] = float(evaluation.stats[STATS.index(name)])
            single[f'{iou_type}_AP'] = self._class_ap(evaluation)
        return values | flatten_per_class(single) if self.per_class else values

    def _load_ground_truth(self, truths: list[dict], prefix: str) -> None:
        """Load the ground truth once, and find the category id of each label."""
        if self._coco_api is None:
            if not truths:
                raise DataError('nothing to evaluate: no ann_file, and no image was processed')
            self._coco_api = _quietly(
                COCO, self.gt_to_coco_json(gt_dicts=truths, outfile_prefix=prefix)
            )
        for annotation in self._coco_api.anns.values():
            annotation.setdefault('iscrowd', 0)
        classes = list(self.dataset_meta['classes'])
        self.cat_ids = self._coco_api.get_cat_ids(cat_names=classes)
        if len(self.cat_ids) != len(classes):
            known = [
                category['name']
                for category in self._coco_api.load_cats(self._coco_api.get_cat_ids())
            ]
            missing = [name for name in classes if name not in known]
            raise DataError(
                f'the annotation file has {len(self.cat_ids)} of the {len(classes)} classes: '
                f'{missing} missing; its categories are {known}. Set metainfo.classes and '
                'num_classes to those'
            )
        self.img_ids = self._coco_api.get_img_ids()
        unlisted = sorted({truth['img_id'] for truth in truths} - set(self.img_ids))
        if unlisted:
            raise DataError(
                f'{len(unlisted)} evaluated images are not in the annotation file (ids '
                f'{unlisted[:5]} ...): ann_file of the dataset and of its evaluator must be the '
                'same'
            )

    def _load_detections(self, files: dict[str, str], iou_type: str, any_image: bool) -> COCO:
        """Index the dumped predictions; an empty index where there are none."""
        if any_image and iou_type not in files:
            raise ConfigError(
                f"metric={iou_type!r}, but the model predicts no masks: remove 'segm' from the "
                'evaluator'
            )
        detections = load(files[iou_type]) if any_image else []
        if not detections:
            print_log(
                f'{iou_type}: the model predicted nothing in {len(self.img_ids)} images, so every '
                'AP is 0',
                'current',
            )
        for number, detection in enumerate(detections, start=1):
            if iou_type == 'segm':
                # a mask is small, medium or large by its own area, not its box's
                detection['area'] = float(rle.area(detection['segmentation']))
            else:
                detection['area'] = detection['bbox'][2] * detection['bbox'][3]
            detection.update(id=number, iscrowd=0)
        index = COCO()
        index.dataset = {name: self._coco_api.dataset[name] for name in ('images', 'categories')}
        index.dataset['annotations'] = detections
        _quietly(index.createIndex)
        return index

    def _evaluate(self, detections: COCO, iou_type: str) -> COCOeval:
        evaluation = (COCOevalMP if self.use_mp_eval else COCOeval)(
            self._coco_api, detections, iou_type
        )
        evaluation.params.catIds = self.cat_ids
        evaluation.params.imgIds = self.img_ids
        evaluation.params.maxDets = list(self.proposal_nums)
        evaluation.params.iouThrs = np.atleast_1d(self.iou_thrs)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            evaluation.evaluate()
            evaluation.accumulate()
            printed.truncate(printed.seek(0))
            evaluation.summarize()
        print_log(f'{iou_type}:\n{printed.getvalue().rstrip()}', 'current')
        return evaluation

    def _class_ap(self, evaluation: COCOeval) -> dict[str, float]:
        """Return the AP of each class by name, over all sizes and 100 detections an image, as in ``mAP``."""
        limit = evaluation.params.maxDets.index(MAX_DETECTIONS)
        # (IoU thresholds, recalls, classes)
        precision = evaluation.eval['precision'][:, :, :, 0, limit]
        precision = np.where(precision > -1, precision, np.nan)
        class_ap = {}
        for category in self._coco_api.load_cats(self.cat_ids):
            # pycocotools has sorted the ids
            ap = precision[:, :, evaluation.params.catIds.index(category['id'])]
            class_ap[category['name']] = float(np.nan if np.isnan(ap).all() else np.nanmean(ap))
        return class_ap


def _quietly(function, *args):
    """Call one of pycocotools' functions without the progress that it prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        return function(*args)
