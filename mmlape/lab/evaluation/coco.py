"""COCO box and mask AP at full precision, overall and class by class."""

import contextlib
import io
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from mmdet.datasets.api_wrappers import COCO, COCOeval, COCOevalMP
from mmdet.evaluation.metrics import CocoMetric as MMDetCocoMetric
from mmengine.fileio import load
from pycocotools import mask as rle

from mmlape.console.log import log
from mmlape.errors import ConfigError, DataError, StackError, require_choice
from mmlape.lab.environment import importable, library_line
from mmlape.lab.evaluation.metric_names import flatten_per_class
from mmlape.lab.registry import METRICS

STATS = (
    'mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l',
    'AR@100', 'AR@300', 'AR@1000', 'AR_s@1000', 'AR_m@1000', 'AR_l@1000',
)  # fmt: skip
"""MMDetection's names of `COCOeval.stats`, in order."""
SIDES = ('height', 'width')
MAX_PER_IMG = 100  # detections of an image, by COCO's definition of `mAP`
BACKENDS = ('pycocotools', 'faster')
"""Who matches detections and objects: pycocotools, or faster-coco-eval in C++."""


@METRICS.register_module()
class CocoMetric(MMDetCocoMetric):
    """MMDetection's COCO metric, unrounded, with the AP of each class under each of its two IoU types.

    Keys are MMDetection's (``bbox_mAP``, ``segm_mAP_50``, ...; prefix ``coco``), in [0, 1], or -1
    where the ground truth has no object of that size. They are of the images that were
    processed: a part of a dataset has the AP of a file of that part. ``per_class/bbox_AP/<class>``
    and ``per_class/segm_AP/<class>`` are NaN for a class without ground truth; the mean of the
    others is ``bbox_mAP`` / ``segm_mAP``. No detection at all is 0.

    Args:
        *args: As in MMDetection.
        per_class: Whether to return the values of single classes too.
        backend: One of ``BACKENDS``; the values are the same.
        max_per_img: So many detections of an image count for every AP, the most certain ones: give it
            where an image has more than 100 objects. By default 100 count for ``mAP``, by COCO's
            definition, and ``proposal_nums[2]`` for the others, as in MMDetection.
        **kwargs: As in MMDetection; ``metric`` is 'bbox', 'segm' or both, and ``per_class``
            replaces ``classwise``.

    Raises:
        ConfigError: ``metric`` is something else, or 'segm' and the model predicts no masks.
        StackError: ``backend='faster'``, and faster-coco-eval is not installed.
        DataError: The annotation file lacks classes or images.
    """

    # what an annotation file may have, as the check of data asks
    any_ids = True

    def __init__(
        self, *args, per_class: bool = True, backend: str = 'pycocotools', max_per_img: int | None = None, **kwargs
    ) -> None:
        super().__init__(*args, **kwargs)
        require_choice('backend', backend, BACKENDS, 'mmlape.CocoMetric: ')
        if backend == 'faster' and not importable('faster_coco_eval'):
            raise StackError(
                f"mmlape.CocoMetric: backend='faster' needs faster-coco-eval: {library_line('faster-coco-eval')}"
            )
        unknown = sorted(set(self.metrics) - {'bbox', 'segm'})
        if unknown:
            raise ConfigError(f"mmlape.CocoMetric supports 'bbox' and 'segm', not {unknown}: use mmdet.CocoMetric")
        for item in self.metric_items or ():
            known = STATS[:6] if max_per_img else STATS  # names of recalls have the numbers of `proposal_nums`
            require_choice('metric_items', item, known, 'mmlape.CocoMetric: ')
        if max_per_img:
            self.proposal_nums = (1, 10, max_per_img)  # the first two as COCO's
        self.max_per_img = max_per_img or MAX_PER_IMG
        self.per_class = per_class
        self.backend = backend

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Compute the values by key, without the prefix, from ``(ground truth, prediction)`` of each image."""
        with tempfile.TemporaryDirectory() as folder:
            prefix = self.outfile_prefix or str(Path(folder) / 'results')
            results = _once(results)
            self._load_ground_truth([truth for truth, _ in results], prefix)
            predictions = [prediction for _, prediction in results]
            files = self.results2json(predictions, prefix) if predictions else {}
            if self.format_only:
                log(f'predictions are in {sorted(set(files.values()))}')
                return {}
            detections = {
                iou_type: self._load_detections(files, iou_type, bool(predictions)) for iou_type in self.metrics
            }
        values, single = {}, {}
        for iou_type in self.metrics:
            evaluation = self._evaluate(detections[iou_type], iou_type)
            for name in self.metric_items or STATS[:6]:
                values[f'{iou_type}_{name}'] = float(evaluation.stats[STATS.index(name)])
            single[f'{iou_type}_AP'] = self._class_ap(evaluation)
        return values | flatten_per_class(single) if self.per_class else values

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Keep the predictions of a batch, with the path of each image, by which it is known."""
        super().process(data_batch, data_samples)
        for (truth, _), sample in zip(self.results[-len(data_samples) :], data_samples):
            truth['img_path'] = sample.get('img_path')

    def _load_ground_truth(self, truths: list[dict], prefix: str) -> None:
        """Load the ground truth once, find the category id of each label, and take the images that were processed."""
        if self._coco_api is None:
            if not truths:
                raise DataError('nothing to evaluate: no ann_file, and no image was processed')
            self._coco_api = _quietly(COCO, self.gt_to_coco_json(gt_dicts=truths, outfile_prefix=prefix))
        classes = list(self.dataset_meta['classes'])
        self.cat_ids = self._coco_api.get_cat_ids(cat_names=classes)
        if len(self.cat_ids) != len(classes):
            known = [category['name'] for category in self._coco_api.load_cats(self._coco_api.get_cat_ids())]
            missing = [name for name in classes if name not in known]
            raise DataError(
                f'the annotation file has {len(self.cat_ids)} of the {len(classes)} classes: '
                f'{missing} missing; its categories are {known}. Set metainfo.classes and '
                'num_classes to those'
            )
        listed = self._coco_api.imgs
        unlisted = _ordered({truth['img_id'] for truth in truths} - set(listed))
        if unlisted:
            raise DataError(
                f'{len(unlisted)} evaluated images are not in the annotation file (ids '
                f'{unlisted[:5]} ...): ann_file of the dataset and of its evaluator must be the same'
            )
        for truth in truths:
            _require_same_image(truth.get('img_path'), listed[truth['img_id']])
        self.img_ids = _ordered({truth['img_id'] for truth in truths} or set(listed))
        if len(self.img_ids) < len(listed):
            log(
                f'{len(self.img_ids)} of the {len(listed)} images of the annotation file were '
                'processed: AP is of these'
            )
        self._truth = self._renumbered(self._coco_api.dataset)

    def _renumbered(self, content: dict) -> COCO:
        """Index the objects of the evaluated images and classes, with ids that count from 1.

        pycocotools takes an annotation with id 0 as not matched, and compares and sorts ids of
        images and categories as NumPy does, which turns numbers beside texts into texts.
        """
        self._image_numbers = {known: number for number, known in enumerate(self.img_ids, start=1)}
        wanted = _ordered(self.cat_ids)
        self._category_numbers = {known: number for number, known in enumerate(wanted, start=1)}
        annotations: list[dict] = []
        for annotation in content.get('annotations', ()):
            image = self._image_numbers.get(annotation['image_id'])
            category = self._category_numbers.get(annotation['category_id'])
            if image is not None and category is not None:
                ids = dict(id=len(annotations) + 1, image_id=image, category_id=category)
                crowd = int(bool(annotation.get('iscrowd')))
                annotations.append({**_without_fragments(annotation), **ids, 'iscrowd': crowd})
        images = []
        for known, number in self._image_numbers.items():
            record = self._coco_api.imgs[known]
            # pycocotools takes whole numbers only, for masks
            sides = {side: int(record[side]) for side in SIDES if side in record}
            images.append(dict(id=number, **sides))
        categories = [
            dict(id=number, name=self._coco_api.cats[known]['name'])
            for known, number in self._category_numbers.items()
        ]
        return _indexed(images, categories, annotations)

    def _load_detections(self, files: dict[str, str], iou_type: str, any_image: bool) -> COCO:
        """Index the dumped predictions; an empty index where there are none."""
        if any_image and iou_type not in files:
            raise ConfigError(
                f"metric={iou_type!r}, but the model predicts no masks: remove 'segm' from the evaluator"
            )
        detections = load(files[iou_type]) if any_image else []
        if not detections:
            log(f'{iou_type}: the model predicted nothing in {len(self.img_ids)} images, so every AP is 0')
        for number, detection in enumerate(detections, start=1):
            if iou_type == 'segm':
                # a mask is small, medium or large by its own area, not its box's
                detection['area'] = float(rle.area(detection['segmentation']))
            else:
                detection['area'] = detection['bbox'][2] * detection['bbox'][3]
            detection.update(
                id=number,
                image_id=self._image_numbers[detection['image_id']],
                category_id=self._category_numbers[detection['category_id']],
                iscrowd=0,
            )
        return _indexed(self._truth.dataset['images'], self._truth.dataset['categories'], detections)

    def _evaluate(self, detections: COCO, iou_type: str) -> COCOeval:
        evaluation = (COCOevalMP if self.use_mp_eval else COCOeval)(self._truth, detections, iou_type)
        evaluation.params.maxDets = list(self.proposal_nums)
        evaluation.params.iouThrs = np.atleast_1d(self.iou_thrs)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if self.backend == 'faster':
                _match_faster(evaluation)
            else:
                evaluation.evaluate()
                evaluation.accumulate()
            printed.truncate(printed.seek(0))
            evaluation.summarize()
        text = printed.getvalue().rstrip()
        if self.max_per_img != MAX_PER_IMG:  # pycocotools' first value is of 100 whatever the limits are: -1
            precision = self._precision(evaluation)
            evaluation.stats[0] = precision[precision > -1].mean() if (precision > -1).any() else -1
            mean = f'maxDets={self.max_per_img:>3d} ] = {evaluation.stats[0]:0.3f}'
            text = text.replace('maxDets=100 ] = -1.000', mean, 1)
        log(f'{iou_type}:\n{text}')
        return evaluation

    def _precision(self, evaluation: COCOeval) -> np.ndarray:
        """Return the precisions of which `mAP` is the mean, (IoU thresholds, recalls, classes)."""
        limit = list(evaluation.params.maxDets).index(self.max_per_img)
        return evaluation.eval['precision'][:, :, :, 0, limit]

    def _class_ap(self, evaluation: COCOeval) -> dict[str, float]:
        """Return the AP of each class by name, over all sizes, as in ``mAP``."""
        precision = self._precision(evaluation)
        precision = np.where(precision > -1, precision, np.nan)
        class_ap = {}
        for known in self.cat_ids:
            category = self._truth.cats[self._category_numbers[known]]
            # pycocotools has sorted the ids
            ap = precision[:, :, evaluation.params.catIds.index(category['id'])]
            class_ap[category['name']] = float(np.nan if np.isnan(ap).all() else np.nanmean(ap))
        return class_ap


