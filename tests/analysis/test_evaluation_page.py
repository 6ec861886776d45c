"""The page of a test: its matrices beside those of the MM packages' tools and scikit-learn, its images and tables."""

import importlib.util
import re
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import mmdet
import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData, PixelData
from mmpretrain.structures import DataSample
from mmseg.structures import SegDataSample
from sklearn import metrics
from tiny import CLASSES, write_config, write_data

from mmlape.console.tables import header_of, rows_of
from mmlape.errors import ConfigError
from mmlape.lab.analysis.confusion import SCORE, confusion_of
from mmlape.lab.analysis.evaluation_page import class_table
from mmlape.lab.config.config_file import load_config
from mmlape.lab.inference.evaluator import test as evaluate
from mmlape.lab.training.optim import InitialModel

TOOL = Path(mmdet.__file__).parent / '.mim' / 'tools' / 'analysis_tools' / 'confusion_matrix.py'
NAMES = ['a', 'b', 'c']


class Boxes:
    """A data set of detection with these objects in each image."""

    metainfo = dict(classes=NAMES)

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def get_data_info(self, place):
        return dict(img_id=f'image {place}', instances=self.images[place])


def some_boxes(rng, count):
    corners = rng.uniform(0, 40, (count, 2))
    return np.concatenate([corners, corners + rng.uniform(10, 30, (count, 2))], 1).astype(np.float32)


def detections(seed, images=6):
    """Return objects of images, and samples of predictions that are at some of them."""
    rng = np.random.default_rng(seed)
    truths, samples = [], []
    for place in range(images):
        boxes = some_boxes(rng, place)  # none in the first image
        truths.append([dict(bbox=box.tolist(), bbox_label=int(rng.integers(3)), ignore_flag=0) for box in boxes])
        found = np.concatenate([boxes + rng.normal(0, 2, boxes.shape), some_boxes(rng, 4)]).astype(np.float32)
        objects = InstanceData(
            bboxes=torch.from_numpy(found),
            scores=torch.from_numpy(rng.uniform(0, 1, len(found)).astype(np.float32)),
            labels=torch.from_numpy(rng.integers(0, 3, len(found))),
        )
        sample = DetDataSample(pred_instances=objects)
        sample.set_metainfo(dict(img_id=f'image {place}', ori_shape=(80, 80)))
        samples.append(sample)
    return Boxes(truths), samples


@pytest.mark.skipif(not TOOL.is_file(), reason='mmdet without its tools')
@pytest.mark.parametrize('seed', range(5))
def test_boxes_are_counted_as_by_mmdetections_tool(seed):
    spec = importlib.util.spec_from_file_location('mmdet_confusion_matrix', TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    data, samples = detections(seed)
    found = confusion_of(samples[0], data)
    expected = np.zeros((4, 4))
    for sample, objects in zip(samples, data.images):
        found.add(sample)
        tool.analyze_per_img_dets(expected, objects, sample.pred_instances, SCORE, 0.5)
    np.testing.assert_array_equal(found.matrix, expected)
    assert found.matrix[:3, :3].sum() and found.matrix[3].sum() and found.matrix[:, 3].sum()


def test_the_f1_of_an_image_counts_an_object_once():
    """Two boxes at one object are one right box; crowds are neither right nor missing."""
    box = dict(bbox=[0, 0, 10, 10], bbox_label=1, ignore_flag=0)
    crowd = dict(bbox=[50, 50, 60, 60], bbox_label=2, ignore_flag=1)
    data = Boxes([[box, crowd]])
    objects = InstanceData(
        bboxes=torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 10]]),
        scores=torch.tensor([0.9, 0.8, SCORE - 0.01]),
        labels=torch.tensor([1, 1, 2]),
    )
    sample = DetDataSample(pred_instances=objects, metainfo=dict(img_id='image 0', ori_shape=(80, 80)))
    found = confusion_of(sample, data)
    assert found.add(sample) == pytest.approx(2 * 1 / (2 + 1))
    assert found.matrix[1, 1] == 2 and found.matrix.sum() == 2


def test_a_large_photograph_is_counted_without_a_mask_in_memory():
    """A hundred outlined objects of 4000 x 3000 pixels take no more than 10 kB each."""
    corners = np.random.default_rng(0).integers(0, 2900, (100, 2))
    shapes = [[x, y, x + 90, y, x + 90, y + 70, x, y + 80] for x, y in corners.tolist()]
    boxes = [[x, y, x + 90, y + 80] for x, y in corners.tolist()]
    truth = [dict(bbox=box, bbox_label=0, ignore_flag=0, mask=[shape]) for box, shape in zip(boxes, shapes)]
    found = InstanceData(bboxes=torch.tensor(boxes).float(), scores=torch.ones(100), labels=torch.zeros(100).long())
    sample = DetDataSample(pred_instances=found, metainfo=dict(img_id='image 0', ori_shape=(3000, 4000)))
    confusion = confusion_of(sample, Boxes([truth]))
    tracemalloc.start()
    assert confusion.add(sample) == 1 and len(confusion.drawn(sample).gt_instances.masks) == 100
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


