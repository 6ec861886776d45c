"""Drawings of annotations and of predictions, for models of each task."""

import shutil

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from mmdet.structures.mask import BitmapMasks, PolygonMasks
from mmengine.structures import InstanceData, PixelData
from mmpretrain.structures import DataSample
from mmseg.datasets import CityscapesDataset
from PIL import Image
from properties import examples
from pycocotools import mask as coco_mask

from mmlape.checkpoint.opening import open_file
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.folders import class_palette
from mmlape.lab.inference.drawing import draw_sample, palette_of, place_labels
from mmlape.lab.inference.prediction import compare_on_dataset, init_model, predict_batch

CLASSES = ('ant', 'bee', 'cat')


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
    return config, _checkpoint(init_model(load_config(config), None, 'cpu'), folder / 'model.pth'), folder / 'data'


def _grey(height, width):
    return np.full((height, width, 3), 128, np.uint8)


def _sample(**sides):
    sample = DataSample()
    for name, value in sides.items():
        sample.set_field(
            value if isinstance(value, InstanceData) else PixelData(data=torch.as_tensor(value)[None]), name
        )
    return sample


def _objects(seed, count, size, sides=(4, 90), masks=False):
    """Random boxes in an image; masks fill them."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(*sides, (count, 2))
    corners = (rng.random((count, 2)) * (np.array(size[::-1]) - lengths)).astype(int)
    boxes = np.concatenate([corners, corners + lengths], 1)
    found = InstanceData(
        bboxes=torch.from_numpy(boxes).float(), labels=torch.from_numpy(rng.integers(0, len(CLASSES), count)),
        scores=torch.from_numpy(rng.random(count)),
    )  # fmt: skip
    if masks:
        drawn = np.zeros((count, *size), np.uint8)
        for mask, box in zip(drawn, boxes.tolist()):
            mask[box[1] : box[3], box[0] : box[2]] = 1
        found.masks = drawn.astype(bool)
    return found


@examples(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.integers(300, 1400))
def test_a_frame_is_outside_its_object_in_the_colour_of_its_class(seed, height):
    """No pixel of the object is drawn on, and the line of a small one is thin."""
    objects = _objects(seed, 1, (height, 900), (12, 200))
    drawn = draw_sample(_grey(height, 900), _sample(gt_instances=objects), CLASSES, labels=False)
    (left, top, right, bottom), label = objects.bboxes[0].int().tolist(), int(objects.labels[0])
    changed = (drawn != 128).any(-1)
    line = 10 + 20  # of the frame, and of one that the border of the image moves
    rows, columns = np.nonzero(changed)
    assert (drawn[changed] == class_palette(3)[label]).all() and drawn.shape == (height, 900, 3)
    if min(left, top, 900 - right, height - bottom) > line:
        assert not changed[top:bottom, left:right].any()
        width = left - columns.min()
        assert 1 <= width <= max(1, min(right - left, bottom - top) / 10)
        assert (columns.max() + 1 - right, top - rows.min(), rows.max() + 1 - bottom) == (width,) * 3


@examples(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(4, 200))
def test_labels_meet_neither_each_other_nor_small_boxes(seed, count, largest):
    boxes = _objects(seed, count, (480, 640), (3, largest)).bboxes.numpy().astype(float)
    sizes = np.random.default_rng(seed).integers((30, 12), (90, 16), (count, 2))
    places = np.array([place for place in place_labels(boxes, sizes, (480, 640), 2) if place is not None]).reshape(
        -1, 4
    )
    assert (places[:, :2] >= 0).all() and (places[:, 2:] <= (640, 480)).all()
    assert len(places) in (0, *range(-(-2 * count // 3), count + 1))
    for number, place in enumerate(places):
        for other in (*places[:number], *boxes):
            low, high = np.maximum(place[:2], other[:2]), np.minimum(place[2:], other[2:])
            is_label = any(other is one for one in places[:number])
            shared = (high - low).clip(0).prod()
            assert shared <= (0 if is_label else 0.1 * (other[2:] - other[:2]).prod())


def test_where_labels_have_no_room_a_legend_names_the_classes():
    image = _grey(480, 640)
    few, many = _objects(0, 1, (480, 640), (200, 300)), _objects(0, 200, (480, 640), (8, 20))
    assert draw_sample(image, _sample(gt_instances=few), CLASSES).shape == (480, 640, 3)
    drawn = draw_sample(image, _sample(gt_instances=many), CLASSES)
    below = {tuple(colour) for colour in drawn[480:].reshape(-1, 3).tolist()}
    assert len(drawn) > 480 and {tuple(colour) for colour in class_palette(3)} <= below
    plain = draw_sample(image, _sample(gt_instances=many), CLASSES, labels=False)
    assert (plain == drawn[:480]).all(), 'no label is drawn'


def test_masks_are_drawn_alike_in_each_form():
    size = (400, 700)
    objects = _objects(3, 4, size, (30, 120), masks=True)
    dense = objects.masks
    codes = [coco_mask.encode(np.asfortranarray(mask, np.uint8)) for mask in dense]
    corners = [[[a, b, c, b, c, d, a, d]] for a, b, c, d in objects.bboxes.int().tolist()]
    plain = [dict(size=list(size), counts=runs_of(mask)) for mask in dense]
    forms = (torch.from_numpy(dense), BitmapMasks(dense, *size), codes, plain, corners,
             PolygonMasks([[np.array(part, float) for part in one] for one in corners], *size))  # fmt: skip
    expected = draw_sample(_grey(*size), _sample(gt_instances=objects), CLASSES)
    place = objects.bboxes[:, 2:].sub(objects.bboxes[:, :2]).prod(1).argmin()
    (left, top, right, bottom), label = objects.bboxes[place].int().tolist(), int(objects.labels[place])
    mixed = expected[(top + bottom) // 2, (left + right) // 2].astype(float)
    assert np.abs(mixed - (0.55 * 128 + 0.45 * np.array(class_palette(3)[label]))).max() <= 1
    for masks in forms:
        del objects.masks
        objects.masks = masks
        assert (draw_sample(_grey(*size), _sample(gt_instances=objects), CLASSES) == expected).all(), type(masks)


def runs_of(mask):
    """COCO's run lengths without its library, from zeros on."""
    values = np.r_[0, mask.T.ravel().astype(int)]
    ends = np.flatnonzero(np.diff(values))
    return np.diff(np.r_[0, ends, mask.size]).tolist()


