"""Images in tiles equal MMSegmentation's slide mode, masks of pycocotools, and the image in one piece."""

import json
import runpy
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mmdet.evaluation.functional import bbox_overlaps
from mmengine import ConfigDict
from mmengine.structures import InstanceData
from mmseg.models.segmentors import EncoderDecoder
from onnx import TensorProto, helper, numpy_helper, save
from PIL import Image
from properties import examples
from pycocotools import mask as coco_mask
from test_prediction_rules import Finder, Preparation, scene
from tile_helpers import Components, components, loop_on, squares
from torch.nn import functional as F

from mmlape.errors import ConfigError
from mmlape.lab.inference.prediction import Model
from mmlape.lab.inference.tiling import BORDER, Tiling, encode_mask, merge_logits, merge_objects
from mmlape.lab.inference.trained_graph import EXAMPLES

SIDES = st.integers(1, 23)


@examples(max_examples=60)
@given(
    size=st.tuples(SIDES, SIDES), tile=st.integers(1, 12), share=st.floats(0, 0.95), classes=st.sampled_from((1, 3))
)
def test_averaged_logits_are_mmsegmentations(size, tile, share, classes):
    """Also where three tiles overlap, and for an image smaller than a tile."""
    overlap = int(share * tile)
    torch.manual_seed(0)
    image, kernel = torch.randn(1, 3, *size), torch.randn(classes, 3, 3, 3)

    def logits(crop, _=None):
        return F.conv2d(crop, kernel, padding=1) + crop.mean()  # another value in each tile

    config = ConfigDict(crop_size=(tile, tile), stride=(tile - overlap,) * 2)
    segmentor = SimpleNamespace(test_cfg=config, out_channels=classes, encode_decode=logits)
    expected = EncoderDecoder.slide_inference(segmentor, image, [{}])[0]
    tiling = Tiling(tile, overlap)
    parts = (logits(image[:, :, rows, columns])[0] for rows, columns in tiling.windows(*size))
    found = merge_logits(parts, tiling, size, 0.25 if classes == 1 else None)
    assert next(parts, None) is None and found.dtype == torch.int64
    assert torch.equal(found, expected[0].gt(0.25).long() if classes == 1 else expected.argmax(0))


@examples(max_examples=60)
@given(size=st.tuples(SIDES, SIDES), places=st.tuples(*[st.floats(0, 1)] * 4), filled=st.floats(0, 1))
def test_a_mask_of_a_tile_is_the_complete_ones(size, places, filled):
    height, width = size
    top, left = int(places[0] * (height - 1)), int(places[1] * (width - 1))
    rows = slice(top, top + 1 + int(places[2] * (height - 1 - top)))
    columns = slice(left, left + 1 + int(places[3] * (width - 1 - left)))
    image = np.zeros(size, np.uint8)
    image[rows, columns] = np.random.default_rng(0).random(size)[rows, columns] < filled
    found = encode_mask(image[rows, columns].astype(bool), (rows, columns), size)
    assert found == coco_mask.encode(np.asfortranarray(image))


class Found(Components):
    preparation = Preparation()


@examples(max_examples=25)
@given(
    tile=st.integers(20, 50), more=st.integers(0, 9), batch_size=st.integers(1, 4), seed=st.integers(0, 2**16),
    size=st.tuples(st.integers(15, 90), st.integers(15, 90)),
)  # fmt: skip
def test_objects_smaller_than_the_overlap_are_found_once_and_complete(tile, more, batch_size, seed, size):
    rng = np.random.default_rng(seed)
    image = squares(rng, size)
    model = Model(Found())
    (complete,) = model.predict(image)
    (tiled,) = model.predict(image, batch_size, tile=tile, overlap=min(10 + more, tile - 1))
    decoded = [coco_mask.decode(mask).astype(bool) for mask in tiled.masks]
    boxes = {(*box, score): mask for box, score, mask in zip(tiled.boxes.tolist(), tiled.scores.tolist(), decoded)}
    assert len(boxes) == len(tiled.boxes) == len(complete.boxes)
    for box, score, mask in zip(complete.boxes.tolist(), complete.scores.tolist(), complete.masks):
        assert (boxes[(*box, score)] == mask).all()
    assert tiled.size == complete.size == size and len(tiled.above(0.02).masks) == len(complete.above(0.02).masks)


