"""The metrics against pycocotools, NumPy, MMDetection's and MMSegmentation's own, and with invalid input."""

import functools
import json
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from each import each
from hypothesis import given
from hypothesis import strategies as st
from mmdet.evaluation.metrics import CocoMetric as MMDetCocoMetric
from mmdet.structures import DetDataSample
from mmengine.logging import MMLogger
from mmengine.structures import InstanceData, PixelData
from mmseg.evaluation.metrics import IoUMetric as MMSegIoUMetric
from mmseg.structures import SegDataSample
from PIL import Image
from properties import examples
from pycocotools import mask as rle
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from sklearn import metrics

from mmlape.errors import DataError
from mmlape.lab.datasets.folders import class_palette
from mmlape.lab.evaluation import CocoMetric, IoUMetric
from mmlape.lab.evaluation.coco import BACKENDS
from mmlape.lab.evaluation.metric_names import is_defined, label, show
from mmlape.lab.training.hooks import SavePredictionsHook
from mmlape.lab.training.hooks.evaluation import _instances


def _evaluate(metric, samples, classes):
    metric.dataset_meta = {'classes': classes}
    for sample in samples:
        metric.process({}, [sample])
    return metric.evaluate(size=len(samples))


def _without_objects(samples):
    empty = {name: values[:0] for name, values in samples[0]['pred_instances'].items()}
    return [{**sample, 'pred_instances': empty} for sample in samples]


# a file as one finds them: ids and order of categories are nobody's labels, crowds, one class that is not wanted
CATEGORIES = ((13, 'cat'), (2, 'ant'), (90, 'dog'), (40, 'extra'), (7, 'bee'))
LABELS = (13, 2, 90, 7)  # of the classes that are wanted, in the order of the file: MMDetection's labels
SIDE = 320


def _blob(box, side=SIDE):
    """An ellipse in the box (x, y, w, h) as run lengths: of another size class than some of the boxes."""
    x, y, w, h = box
    rows, columns = np.mgrid[:side, :side] + 0.5
    inside = ((columns - x - w / 2) / (w / 2)) ** 2 + ((rows - y - h / 2) / (h / 2)) ** 2 <= 1
    found = rle.encode(np.asfortranarray(inside.astype(np.uint8)))
    return {**found, 'counts': found['counts'].decode()}


@pytest.fixture(scope='module')
def difficult(tmp_path_factory):
    return make_difficult(tmp_path_factory.mktemp('coco') / 'truth.json', seed=3)