def _ordered(ids: Iterable) -> list:
    """Sort ids, numbers before texts."""
    return sorted(ids, key=lambda known: (isinstance(known, str), known))


def _once(results: list[tuple[dict, dict]]) -> list[tuple[dict, dict]]:
    """Return the results of each image once: RepeatDataset and ClassBalancedDataset repeat them.

    Raises:
        DataError: Two images have the same id, as those of two files have.
    """
    found: dict[object, tuple[dict, dict]] = {}
    for result in results:
        truth = result[0]
        first = found.setdefault(truth['img_id'], result)[0]
        if first.get('img_path') != truth.get('img_path'):
            raise DataError(
                f'{first["img_path"]} and {truth["img_path"]} have the same image id '
                f'{truth["img_id"]!r}: evaluate each annotation file by its own test'
            )
    if len(found) < len(results):
        log(f'{len(results)} images were processed, {len(found)} different ones: each counts once')
    return list(found.values())


def _without_fragments(annotation: dict) -> dict:
    """Leave out polygons of fewer than three points, as MMDetection's loader does.

    pycocotools takes all polygons for boxes if the first one has four numbers.
    """
    mask = annotation.get('segmentation')
    if not isinstance(mask, list):
        return annotation
    return {**annotation, 'segmentation': [part for part in mask if len(part) >= 6]}