@examples(max_examples=20)
@given(
    tile=st.integers(20, 60), batch_size=st.integers(1, 4), seed=st.integers(0, 2**16),
    sizes=st.lists(st.tuples(st.integers(14, 90), st.integers(14, 90)), min_size=1, max_size=3),
    split=st.sampled_from(('val', 'test')),
)  # fmt: skip
def test_a_loop_evaluates_the_complete_images(tile, batch_size, seed, sizes, split):
    """What is found on tiles of a batch is in the sample of its image, beside its ground truth; AP is that of all."""
    rng = np.random.default_rng(seed)
    images = [squares(rng, (28, 28), share=1), *(squares(rng, size) for size in sizes)]
    loop = loop_on(images, split, tile=tile, overlap=10, batch_size=batch_size)
    values = loop.run()
    assert values['coco/bbox_mAP'] == values['coco/segm_mAP'] == 1
    for number, (image, sample) in enumerate(zip(images, loop.outputs, strict=True)):
        expected = components(image[..., 0])
        assert sample.img_id == number and sample.ori_shape == image.shape[:2]
        assert len(sample.gt_instances) == len(sample.pred_instances) == len(expected)
        assert {*map(tuple, sample.pred_instances.bboxes.tolist())} == {*map(tuple, expected.bboxes.tolist())}


def test_objects_beyond_the_hundredth_count_where_they_are_asked_for():
    image = squares(np.random.default_rng(0), (200, 200), share=1)
    every = len(components(image[..., 0]))
    for most, kept, expected in ((None, None, 0.5), (every, None, 1), (every, 120, 0.6)):
        loop = loop_on([image], most=most, tile=64, overlap=16, max_per_img=kept)
        assert loop.run()['coco/bbox_mAP'] == pytest.approx(expected, abs=0.02)
        scores = loop.outputs[0].pred_instances.scores
        best = components(image[..., 0]).scores.sort(descending=True).values
        assert torch.equal(scores.sort(descending=True).values, best[: kept or every])


def _boxes(rng, count, sides, size):
    """Random boxes that lie in an image (height, width)."""
    lengths = rng.uniform(*sides, (count, 2))
    corners = rng.uniform(0, 1, (count, 2)) * (np.array(size[::-1]) - lengths)
    return np.concatenate([corners, corners + lengths], 1).astype(np.float32)


def _objects(boxes, scores, labels):
    return InstanceData(
        bboxes=torch.from_numpy(boxes), scores=torch.from_numpy(scores.astype(np.float32)),
        labels=torch.from_numpy(labels),
    )  # fmt: skip


@examples(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(24, 40), st.integers(50, 80), st.floats(0.05, 0.6))
def test_what_is_right_on_each_tile_is_right_on_the_image(seed, overlap, tile, visible):
    """Of an object, a tile has the part that it sees, however certain; objects overlap as they like."""
    rng, size, objects = np.random.default_rng(seed), (150, 190), []
    boxes, labels = _boxes(rng, 40, (3, overlap - 2 * BORDER - 1), size), rng.integers(0, 2, 40)
    overlaps = bbox_overlaps(boxes, boxes)
    for place in range(40):
        if not any(labels[place] == labels[other] and overlaps[place, other] > 0.5 for other in objects):
            objects.append(place)
    windows, found = Tiling(tile, overlap).windows(*size), []
    for rows, columns in windows:
        start, stop = np.array([columns.start, rows.start]), np.array([columns.stop, rows.stop])
        seen = np.c_[np.maximum(boxes[:, :2], start), np.minimum(boxes[:, 2:], stop)]
        shares = (seen[:, 2:] - seen[:, :2]).clip(0).prod(1) / (boxes[:, 2:] - boxes[:, :2]).prod(1)
        kept = [place for place in objects if shares[place] >= visible]
        found.append(_objects(seen[kept] - np.tile(start, 2).astype(np.float32), rng.random(len(kept)), labels[kept]))
    merged = merge_objects(found, windows, size)
    order = np.lexsort(merged.bboxes.numpy().T)
    expected = boxes[objects][np.lexsort(boxes[objects].T)]
    np.testing.assert_allclose(merged.bboxes.numpy()[order], expected, atol=1e-4)