@functools.cache
def make_difficult(path, seed):
    """Objects of all sizes, crowds, 130 detections of an image; detections as the model has them and as COCO has."""
    rng = np.random.default_rng(seed)
    images, annotations, samples, detections = [], [], [], []
    for image_id in (907, 31, 500, 22):
        images.append({'id': image_id, 'width': SIDE, 'height': SIDE, 'file_name': f'{image_id}.jpg'})
        boxes, ids, scores = [], [], []
        if not annotations:  # the first detection of all, and its double
            box = [130.0, 120.0, 70.0, 80.0]
            annotations.append(
                dict(
                    id=1, image_id=image_id, category_id=13, bbox=box, segmentation=_blob(box), area=4398.0, iscrowd=0
                )
            )
            boxes, ids, scores = [np.array(box)] * 2, [13, 13], [0.999, 0.998]
        for number in range(24):
            side = (14, 20, 34, 60, 100, 150)[number % 6]
            box = [*rng.uniform(0, SIDE - side, 2), side, side * rng.uniform(0.8, 1)]
            category = int(rng.choice([13, 2, 90, 40, 7], p=[0.3, 0.3, 0.1, 0.1, 0.2]))
            crowd = int(number % 8 == 7)
            annotation = dict(image_id=image_id, category_id=category, bbox=box, segmentation=_blob(box))
            annotation |= dict(id=len(annotations) + 1, area=float(rle.area(annotation['segmentation'])))
            annotations.append({**annotation, 'iscrowd': crowd} if crowd or number % 3 else annotation)
            # found twice, or several times within a crowd
            for _ in range(3 if crowd else 1 + (number % 4 == 0)):
                boxes.append(np.array(box) + rng.normal(0, 0.05, 4) * side)
                ids.append(category if rng.random() < 0.85 else int(rng.choice(LABELS)))
                scores.append(rng.uniform(0.3, 1))
        for _ in range(130 if image_id == 31 else 3):  # so many false alarms that objects come after the hundredth
            boxes.append(np.array([*rng.uniform(0, 300, 2), *rng.uniform(8, 20, 2)]))
            ids.append(2)
            scores.append(rng.uniform(0.2, 0.9))
        keep = [place for place, category in enumerate(ids) if category in LABELS]
        boxes = torch.tensor(np.array(boxes)[keep], dtype=torch.float32)
        corners = torch.cat((boxes[:, :2], boxes[:, :2] + boxes[:, 2:]), 1)
        values = torch.tensor(np.array(scores)[keep], dtype=torch.float32)
        labels = torch.tensor([LABELS.index(ids[place]) for place in keep])
        masks = [_blob(box.tolist()) for box in boxes]
        for corner, score, place, mask in zip(corners.tolist(), values.tolist(), keep, masks):
            bbox = [corner[0], corner[1], corner[2] - corner[0], corner[3] - corner[1]]
            one = dict(image_id=image_id, category_id=ids[place], score=score)
            detections.append((dict(one, bbox=bbox), dict(one, segmentation=mask)))
        found = {'bboxes': corners, 'labels': labels, 'scores': values, 'masks': masks}
        samples.append({'img_id': image_id, 'ori_shape': (SIDE, SIDE), 'pred_instances': found})
    categories = [dict(id=number, name=name) for number, name in CATEGORIES]
    path.write_text(json.dumps(dict(images=images, annotations=annotations, categories=categories)))
    return path, samples, detections


def _reference(path, detections, kind, categories, limits=(100, 300, 1000), thresholds=None):
    """pycocotools on detections by category id."""
    coco = COCO(_with_crowds(path))
    evaluation = COCOeval(coco, coco.loadRes([dict(pair[kind == 'segm']) for pair in detections]), kind)
    evaluation.params.catIds, evaluation.params.maxDets = list(categories), list(limits)
    if thresholds:
        evaluation.params.iouThrs = np.atleast_1d(thresholds)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    if 100 not in limits:
        precision = evaluation.eval['precision'][:, :, :, 0, -1]
        evaluation.stats[0] = precision[precision > -1].mean()
    return evaluation.stats


STATS = ('mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l')
STATS += ('AR@100', 'AR@300', 'AR@1000', 'AR_s@1000', 'AR_m@1000', 'AR_l@1000')