def test_a_class_that_is_called_background_is_a_class():
    """Words about boxes are of a detector alone, whose matrix has another name for no object."""
    data = SimpleNamespace(metainfo=dict(classes=['background', 'leaf']))
    maps = SegDataSample(
        gt_sem_seg=PixelData(data=torch.ones(1, 4, 4)), pred_sem_seg=PixelData(data=torch.ones(1, 4, 4))
    )
    pixels, boxes = (confusion_of(sample, data) for sample in (maps, detections(0)[1][0]))
    assert 'box' not in pixels.about and 'box' in boxes.about
    assert pixels.names == ['background', 'leaf'] and boxes.names == ['background', 'leaf', 'no object']


def test_pixels_and_images_are_counted_as_by_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    data = SimpleNamespace(metainfo=dict(classes=NAMES))
    truths, predictions = (torch.randint(0, 3, (4, 1, 9, 7), generator=generator) for _ in range(2))
    truths[:, :, :2] = 255
    samples = [
        SegDataSample(gt_sem_seg=PixelData(data=truth), pred_sem_seg=PixelData(data=predicted))
        for truth, predicted in zip(truths, predictions)
    ]
    found = confusion_of(samples[0], data)
    scores = [found.add(sample) for sample in samples]
    valid = truths != 255
    np.testing.assert_array_equal(found.matrix, metrics.confusion_matrix(truths[valid], predictions[valid]))
    for score, truth, predicted, kept in zip(scores, truths, predictions, valid):
        assert score == pytest.approx(metrics.jaccard_score(truth[kept], predicted[kept], average='macro'))

    labels, guesses = (torch.randint(0, 3, (50,), generator=generator).tolist() for _ in range(2))
    samples = [DataSample().set_gt_label(label) for label in labels]
    for sample, guess in zip(samples, guesses):
        sample.set_pred_score(torch.eye(3)[guess] * 0.5 + 0.1).set_pred_label(guess)
    found = confusion_of(samples[0], data)
    scores = [found.add(sample) for sample in samples]
    np.testing.assert_array_equal(found.matrix, metrics.confusion_matrix(labels, guesses))
    assert scores == pytest.approx([0.6 if label == guess else 0.1 for label, guess in zip(labels, guesses)])


def test_tables_have_recall_precision_and_confusions():
    matrix = np.array([[6, 2, 0], [0, 0, 0], [1, 3, 4]])
    confusion = SimpleNamespace(classes=NAMES, names=NAMES, unit='pixels')
    table = class_table(matrix, confusion, {'IoU': dict(a=50.0, b=float('nan'), c=25.0)})
    assert header_of(table) == ['class', 'most often taken for', 'IoU', 'pixels', 'recall', 'precision']
    assert rows_of(table) == [
        ('a', 'b 25.0 %', '50.00', '8', '75.00', '85.71'),
        ('b', '-', '-', '0', '-', '0.00'),
        ('c', 'b 37.5 %', '25.00', '8', '50.00', '100.00'),
    ]


def test_a_test_writes_its_page(tmp_path):
    """It needs no other file, has the values of the metrics, and the worst images from the worst on."""
    cfg = load_config(str(write_config(tmp_path, write_data(tmp_path / 'data'))))
    model = InitialModel.build(cfg, 0).model
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'iter_1.pth')
    result = evaluate(cfg, tmp_path / 'iter_1.pth', tmp_path / 'run', page=True, show=False)
    text = (tmp_path / 'run' / 'metrics.html').read_text()
    assert (tmp_path / 'run' / 'metrics.pdf').read_bytes().startswith(b'%PDF')
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    shown = [float(value) for value in re.findall(r'<figcaption>\d\.png: ([\d.]+)', text)]
    assert len(shown) == 5 == text.count('src="data:image/jpeg') and shown == sorted(shown)
    assert all(f'{value:.2f}' in text for value in result['per_class']['IoU'].values() if value is not None)
    assert all(name in text for name in CLASSES)
    with pytest.raises(ConfigError, match='no LoadAnnotations'):
        cfg.test_dataloader.dataset.pipeline = [step for step in cfg.test_pipeline if 'Annot' not in step['type']]
        confusion_of(SegDataSample(pred_sem_seg=PixelData(data=torch.zeros(1, 2, 2))), Boxes([])).add(
            SegDataSample(pred_sem_seg=PixelData(data=torch.zeros(1, 2, 2)))
        )