def test_the_example_of_a_graph_merges_alike(tmp_path, monkeypatch, capsys):
    """By a graph that finds the same boxes in each tile, some of them at its borders."""
    size, names = (150, 190), ['a', 'b']
    Image.fromarray(np.zeros((*size, 3), np.uint8)).save(tmp_path / 'image.png')
    (tmp_path / 'labels.txt').write_text('\n'.join(names))
    shutil.copy(EXAMPLES[0], tmp_path)
    about = dict(file='model.onnx', task='detection', size=[64, 64], channels=3, batch=1, overlap=28)
    (tmp_path / 'model.json').write_text(json.dumps(dict(about, outputs=['boxes', 'scores', 'labels'])))
    monkeypatch.setattr(sys, 'argv', ['example.py', str(tmp_path / 'image.png')])
    images = helper.make_tensor_value_info('image', TensorProto.FLOAT, [1, 3, 64, 64])
    for seed in range(4):
        rng = np.random.default_rng(seed)
        boxes, scores, labels = _boxes(rng, 24, (8, 60), (64, 64)).round(), rng.random(24), rng.integers(0, 2, 24)
        values = dict(boxes=boxes[None], scores=scores[None].astype(np.float32), labels=labels[None])
        nodes = [
            helper.make_node('Constant', [], [name], value=numpy_helper.from_array(value))
            for name, value in values.items()
        ]
        kinds = [TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64]
        outputs = [helper.make_tensor_value_info(*one, None) for one in zip(values, kinds)]
        graph = helper.make_graph(nodes, 'constants', [images], outputs)
        save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8),
            tmp_path / 'model.onnx',
        )
        runpy.run_path(str(tmp_path / 'example.py'))
        printed = capsys.readouterr().out
        windows = Tiling(64, 28).windows(*size)
        merged = merge_objects([_objects(boxes, scores, labels)] * len(windows), windows, size)
        rows = zip(merged.labels.tolist(), merged.scores.tolist(), merged.bboxes.tolist())
        lines = [f'{names[label]} {score:.3f} {" ".join(map(str, box))}' for label, score, box in rows if score > 0.3]
        assert sorted(printed.splitlines()) == sorted(lines) and len(lines) > 12


@pytest.mark.parametrize(
    ('tile', 'scale', 'ending'),
    [
        (20, (40, 40), 'tile=40 keeps it'),
        (20, (20, 40), 'in the file'),
        (20, (20, 20), None),
        (64, (40, 40), None),  # the image is smaller than a tile
    ],
)
def test_a_pipeline_that_resizes_tiles_is_logged_once(tile, scale, ending, monkeypatch):
    class Resizing(Preparation):
        def of_array(self, image):
            return super().of_array(np.asarray(Image.fromarray(image).resize(scale[::-1])))

    finder, logged = Finder(), []
    finder.preparation = Resizing()
    monkeypatch.setattr('mmlape.lab.inference.prediction.log', lambda text, level: logged.append(text))
    model, grey = Model(finder), np.full((24, 40, 3), 120, np.uint8)  # without objects
    for _ in range(2):
        model.predict([grey, grey], tile=tile, overlap=4)
    assert [line.endswith(ending) for line in logged] == ([True] if ending else [])


def test_tiles_that_cannot_be_are_refused():
    finder = Finder()
    finder.preparation = Preparation()
    finder.preparation.smallest = 16
    for sizes in (
        dict(overlap=8), dict(tile=32, overlap=32), dict(tile=32, overlap=-1), dict(tile=0), dict(tile=15),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match='|'.join(f'{name}={value}' for name, value in sizes.items())):
            Model(finder).predict(scene(), **sizes)
    Model(finder).predict(scene(), tile=32, overlap=31)
    finder.test_cfg = dict(mode='slide', crop_size=(32, 48))
    with pytest.raises(ConfigError, match='48 pixels'):
        Model(finder).predict(scene(), tile=47)
    finder.task = 'classification'
    with pytest.raises(ConfigError, match='tile=64'):
        Model(finder).predict(scene(), tile=64)