@examples(max_examples=8)
@given(
    seed=st.sampled_from((3, 4)),
    kinds=st.sampled_from(('segm', 'bbox', ['segm', 'bbox'])),
    limits=st.sampled_from(((100, 300, 1000), (1, 10, 100), (100, 20, 300), 40, 125)),
    thresholds=st.sampled_from((None, (0.5,), (0.5, 0.75), (0.3, 0.5, 0.6, 0.75))),
    items=st.none() | st.lists(st.sampled_from(STATS), min_size=1, unique=True),
    order=st.permutations(('cat', 'ant', 'dog', 'bee')).flatmap(
        lambda names: st.sampled_from((tuple(names), tuple(names[:3])))
    ),
    per_class=st.booleans(),
    backend=st.sampled_from(BACKENDS),
)
def test_coco_of_a_difficult_file_is_pycocotools_and_mmdets(
    tmp_path_factory, seed, kinds, limits, thresholds, items, order, per_class, backend
):
    """With every option: at full precision the one, rounded the other, which leaves single classes out.

    A number of detections is ``max_per_img``.
    """
    path, samples, detections = make_difficult(tmp_path_factory.getbasetemp() / f'truth{seed}.json', seed)
    most = limits if isinstance(limits, int) else None
    limits = (1, 10, most) if most else limits
    items = [name for name in items or () if not most or 'AP' in name] or None
    options = dict(ann_file=str(path), metric=kinds, proposal_nums=limits, iou_thrs=thresholds, metric_items=items)
    metric = CocoMetric(**options, per_class=per_class, backend=backend, max_per_img=most)
    ours = _evaluate(metric, _of_classes(samples, order), order)
    # MMDetection's needs to be told of each annotation whether it is a crowd, and thresholds as an array
    options |= dict(ann_file=_with_crowds(path), iou_thrs=thresholds and np.array(thresholds))
    theirs = {} if most else _evaluate(MMDetCocoMetric(**options), _of_classes(samples, order), order)
    numbers = {name: number for number, name in CATEGORIES}
    kept = [pair for pair in detections if pair[0]['category_id'] in [numbers[name] for name in order]]
    expected = {}
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        stats = _reference(path, kept, kind, [numbers[name] for name in order], limits, thresholds)
        shown = items or STATS[:6]
        expected |= {f'coco/{kind}_{name}': stats[STATS.index(name)] for name in shown}
        if per_class:
            single = {
                name: _reference(path, kept, kind, [numbers[name]], limits, thresholds)[0] for name in sorted(order)
            }
            expected |= {f'coco/per_class/{kind}_AP/{name}': value for name, value in single.items()}
    assert ours == pytest.approx(expected, abs=1e-12)
    if not most:
        assert {key: round(value, 3) for key, value in ours.items() if 'per_class' not in key} == pytest.approx(theirs)


@pytest.mark.parametrize('ids', [lambda number: number, str], ids=['from 0', 'texts'])
def test_both_backends_are_equal_for_any_ids_and_a_part_of_the_images(difficult, ids):
    """Also polygons beside run lengths, sides that are floats, a class and an image without objects."""
    path, samples, _ = difficult
    truth = json.loads(path.read_text())
    numbers = {image['id']: ids(number) for number, image in enumerate(truth['images'])}
    for number, annotation in enumerate(truth['annotations']):
        annotation |= dict(id=ids(number), image_id=numbers[annotation['image_id']])
        if number % 5 == 0 and not annotation.get('iscrowd'):
            x, y, w, h = annotation['bbox']
            annotation['segmentation'] = [[x, y, x + w, y, x + w, y + h, x, y + h], [x, y, x + w, y]]
    for image in truth['images']:
        image |= dict(id=numbers[image['id']], width=float(SIDE))
    other = path.with_name('ids.json')
    other.write_text(json.dumps(truth))
    names = ('cat', 'ant', 'dog', 'bee')
    for kept in (samples, samples[1:3], _without_objects(samples), []):
        shown = [{**sample, 'img_id': numbers[sample['img_id']]} for sample in kept]
        values = [
            _evaluate(
                CocoMetric(ann_file=str(other), metric=['bbox', 'segm'], metric_items=STATS, backend=backend),
                shown,
                names,
            )
            for backend in BACKENDS
        ]
        assert values[1] == pytest.approx(values[0], abs=1e-12, nan_ok=True)
        assert bool(values[0]['coco/bbox_mAP'] > 0.1) == bool(kept is samples or len(kept) == 2)


def _with_crowds(path):
    """Write a file whose annotations all say whether they are crowds, and return its path."""
    truth = json.loads(path.read_text())
    for annotation in truth['annotations']:
        annotation.setdefault('iscrowd', 0)
    complete = path.with_name('complete.json')
    complete.write_text(json.dumps(truth))
    return str(complete)


def _of_classes(samples, names):
    """Return samples of which only these classes are detected, with labels in the order of the file."""
    numbers = sorted(number for number, name in CATEGORIES if name in names)
    file_order = [number for number, name in CATEGORIES if name in names]
    assert sorted(file_order) == numbers
    result = []
    for sample in samples:
        found = sample['pred_instances']
        categories = [LABELS[label] for label in found['labels'].tolist()]
        keep = [place for place, category in enumerate(categories) if category in file_order]
        labels = torch.tensor([file_order.index(categories[place]) for place in keep])
        kept = {key: values[keep] for key, values in found.items() if key in ('bboxes', 'scores')}
        kept |= dict(labels=labels, masks=[found['masks'][place] for place in keep])
        result.append({**sample, 'pred_instances': kept})
    return result


