"""How a model runs a graph, and what counts as a difference, with graphs that are made by hand."""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from each import each
from mmdet.models import DetDataPreprocessor
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmpretrain.models import ClsDataPreprocessor
from mmpretrain.structures import DataSample
from mmseg.models import SegDataPreProcessor
from mmseg.structures import SegDataSample

from mmlape.errors import ConfigError, ExportError
from mmlape.lab.export import writing
from mmlape.lab.export.graphs import Input, largest_difference
from mmlape.lab.export.graphs.detector import ExportedDetector
from mmlape.lab.export.graphs.session import Graph
from mmlape.lab.export.writing import Form
from mmlape.lab.inference.trained_graph import image_size

PLAIN = Input(None, None, reversed=False)
# of the graph, of the resized image in it, and of the image as it was: no side is another
SIZE, RESIZED, ORIGINAL = (48, 80), (30, 60), (120, 180)


class ByHand(Graph):
    """A graph of the fixed size that returns what it is given, and keeps the image."""

    def __init__(self, *outputs):
        self.size, self.path, self.batch = SIZE, 'graph.onnx', 1
        self.given = [torch.as_tensor(value)[None] for value in outputs]

    def __call__(self, images):
        self.image = images
        return self.given


def detector(**more):
    return SimpleNamespace(
        roi_head=SimpleNamespace(test_cfg=dict(mask_thr_binary=0.5)),
        add_pred_to_datasample=lambda samples, results: [
            sample.set_field(result, 'pred_instances') or sample for sample, result in zip(samples, results)
        ],
        **more,
    )


def sample():
    factor = (RESIZED[1] / ORIGINAL[1], RESIZED[0] / ORIGINAL[0])
    return DetDataSample(metainfo=dict(img_shape=RESIZED, ori_shape=ORIGINAL, scale_factor=factor))


@pytest.mark.parametrize('rescale', [True, False])
def test_boxes_are_clamped_to_the_image_and_brought_to_the_original(rescale):
    boxes = np.float32([[3, 6, 30, 12], [0, 0, 79, 47], [0, 0, 0, 0]])
    masks = np.ones((3, 28, 28), np.float32)
    masks[0, :, 14:] = 0
    graph = ByHand(boxes, np.float32([0.9, 0.4, -1]), np.array([2, 1, 0]), masks)
    model = detector()
    ExportedDetector.install(model, partial(graph.of_batch, given=PLAIN))
    inputs = torch.arange(3.0 * RESIZED[0] * RESIZED[1]).reshape(1, 3, *RESIZED)
    (found,) = model.predict(inputs, [sample()], rescale=rescale)
    objects = found.pred_instances
    height, width = ORIGINAL if rescale else RESIZED
    scale = (width / RESIZED[1], height / RESIZED[0])
    expected = np.float32([[3, 6, 30, 12], [0, 0, 60, 30]]) * np.float32([*scale, *scale])
    np.testing.assert_allclose(objects.bboxes, expected, rtol=1e-6)
    assert objects.labels.tolist() == [2, 1] and objects.scores.tolist() == pytest.approx([0.9, 0.4])
    assert objects.masks.shape == (2, height, width) and objects.masks[1].float().mean() > 0.95
    rows, columns = np.nonzero(objects.masks[0].numpy())
    left, top, right, bottom = expected[0]
    assert (rows.min(), rows.max() + 1) == (top, bottom) and columns.min() == left
    assert columns.max() + 1 == pytest.approx((left + right) / 2, abs=1)
    assert graph.image.shape == (1, 3, *SIZE)
    assert torch.equal(graph.image[..., : RESIZED[0], : RESIZED[1]], inputs)
    assert not graph.image[..., RESIZED[0] :, :].any() and not graph.image[..., RESIZED[1] :].any()


