"""Drawings of annotations and of predictions, for models of each task."""

import shutil

import numpy as np
import pytest
import tiny
import torch
from mmengine.structures import InstanceData, PixelData
from mmpretrain.structures import DataSample
from PIL import Image

from mmlape.lab.analysis import drawing
from mmlape.lab.analysis.drawing import draw_sample
from mmlape.lab.analysis.inference import compare_on_dataset, init_model, predict_batch
from mmlape.lab.datasets.folders import class_palette
from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data
from mmlape.weights.reading import open_file

CLASSES = ('ant', 'bee', 'cat')
CONFIGS = tiny.ROOT / 'configs'
DETECTOR = CONFIGS / 'mask_rcnn' / 'mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py'


def _checkpoint(model, path):
    """Save the model in the form of the runner's checkpoints."""
    torch.save({'state_dict': model.state_dict(), 'meta': {'dataset_meta': {'classes': model.classes}}}, path)
    return path


@pytest.fixture(scope='module')
def segmenter(tmp_path_factory):
    """A config, its checkpoint, and the folder of its data."""
    folder = tmp_path_factory.mktemp('segmenter')
    config = tiny.write_config(folder, tiny.write_data(folder / 'data'))
    torch.manual_seed(3)
    return config, _checkpoint(init_model(config, None, 'cpu'), folder / 'model.pth'), folder / 'data'


@pytest.fixture(scope='module')
def mini(tmp_path_factory):
    root = tmp_path_factory.mktemp('mini') / 'mini'
    make_mini_data(root, MiniOptions(train=2, val=2, digits=10))
    return root


def _grey(height, width):
    return np.full((height, width, 3), 128, np.uint8)


def _objects(**more):
    boxes = torch.tensor([[10.0, 10, 40, 40], [60, 50, 90, 75]])
    masks = torch.zeros(2, 80, 100, dtype=torch.bool)
    masks[0, 10:40, 10:40] = True
    masks[1, 50:75, 60:90] = True
    return InstanceData(bboxes=boxes, labels=torch.tensor([0, 2]), masks=masks, **more)


def _sample(**sides):
    sample = DataSample()
    for name, value in sides.items():
        sample.set_field(
            value if isinstance(value, InstanceData) else PixelData(data=torch.as_tensor(value)[None]), name
        )
    return sample


@pytest.fixture(autouse=True)
def _seeded_colours():
    """MMDetection varies the colours of masks by numpy's random numbers."""
    np.random.seed(0)


def _is_near(pixel, label, share=0.6):
    """Whether a pixel that was grey is mixed with the colour of a class; MMDetection varies that of masks a little."""
    expected = 128 * (1 - share) + share * np.array(class_palette(3)[label])
    return np.abs(pixel - expected).max() <= 32


def test_objects_are_drawn_where_they_are_in_the_colour_of_their_class():
    result = draw_sample(_grey(80, 100), _sample(gt_instances=_objects()), CLASSES)
    assert result.shape == (512, 640, 3)
    for (y, x), label in (((35, 35), 0), ((70, 85), 2)):
        assert _is_near(result[int(y * 6.4), int(x * 6.4)], label)
    assert (result[400:, :300] == 128).all() and (result[:40] == 128).all()


def test_objects_below_the_threshold_are_left_out():
    image, objects = _grey(80, 100), _objects(scores=torch.tensor([0.9, 0.2]))
    result = draw_sample(image, _sample(pred_instances=objects), CLASSES, score_thr=0.5)
    assert (result[:, 360:] == 128).all() and (result[200, 200] != 128).any()
    at_the_threshold = _objects(scores=torch.tensor([0.5, 0.25]))
    assert (draw_sample(image, _sample(pred_instances=at_the_threshold), CLASSES, 0.5)[200, 200] != 128).any()
    nothing = draw_sample(image, _sample(pred_instances=objects), CLASSES, score_thr=0.95)
    assert (nothing == drawing.enlarge(image)).all()


def test_ground_truth_stands_left_of_the_prediction():
    image, objects = _grey(80, 100), _objects(scores=torch.tensor([0.9, 0.2]))
    result = draw_sample(image, _sample(gt_instances=_objects(), pred_instances=objects), CLASSES, score_thr=0.5)
    truth = draw_sample(image, _sample(gt_instances=_objects()), CLASSES)
    assert result.shape == (512, 1280, 3)
    assert (result[400:500, 400:560] != 128).any() and (result[400:500, 1040:1200] == 128).all()
    assert (truth[400:500, 400:560] != 128).any()
    labels = np.zeros((64, 64), np.uint8)
    both = draw_sample(_grey(64, 64), _sample(gt_sem_seg=labels, pred_sem_seg=labels + 1), CLASSES)
    assert both.shape == (640, 1280, 3) and _is_near(both[600, 600], 0) and _is_near(both[600, 1240], 1)


def test_label_maps_are_drawn_pixel_by_pixel():
    labels = np.full((64, 64), 255)
    labels[:, :20], labels[:, 20:30] = 0, 2  # without the one between
    result = draw_sample(_grey(64, 64), _sample(gt_sem_seg=labels), CLASSES)
    assert _is_near(result[600, 199], 0) and _is_near(result[600, 200], 2)
    assert len(np.unique(result[:, 400:].reshape(-1, 3), axis=0)) == 1, 'no class'
    nothing = draw_sample(_grey(64, 64), _sample(gt_sem_seg=np.full((64, 64), 255)), CLASSES)
    assert len(np.unique(nothing.reshape(-1, 3), axis=0)) == 1
    last = draw_sample(_grey(64, 64), _sample(gt_sem_seg=np.full((64, 64), 256)), [str(k) for k in range(257)])
    assert np.abs(last[600, 600] - (51 + 0.6 * np.array(class_palette(257)[256]))).max() <= 1


def test_beside_its_ground_truth_an_image_is_turned_as_it_is_loaded(segmenter, tmp_path):
    """One with an orientation, and a label map of the pixels as they are stored."""
    _, checkpoint, data = segmenter
    own = shutil.copytree(data, tmp_path / 'data')
    image, labels = (own / kind / 'validation' / '1.png' for kind in ('images', 'annotations'))
    exif = Image.Exif()
    exif[0x112] = 6
    for file, options in ((image, dict(exif=exif)), (labels, {})):
        stored = Image.open(file)
        stored.crop((0, 0, stored.width, stored.height - 8)).save(file, **options)
    model = init_model(tiny.write_config(tmp_path, own), open_file(checkpoint), 'cpu')
    (path,) = compare_on_dataset(model, [1], tmp_path)
    ids = np.asarray(Image.open(labels)).astype(int) - 1
    stored = np.asarray(Image.open(image))
    (predicted,) = predict_batch(model, [model.preparation.of_array(stored)])
    sides = [draw_sample(stored, sample, model.classes) for sample in (_sample(gt_sem_seg=ids), predicted)]
    assert (np.asarray(Image.open(path)) == np.concatenate(sides, axis=1)).all()


def test_detections_beside_the_ground_truth(mini, tmp_path):
    model = init_model(DETECTOR, None, 'cpu', [f'data_root={mini / "coco"}', 'model.backbone.init_cfg=None'])
    paths = compare_on_dataset(model, [0, 1], tmp_path / 'pairs', score_thr=1.0)
    for path in paths:
        drawn = np.asarray(Image.open(path))
        truth, predicted = drawn[:, :640], drawn[:, 640:]
        changed = (truth != predicted).any(axis=-1).mean()  # no score is 1: only the ground truth is drawn
        assert 0.02 < changed < 0.9