def test_saved_detections_have_the_files_ids(difficult):
    """What `--save-pred` writes, read by pycocotools."""
    path, samples, detections = difficult
    dataset = SimpleNamespace(cat_ids=list(LABELS))
    rows = []
    for sample in samples:
        found = InstanceData(**sample['pred_instances'])
        rows += _instances(DetDataSample(metainfo=dict(img_id=sample['img_id']), pred_instances=found), dataset)
    others = ('segmentation', 'bbox')
    kept = [tuple({key: row[key] for key in row if key != other} for other in others) for row in rows]
    for kind in ('bbox', 'segm'):
        expected = _reference(path, detections, kind, LABELS)
        assert _reference(path, kept, kind, LABELS) == pytest.approx(expected, abs=2e-3)
    assert [row['category_id'] for row in rows] == [box['category_id'] for box, _ in detections]
    assert [row['segmentation'] for row in rows] == [mask['segmentation'] for _, mask in detections]


def test_coco_takes_its_truth_from_the_samples_without_an_annotation_file(difficult):
    path, samples, _ = difficult
    truth, with_truth = json.loads(path.read_text()), []
    for sample in samples:
        instances = []
        for one in truth['annotations']:
            if one['image_id'] == sample['img_id'] and one['category_id'] in LABELS:
                x, y, w, h = one['bbox']
                label, crowd = LABELS.index(one['category_id']), one.get('iscrowd', 0)
                instances.append(dict(bbox=[x, y, x + w, y + h], bbox_label=label, ignore_flag=crowd))
        with_truth.append({**sample, 'instances': instances})
    names = ('cat', 'ant', 'dog', 'bee')
    from_file, from_samples = (
        _evaluate(metric, of_samples, names)
        for metric, of_samples in ((CocoMetric(ann_file=str(path)), samples), (CocoMetric(), with_truth))
    )
    assert from_samples['coco/bbox_mAP'] == pytest.approx(from_file['coco/bbox_mAP'], abs=1e-9)


def test_coco_without_predictions_is_zero_and_logged(difficult, caplog):
    path, samples, _ = difficult
    truth = json.loads(path.read_text())
    truth['categories'].append(dict(id=99, name='nowhere'))
    more = path.with_name('more.json')
    more.write_text(json.dumps(truth))
    metric = CocoMetric(ann_file=str(more), metric=['bbox', 'segm'])
    MMLogger.get_instance('metrics').addHandler(caplog.handler)
    for shown in (_without_objects(samples), []):
        values = _evaluate(metric, shown, ('cat', 'ant', 'dog', 'bee', 'nowhere'))
        for kind in ('bbox', 'segm'):
            assert values[f'coco/{kind}_mAP'] == 0
            assert values[f'coco/per_class/{kind}_AP/ant'] == 0
            assert math.isnan(values[f'coco/per_class/{kind}_AP/nowhere'])
        assert caplog.text.count('predicted nothing in 4 images') == 2
        caplog.clear()


def _as_samples(pairs):
    wrap = lambda array: {'data': torch.as_tensor(array)[None]}  # noqa: E731
    return [
        {'gt_sem_seg': wrap(truth), 'pred_sem_seg': wrap(predicted), 'img_path': f'{number}.jpg'}
        for number, (truth, predicted) in enumerate(pairs)
    ]


NAMES = ('a', 'b', 'c', 'd', 'e')
F_SCORES = ('Fscore', 'Precision', 'Recall')