def preprocessors():
    """Those of the three toolboxes, with and without a change of the channels, for files and for arrays."""
    values = dict(mean=[10.0, 20, 30], std=[4.0, 5, 6])
    for from_file in (True, False):
        for swap in (True, False):
            yield SegDataPreProcessor(**values, bgr_to_rgb=swap), SegDataSample(), from_file
            yield DetDataPreprocessor(**values, bgr_to_rgb=swap), DetDataSample(), from_file
            yield ClsDataPreprocessor(**values, to_rgb=swap), DataSample(), from_file
        yield ClsDataPreprocessor(to_rgb=True), DataSample(), from_file
        yield DetDataPreprocessor(bgr_to_rgb=False), DetDataSample(), from_file
        yield ClsDataPreprocessor(mean=[10.0], std=[4.0]), DataSample(), from_file


def test_an_rgb_image_becomes_what_each_toolbox_makes_of_it():
    for preprocessor, sample, from_file in each(preprocessors()):
        step = 'LoadImageFromFile' if from_file else 'PackInputs'
        cfg = Config(dict(test_dataloader=dict(dataset=dict(pipeline=[dict(type=step)]))))
        given = Input.of(SimpleNamespace(data_preprocessor=preprocessor), cfg)
        image = torch.randint(0, 256, (given.channels, 4, 6), dtype=torch.uint8)
        loaded = image.flip(0) if from_file else image  # files are read as BGR
        sample.set_metainfo(dict(img_shape=(4, 6)))
        expected = preprocessor(dict(inputs=[loaded], data_samples=[sample]))['inputs']
        torch.testing.assert_close(given.normalise(image[None].float()), expected.float())
        torch.testing.assert_close(given.restore(expected.float()), image[None].float())
        noted = {key: torch.tensor(json.loads(given.notes().get(key, default))).view(-1, 1, 1)
                 for key, default in (('mean', '0'), ('std', '1'))}  # fmt: skip
        in_order = expected.flip(1) if given.reversed else expected
        torch.testing.assert_close((image[None] - noted['mean']) / noted['std'], in_order.float())


def sizes():
    window = dict(mode='slide', crop_size=(48, 80))
    yield dict(model=dict(test_cfg=window), crop_size=(32, 64)), (48, 80)
    yield dict(model=dict(test_cfg=dict(window, mode='whole')), crop_size=(32, 64)), (32, 64)
    yield dict(model=dict(test_cfg=None), crop_size=(32, 64), img_size=16), (32, 64)
    yield dict(model=dict(), img_size=(16, 24)), (16, 24)
    yield dict(model=dict(), img_size=16), (16, 16)


def test_the_size_is_height_and_width_of_the_window_the_crop_or_the_image():
    for cfg, size in each(sizes()):
        assert image_size(Config(cfg)) == size
    with pytest.raises(ConfigError, match='give --size HEIGHT WIDTH'):
        image_size(Config(dict(model=dict())))


def test_a_graph_of_n_images_runs_as_often_as_needed():
    """Each image has its own result, the last one repeated where there are fewer."""

    class Sums(ByHand):
        def __call__(self, images):
            self.runs.append(len(images))
            return [images.sum((1, 2, 3))]

    graph, inputs = Sums(), torch.rand(5, 3, *SIZE)
    for batch, runs in each(((1, [1] * 5), (2, [2] * 3), (5, [5]), (8, [8]), (None, [5]))):
        graph.batch, graph.runs = batch, []
        (found,) = graph.of_batch(inputs, PLAIN)
        torch.testing.assert_close(found, inputs.sum((1, 2, 3)))
        assert graph.runs == runs


def outputs(scores=(0.9, 0.5, 0.3)):
    """Boxes, scores, labels and masks of an image."""
    boxes = np.float32([[0, 0, 40, 20], [10, 4, 50, 30], [30, 10, 100, 40]])
    masks = np.linspace(0, 1, 3 * 28 * 28, dtype=np.float32).reshape(3, 28, 28)
    return [value[None] for value in (boxes, np.float32(scores), np.array([0, 1, 1]), masks)]