def _indexed(images: list[dict], categories: list[dict], annotations: list[dict]) -> COCO:
    """Return pycocotools' index of these lists."""
    index = COCO()
    index.dataset = dict(images=images, categories=categories, annotations=annotations)
    _quietly(index.createIndex)
    return index


def _match_faster(evaluation: COCOeval) -> None:
    """Set ``eval``, precision and recall, as pycocotools' ``evaluate`` and ``accumulate`` do.

    What is a mean of what stays pycocotools': faster-coco-eval takes the largest limit of
    detections for `mAP`, not 100.
    """
    from faster_coco_eval import COCO as FasterCOCO
    from faster_coco_eval import COCOeval_faster

    truth, detections = (FasterCOCO(index.dataset) for index in (evaluation.cocoGt, evaluation.cocoDt))
    params = evaluation.params
    faster = COCOeval_faster(truth, detections, params.iouType)
    faster.params.maxDets, faster.params.iouThrs = params.maxDets, params.iouThrs
    faster.evaluate()
    faster.accumulate()
    # both sort the limits
    params.maxDets = faster.params.maxDets
    evaluation.eval = faster.eval


def _require_same_image(path: str | None, record: dict) -> None:
    """Raise DataError if the image of this path is not that of the record with its id."""
    if path and record.get('file_name') and Path(path).name != Path(record['file_name']).name:
        raise DataError(
            f'image {path} has the id {record["id"]!r}, which is {record["file_name"]} in the '
            'annotation file of the evaluator: give it the ann_file of the dataset; evaluate '
            'several files one by one'
        )


def _quietly(function, *args):
    """Call one of pycocotools' functions without the progress that it prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        return function(*args)