@examples(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    present=st.integers(0, 5),
    ignored=st.sampled_from((255, 0, 2, 7, -1)),
    measures=st.lists(st.sampled_from(('mIoU', 'mDice', 'mFscore')), min_size=1, unique=True),
    nan_to_num=st.sampled_from((None, 0, -1)),
    beta=st.sampled_from((1, 2, 0.5)),
    per_class=st.booleans(),
)
def test_iou_is_scikit_learns_and_mmsegs(seed, present, ignored, measures, nan_to_num, beta, per_class):
    """With every option: at full precision the one, rounded the other, which leaves single classes out."""
    rng = np.random.default_rng(seed)
    pairs = []
    for height, width in ((9, 14), (5, 5), (3, 8)):
        truth = rng.integers(0, max(present, 1), (height, width))
        predicted = np.where(rng.random((height, width)) < 0.6, truth, rng.integers(0, 4, (height, width)))
        truth[rng.random((height, width)) < (0.2 if present else 1)] = ignored
        pairs.append((truth, predicted))
    options = dict(ignore_index=ignored, iou_metrics=measures, nan_to_num=nan_to_num, beta=beta)
    ours = _evaluate(IoUMetric(**options, per_class=per_class), _as_samples(pairs), NAMES)
    truth, predicted = (np.concatenate([maps.ravel() for maps in side]) for side in zip(*pairs))
    rows, right = _by_scikit_learn(truth[truth != ignored], predicted[truth != ignored], beta)
    names = dict(mIoU=('IoU', 'Acc'), mDice=('Dice', 'Acc'), mFscore=('Fscore', 'Precision', 'Recall'))
    wanted = list(dict.fromkeys(name for measure in measures for name in names[measure]))
    filled = {name: _filled(rows[name], nan_to_num) for name in wanted}
    expected = {'aAcc': float(_filled(np.array([right]), nan_to_num)[0])}
    expected |= {f'm{name}': _mean(row) for name, row in filled.items()}
    if per_class:
        expected |= {
            f'per_class/{name}/{label}': row[k] for name, row in filled.items() for k, label in enumerate(NAMES)
        }
    assert ours == pytest.approx(expected, abs=1e-9, nan_ok=True)
    if present:
        theirs = _evaluate(MMSegIoUMetric(**options), _as_samples(pairs), NAMES)
        overall = {key: value for key, value in ours.items() if 'per_class' not in key}
        assert overall == pytest.approx({key: float(theirs[key]) for key in theirs}, abs=0.00501, nan_ok=True)


def _by_scikit_learn(truth, predicted, beta):
    """Return the values of each class in percent, NaN where they are undefined, and the share of right pixels."""
    options = dict(labels=range(len(NAMES)), average=None, zero_division=0)
    of_truth, of_prediction = (np.bincount(values, minlength=len(NAMES)) for values in (truth, predicted))
    if not truth.size:
        return {name: np.full(len(NAMES), np.nan) for name in ('IoU', 'Acc', 'Dice', *F_SCORES)}, np.nan
    either, both = of_truth + of_prediction > 0, (of_truth > 0) & (of_prediction > 0)
    recall = np.where(of_truth > 0, metrics.recall_score(truth, predicted, **options), np.nan)
    precision = np.where(of_prediction > 0, metrics.precision_score(truth, predicted, **options), np.nan)
    scores = metrics.fbeta_score(truth, predicted, beta=beta, **options)
    rows = dict(
        IoU=np.where(either, metrics.jaccard_score(truth, predicted, **options), np.nan),
        Acc=recall,
        Dice=np.where(either, metrics.f1_score(truth, predicted, **options), np.nan),
        Fscore=np.where(both & (scores > 0), scores, np.nan),  # 0 / 0 in MMSegmentation where nothing is right
        Precision=precision,
        Recall=recall,
    )
    return {name: 100 * row for name, row in rows.items()}, 100 * metrics.accuracy_score(truth, predicted)


def _filled(row, nan_to_num):
    return row if nan_to_num is None else np.where(np.isnan(row), 100 * nan_to_num, row)


def _mean(row):
    return float(np.nanmean(row)) if np.isfinite(row).any() else math.nan