@examples(max_examples=4)
@given(st.integers(0, 2**32 - 1))
def test_a_label_map_fills_all_classes_but_the_background(seed):
    labels = np.random.default_rng(seed).choice([0, 1, 2, 255], (16, 20)).repeat(32, 0).repeat(32, 1)
    for classes in (('ant', '__Background__', 'cat'), CLASSES):
        drawn = draw_sample(_grey(512, 640), _sample(gt_sem_seg=labels), classes, labels=False)
        for label in (0, 1, 2, 255):
            expected = 128.0
            if label != 255 and not (label == 1 and classes[1] != 'bee'):
                expected = 0.55 * 128 + 0.45 * np.array(class_palette(3)[label])
            assert np.abs(drawn[labels == label] - expected).max(initial=0) <= 1


@examples(max_examples=8)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(480, 640), (100, 200), (1000, 300)]), st.booleans())
def test_truth_is_at_the_left_and_what_is_certain_at_the_right(seed, size, as_maps):
    truth, found = _objects(seed, 5, size), _objects(seed + 1, 5, size)
    names = ('gt_instances', 'pred_instances')
    if as_maps:
        truth, found = np.random.default_rng(seed).integers(0, 3, (2, *size))
        names = ('gt_sem_seg', 'pred_sem_seg')
    both = draw_sample(_grey(*size), _sample(**dict(zip(names, (truth, found)))), CLASSES, None, 0.5, labels=False)
    known = truth if as_maps else truth[truth.scores >= 0.5]
    certain = found if as_maps else found[found.scores >= 0.5]
    sides = [
        draw_sample(_grey(*size), _sample(**{name: side}), CLASSES, labels=False)
        for name, side in zip(names, (known, certain))
    ]
    assert (both == np.concatenate(sides, 1)).all() and max(both.shape[0], both.shape[1] / 2) == max(640, *size)


def test_a_classification_names_truth_and_prediction_below_the_image():
    sample = DataSample().set_gt_label(1).set_pred_label(2).set_pred_score(torch.tensor([0.1, 0.2, 0.7]))
    drawn = draw_sample(_grey(640, 640), sample, CLASSES)
    assert (drawn[:640] == 128).all()
    first, second = (np.nonzero((drawn[640:] == colour).all(-1))[1] for colour in class_palette(3)[1:])
    assert len(first) and len(second) and first.max() < second.min()


def test_colours_are_those_of_the_data_where_it_has_one_for_each_class():
    own = [(1, 2, 3), (4, 5, 6), (7, 8, 9)]
    for dataset, expected in (
        (dict(type='BaseSegDataset', metainfo=dict(palette=own)), own),
        (dict(type='BaseSegDataset', metainfo=dict(palette=own[:2])), class_palette(3)),
        (dict(type='CityscapesDataset'), class_palette(3)),
        ({}, class_palette(3)),
    ):
        cfg = dict(default_scope='mmseg', test_dataloader=dict(dataset=dataset))
        assert palette_of(cfg, CLASSES) == list(map(tuple, expected))
    cities = dict(default_scope='mmseg', test_dataloader=dict(dataset=dict(type='CityscapesDataset')))
    assert palette_of(cities, CityscapesDataset.METAINFO['classes'])[0] == (128, 64, 128)
    assert palette_of(cities, ['car', 'road']) == [(0, 0, 142), (128, 64, 128)]


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
    model = init_model(load_config(tiny.write_config(tmp_path, own)), open_file(checkpoint), 'cpu')
    (path,) = compare_on_dataset(model, [1], tmp_path)
    ids = np.asarray(Image.open(labels)).astype(int) - 1
    stored = np.asarray(Image.open(image))
    (predicted,) = predict_batch(model, [model.preparation.of_array(stored)])
    sides = [
        draw_sample(stored, sample, model.classes, labels=False) for sample in (_sample(gt_sem_seg=ids), predicted)
    ]
    assert (np.asarray(Image.open(path))[: len(sides[0])] == np.concatenate(sides, axis=1)).all()
