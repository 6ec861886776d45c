"""The metrics against pycocotools, NumPy, MMDetection's and MMSegmentation's own, and with invalid input."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmdet.evaluation.metrics import CocoMetric as MMDetCocoMetric
from mmengine.logging import MMLogger
from mmengine.structures import PixelData
from mmseg.evaluation.metrics import IoUMetric as MMSegIoUMetric
from mmseg.structures import SegDataSample
from PIL import Image
from pycocotools import mask as rle
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmlape.datasets.palette import class_palette
from mmlape.engine.hooks import SavePredictionsHook
from mmlape.errors import ConfigError, DataError
from mmlape.evaluation import CocoMetric, IoUMetric

CLASSES = ('ant', 'bee', 'cat', 'dog')  # no dog anywhere in the ground truth
SIZE = 160


def _box_mask(box):
    """An ellipse that fills the box (x, y, w, h), so that box and mask AP differ."""
    x, y, w, h = box
    rows, columns = np.mgrid[:SIZE, :SIZE]
    inside = ((columns - x - w / 2) / (w / 2)) ** 2 + ((rows - y - h / 2) / (h / 2)) ** 2 <= 1
    return inside.astype(np.uint8)


@pytest.fixture(scope='module')
def detection(tmp_path_factory):
    """An annotation file of six images, and detections: shifted truths, wrong labels, and false alarms."""
    rng = np.random.default_rng(0)
    images, annotations, samples = [], [], []
    for image_id in range(10, 16):
        images.append({'id': image_id, 'width': SIZE, 'height': SIZE, 'file_name': f'{image_id}.jpg'})
        boxes, labels, masks, scores = [], [], [], []
        for _ in range(5):
            side = rng.choice([20.0, 60.0])
            box = np.array([*rng.uniform(0, SIZE - side, 2), side, side * rng.uniform(0.7, 1)])
            label = int(rng.integers(3))
            segmentation = rle.encode(np.asfortranarray(_box_mask(box)))
            segmentation['counts'] = segmentation['counts'].decode()
            annotations.append(
                {
                    'id': len(annotations) + 1,
                    'image_id': image_id,
                    'category_id': label + 7,
                    'bbox': box.tolist(),
                    'area': float(rle.area(segmentation)),
                    'segmentation': segmentation,
                    'iscrowd': 0,
                }
            )
            guess = box + rng.normal(0, 0.06, 4) * side
            boxes.append([guess[0], guess[1], guess[0] + guess[2], guess[1] + guess[3]])
            labels.append(label if rng.random() < 0.8 else int(rng.integers(4)))
            masks.append(_box_mask(guess))
            scores.append(rng.uniform(0.2, 1))
        prediction = {
            'bboxes': torch.tensor(np.array(boxes), dtype=torch.float32),
            'labels': torch.tensor(labels),
            'scores': torch.tensor(np.array(scores), dtype=torch.float32),
            'masks': torch.tensor(np.array(masks)).bool(),
        }
        samples.append({'img_id': image_id, 'ori_shape': (SIZE, SIZE), 'pred_instances': prediction})
    path = tmp_path_factory.mktemp('coco') / 'truth.json'
    categories = [{'id': number + 7, 'name': name} for number, name in enumerate(CLASSES)]
    path.write_text(json.dumps({'images': images, 'annotations': annotations, 'categories': categories}))
    return path, samples


def _evaluate(metric, samples, classes=CLASSES):
    metric.dataset_meta = {'classes': classes}
    for sample in samples:
        metric.process({}, [sample])
    return metric.evaluate(size=len(samples))


def _without_objects(samples):
    empty = {name: values[:0] for name, values in samples[0]['pred_instances'].items()}
    return [{**sample, 'pred_instances': empty} for sample in samples]


def test_coco_equals_pycocotools_on_the_dumped_predictions(detection, tmp_path):
    path, samples = detection
    prefix = tmp_path / 'predictions'
    metric = CocoMetric(ann_file=str(path), metric=['bbox', 'segm'], outfile_prefix=str(prefix))
    values = _evaluate(metric, samples)
    truth = COCO(str(path))
    for kind in ('bbox', 'segm'):
        predictions = json.loads((tmp_path / f'predictions.{kind}.json').read_text())
        if kind == 'segm':
            predictions = [{k: v for k, v in p.items() if k != 'bbox'} for p in predictions]
        reference = COCOeval(truth, truth.loadRes(predictions), kind)
        reference.evaluate()
        reference.accumulate()
        reference.summarize()
        for place, name in enumerate(('mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l')):
            assert values[f'coco/{kind}_{name}'] == pytest.approx(reference.stats[place], abs=1e-12)
        singles = []
        for number, name in enumerate(CLASSES[:3]):
            reference.params.catIds = [number + 7]
            reference.evaluate()
            reference.accumulate()
            reference.summarize()
            singles.append(values[f'coco/per_class/{kind}_AP/{name}'])
            assert singles[-1] == pytest.approx(reference.stats[0], abs=1e-12)
        assert math.isnan(values[f'coco/per_class/{kind}_AP/dog'])
        assert np.mean(singles) == pytest.approx(values[f'coco/{kind}_mAP'], abs=1e-12)
        assert 0.1 < values[f'coco/{kind}_mAP'] < 0.9
    assert values['coco/bbox_mAP'] != values['coco/segm_mAP']


def test_coco_is_mmdets_metric_without_the_rounding(detection):
    path, samples = detection
    ours = _evaluate(CocoMetric(ann_file=str(path), metric=['bbox', 'segm'], per_class=False), samples)
    theirs = _evaluate(MMDetCocoMetric(ann_file=str(path), metric=['bbox', 'segm']), samples)
    assert ours.keys() == theirs.keys()
    assert [round(value, 3) for value in ours.values()] == list(theirs.values())
    assert list(ours.values()) != list(theirs.values())


def test_coco_takes_its_truth_from_the_samples_without_an_annotation_file(detection):
    path, samples = detection
    truth = json.loads(path.read_text())
    with_truth = []
    for sample in samples:
        found = [a for a in truth['annotations'] if a['image_id'] == sample['img_id']]
        instances = [
            {
                'bbox': [a['bbox'][0], a['bbox'][1], a['bbox'][0] + a['bbox'][2], a['bbox'][1] + a['bbox'][3]],
                'bbox_label': a['category_id'] - 7,
            }
            for a in found
        ]
        with_truth.append({**sample, 'instances': instances})
    from_file = _evaluate(CocoMetric(ann_file=str(path)), samples)
    from_samples = _evaluate(CocoMetric(), with_truth)
    assert from_samples['coco/bbox_mAP'] == pytest.approx(from_file['coco/bbox_mAP'], abs=1e-9)


def test_coco_without_predictions_is_zero_and_logged(detection, caplog):
    path, samples = detection
    metric = CocoMetric(ann_file=str(path), metric=['bbox', 'segm'])
    MMLogger.get_instance('metrics').addHandler(caplog.handler)
    for given in (_without_objects(samples), []):
        values = _evaluate(metric, given)
        for kind in ('bbox', 'segm'):
            assert values[f'coco/{kind}_mAP'] == 0
            assert values[f'coco/per_class/{kind}_AP/ant'] == 0
            assert math.isnan(values[f'coco/per_class/{kind}_AP/dog'])
        assert caplog.text.count('predicted nothing in 6 images') == 2
        caplog.clear()


def test_coco_refuses_what_does_not_fit(detection):
    path, samples = detection
    with pytest.raises(DataError, match=r"4 of the 5 classes: \['emu'\] missing"):
        _evaluate(CocoMetric(ann_file=str(path)), samples, classes=(*CLASSES, 'emu'))
    with pytest.raises(DataError, match='not in the annotation file'):
        _evaluate(CocoMetric(ann_file=str(path)), [{**samples[0], 'img_id': 99}])
    boxes_only = {k: v for k, v in samples[0]['pred_instances'].items() if k != 'masks'}
    with pytest.raises(ConfigError, match='predicts no masks'):
        _evaluate(CocoMetric(ann_file=str(path), metric='segm'), [{**samples[0], 'pred_instances': boxes_only}])
    with pytest.raises(ConfigError, match='proposal'):
        CocoMetric(ann_file=str(path), metric='proposal')


@pytest.fixture(scope='module')
def maps():
    """Three pairs of maps over five classes: class 3 is predicted but never true, class 4 is in neither."""
    rng = np.random.default_rng(1)
    pairs = []
    for height, width in ((31, 40), (50, 23), (17, 17)):
        truth = rng.integers(0, 3, (height, width))
        predicted = np.where(rng.random((height, width)) < 0.6, truth, rng.integers(0, 4, (height, width)))
        truth[rng.random((height, width)) < 0.1] = 255
        pairs.append((truth, predicted))
    return pairs


def _as_samples(pairs):
    wrap = lambda array: {'data': torch.as_tensor(array)[None]}  # noqa: E731
    return [
        {'gt_sem_seg': wrap(truth), 'pred_sem_seg': wrap(predicted), 'img_path': f'{number}.jpg'}
        for number, (truth, predicted) in enumerate(pairs)
    ]


NAMES = ('a', 'b', 'c', 'd', 'e')


def test_iou_equals_a_confusion_matrix(maps):
    values = _evaluate(IoUMetric(), _as_samples(maps), NAMES)
    confusion = np.zeros((5, 5))
    for truth, predicted in maps:
        kept = truth != 255
        np.add.at(confusion, (truth[kept], predicted[kept]), 1)
    right = np.diag(confusion)
    with np.errstate(invalid='ignore'):
        iou = 100 * right / (confusion.sum(0) + confusion.sum(1) - right)
        accuracy = 100 * right / confusion.sum(1)
    assert values['mIoU'] == pytest.approx(np.nanmean(iou), abs=1e-10)
    assert values['mAcc'] == pytest.approx(np.nanmean(accuracy), abs=1e-10)
    assert values['aAcc'] == pytest.approx(100 * right.sum() / confusion.sum(), abs=1e-10)
    for number, name in enumerate(NAMES):
        assert values[f'per_class/IoU/{name}'] == pytest.approx(iou[number], abs=1e-10, nan_ok=True)
        assert values[f'per_class/Acc/{name}'] == pytest.approx(accuracy[number], abs=1e-10, nan_ok=True)
    assert values['per_class/IoU/d'] == 0
    assert math.isnan(values['per_class/Acc/d'])
    assert math.isnan(values['per_class/IoU/e'])


@pytest.mark.parametrize('measures', [['mIoU'], ['mIoU', 'mDice', 'mFscore']])
def test_iou_is_mmsegs_metric_without_the_rounding(maps, measures):
    ours = _evaluate(IoUMetric(iou_metrics=measures, per_class=False), _as_samples(maps), NAMES)
    theirs = _evaluate(MMSegIoUMetric(iou_metrics=measures), _as_samples(maps), NAMES)
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        assert ours[key] == pytest.approx(float(value), abs=0.00501, nan_ok=True)
    assert ours['mIoU'] != round(ours['mIoU'], 2)


def test_iou_counts_more_pixels_than_float32_can():
    image = torch.zeros(2**12, 2**12, dtype=torch.uint8)  # 2**24 pixels, of which one is wrong in the second image
    other = image.clone()
    other[0, 0] = 1
    values = _evaluate(IoUMetric(), _as_samples([(image, image), (image, other)]), ('a', 'b'))
    assert values['aAcc'] == pytest.approx(100 * (1 - 2.0**-25), rel=1e-12)


def test_iou_names_the_image_and_the_label_outside_the_classes(maps):
    with pytest.raises(DataError, match=r'0\.jpg: labels \[2\] in the ground truth, but the 2 classes are 0\.\.1'):
        _evaluate(IoUMetric(), _as_samples(maps), ('a', 'b'))
    with pytest.raises(DataError, match='no image was processed'):
        _evaluate(IoUMetric(), [], NAMES)


def test_iou_of_images_without_labels_is_nan(maps):
    unlabelled = [(np.full_like(truth, 255), predicted) for truth, predicted in maps]
    assert math.isnan(_evaluate(IoUMetric(), _as_samples(unlabelled), NAMES)['mIoU'])


def test_iou_writes_predicted_maps(maps, tmp_path):
    _evaluate(IoUMetric(output_dir=str(tmp_path)), _as_samples(maps), NAMES)
    assert (np.asarray(Image.open(tmp_path / '1.png')) == maps[1][1]).all()


@pytest.mark.parametrize('unlabelled', [False, True])
@pytest.mark.parametrize('num_classes', [255, 256, 257, 300])
def test_predicted_maps_hold_every_label(tmp_path, num_classes, unlabelled):
    """The metric's files and the hook's, which have the values of the annotations: classes from 1 where 0 is none."""
    labels = torch.tensor([[0, 1, 254], [num_classes - 1, 7, 0]])
    sample = SegDataSample(
        pred_sem_seg=PixelData(data=labels[None]),
        metainfo=dict(img_path='folder/a.b.jpg', reduce_zero_label=unlabelled),
    )
    metric = IoUMetric(output_dir=str(tmp_path / 'metric'), format_only=True)
    metric.dataset_meta = dict(classes=[str(number) for number in range(num_classes)])
    metric.process({}, [sample.to_dict()])
    palette = class_palette(num_classes)
    dataset = SimpleNamespace(metainfo=dict(metric.dataset_meta, palette=palette), reduce_zero_label=unlabelled)
    runner = SimpleNamespace(test_loop=SimpleNamespace(dataloader=SimpleNamespace(dataset=dataset)))
    SavePredictionsHook(str(tmp_path / 'hook')).after_test_iter(runner, 0, outputs=[sample])
    for folder in ('metric', 'hook'):
        image = Image.open(tmp_path / folder / 'a.b.png')
        assert (np.asarray(image) == labels.numpy() + unlabelled).all()
        assert image.mode == ('I;16' if num_classes + unlabelled > 256 else 'L' if folder == 'metric' else 'P')
    if image.mode == 'P':
        assert image.convert('RGB').getpixel((1, 0)) == tuple(palette[1])