def of_detector():
    rules = SimpleNamespace(least_score=0.1)
    rules._apart = lambda *args: ExportedDetector._apart(rules, *args)
    return rules


def changed(place, change):
    found = outputs()
    found[place] = change(found[place])
    return found


def nan_at(index):
    def change(values):
        values = values.copy()
        values[index] = np.nan
        return values

    return change


def test_differences_of_objects():
    """Both ways; whichever object is another one is found, and NaN is never near."""
    rules, plain = of_detector(), outputs()
    assert ExportedDetector.difference(rules, plain, outputs()) == 0
    order = [2, 0, 1]
    assert ExportedDetector.difference(rules, plain, [value[:, order] for value in plain]) == 0
    cases = (
        (changed(0, lambda boxes: boxes + np.float32([0, 2, 0, 0])), 0.02),
        (changed(1, lambda scores: scores - 0.05), 0.05),
        # the object of the lowest score may be another one, of its label, too
        (changed(3, lambda masks: masks * 0.75), 0.25 * plain[3][0, 1].max()),
        (changed(2, lambda labels: labels + 1), 0.6),
        # an object fewer, and room for it
        (changed(1, lambda scores: np.float32([[0.9, 0.5, -1]])), 0.2),
    )  # fmt: skip
    for other, expected in each(cases):
        for pair in ((plain, other), (other, plain)):
            assert ExportedDetector.difference(rules, *pair) == pytest.approx(expected, abs=1e-6)
    for place, index in each(((0, (0, 1, 2)), (1, (0, 0)), (1, slice(None)), (3, (0, 2, 5, 7)))):
        broken = changed(place, nan_at(index))
        for pair in ((plain, broken), (broken, plain), (broken, broken)):
            assert ExportedDetector.difference(rules, *pair) == np.inf
            assert ExportedDetector.difference_of_predicted(rules, *pair) == np.inf


@pytest.mark.parametrize('at_once', [2, 1000])
def test_differences_of_arrays(at_once, monkeypatch):
    monkeypatch.setattr('mmlape.lab.export.graphs.CHUNK', at_once)
    one = np.float32([[1, 2, 3]])
    assert largest_difference([one, one], [one, one + np.float32([0, -0.5, 0])]) == 0.5
    assert largest_difference([one], [one + np.float32([0.25, 0, -0.5])]) == 0.5
    assert largest_difference([one], [one + np.float32([0.5, 0, -0.25])]) == 0.5
    assert largest_difference([], []) == 0 and largest_difference([one[:0]], [one[:0]]) == 0
    for bad in each((one * np.nan, np.float32([[1, np.inf, 3]]), one.T, one[0])):
        assert largest_difference([one], [bad]) == largest_difference([bad], [one]) == np.inf
    assert largest_difference([one * np.nan], [one * np.nan]) == np.inf
    with pytest.raises(ValueError, match='shorter'):
        largest_difference([one], [])


@pytest.mark.parametrize(
    ('ours', 'theirs'), [(0.0, 1e-3), (0.0, np.nan), (np.nan, 0.0), (np.nan, np.nan), (0, np.inf)]
)
def test_a_graph_that_differs_is_not_kept(ours, theirs, monkeypatch):
    class Plain(torch.nn.Module):
        in_channels = 3

        def forward(self, image):
            return (image[:, :1] * 0 + ours,)

    class Given:
        def __init__(self, path, name):
            pass

        def run(self, image):
            assert image.shape == (1, 3, *SIZE)
            return [np.full((1, 1, *SIZE), theirs, np.float32)]

    monkeypatch.setattr(writing, 'Graph', Given)
    with pytest.raises(ExportError, match='differs from PyTorch by'):
        writing.compare(Plain(), 'graph.onnx', Form(SIZE))
    if np.isfinite(ours + theirs):
        assert writing.compare(Plain(), 'graph.onnx', Form(SIZE, tolerance=1e-3 + 1e-9)) == pytest.approx(1e-3)