def test_a_label_outside_the_classes_is_named_with_its_image():
    """MMSegmentation leaves it out of the truth and counts what is predicted there."""
    for ignored, outside, names in each(((7, 255, NAMES), (255, 5, NAMES), (255, 2, NAMES[:2]))):
        samples = _as_samples([(np.array([[0, 1, outside]]), np.array([[0, 1, 1]]))])
        with pytest.raises(DataError, match=rf'0\.jpg has labels above {len(names) - 1}: check num_classes'):
            _evaluate(IoUMetric(ignore_index=ignored), samples, names)
    values = _evaluate(IoUMetric(), _as_samples([(np.array([[0, 4, 4]]), np.array([[0, 4, 1]]))]), NAMES)
    assert (values['per_class/IoU/e'], values['per_class/Acc/e'], values['mIoU']) == (50, 50, 50)
    with pytest.raises(DataError, match='no image was processed'):
        _evaluate(IoUMetric(), [], NAMES)


def test_units_and_names_of_metrics():
    """AP is in [0, 1] and -1 without objects; everything else is in percent."""
    for key, value, in_points, defined, name in each(
        [
            ('coco/bbox_mAP', 0.456, '45.60', True, 'box AP'),
            ('coco/segm_mAP_75', 0.5, '50.00', True, 'mask AP 75'),
            ('coco/bbox_mAP_s', -1.0, '-', False, 'box AP small'),
            ('coco/bbox_mAP_m', 1.0, '100.00', True, 'box AP medium'),
            ('coco/bbox_mAP_l', 0.0, '0.00', True, 'box AP large'),
            ('bbox_AP', -1.0, '-', False, 'box AP'),
            ('segm_AP', 0.25, '25.00', True, 'mask AP'),
            ('coco/bbox_AR@100', 0.53, '53.00', True, 'coco/bbox_AR@100'),
            ('coco/segm_AR_s@1000', -1.0, '-', False, 'coco/segm_AR_s@1000'),
            ('mIoU', 45.6, '45.60', True, 'mIoU'),
            ('IoU', -1.0, '-1.00', True, 'IoU'),
            ('mIoU', float('nan'), '-', False, 'mIoU'),
            ('accuracy/top1', 0.5, '0.50', True, 'top-1'),
            ('few-shot/25-shot', 80.0, '80.00', True, '25-shot'),
            ('mAP_of_somebody', 0.5, '0.50', True, 'mAP_of_somebody'),
        ]
    ):
        assert (show(key, value), is_defined(key, value), label(key)) == (in_points, defined, name)


@pytest.mark.parametrize(
    ('listed', 'saved'),
    [
        ('images/a/1.jpg', 'a/1.png'),
        ('images/a/../1.jpg', '1.png'),
        ('images/../../../escaped.jpg', 'escaped.png'),
        ('images/../images2/1.jpg', '1.png'),
        ('/elsewhere/1.jpg', '1.png'),
    ],
)
def test_predicted_maps_stay_in_their_folder(tmp_path, listed, saved):
    """Whatever an image list says, and whether the folder of the images is a relative path or not."""
    for number, root in enumerate((tmp_path / 'data' / 'images', os.path.relpath(tmp_path / 'data' / 'images'))):
        sample = SegDataSample(
            pred_sem_seg=PixelData(data=torch.zeros(1, 2, 2, dtype=torch.long)),
            metainfo=dict(img_path=os.path.join(os.path.dirname(root), listed)),
        )
        dataset = SimpleNamespace(metainfo=dict(classes=['a', 'b']), data_prefix=dict(img_path=str(root)))
        runner = SimpleNamespace(test_loop=SimpleNamespace(dataloader=SimpleNamespace(dataset=dataset)))
        out = tmp_path / 'work' / 'dir' / f'hook{number}'
        SavePredictionsHook(str(out)).after_test_iter(runner, 0, outputs=[sample])
        assert [path for path in tmp_path.rglob('*.png') if path.is_relative_to(out)] == [out / saved]
        assert all(path.is_relative_to(tmp_path / 'work' / 'dir') for path in tmp_path.rglob('*.png'))


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
