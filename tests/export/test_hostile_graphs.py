"""What is no graph of `export-onnx` is one line of `mmlape test CONFIG GRAPH`, before or while it runs."""

import json
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from config_helpers import ROOT
from each import each
from onnx import TensorProto, helper, numpy_helper

from mmlape.errors import CheckpointError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.export.graphs import Graph, install_graph
from mmlape.lab.export.graphs.classifier import ExportedClassifier
from mmlape.lab.export.graphs.detector import ExportedDetector
from mmlape.lab.export.graphs.segmentor import ExportedSegmentor
from mmlape.lab.training.optim import build_model

CONFIG = ROOT / 'configs' / 'deit' / 'deit-mini-lape_1xb32-5e_mini-digits.py'
SIZE = (64, 64)
FLOAT, INTEGER = TensorProto.FLOAT, TensorProto.INT64
CLASSES = [f'class {number}' for number in range(10)]
GOOD = dict(task='classification', classes=json.dumps(CLASSES), size='64 64', mmlape='1')
SCORES = np.linspace(0, 1, 10, dtype=np.float32)[None]


def graph(
    outputs=None, nodes=(), notes=GOOD, images=(('image', FLOAT, (1, 3, *SIZE)),), declared=None, opset=18, **more
):
    """Return the bytes of a graph whose outputs are constants, beside what is computed of its image.

    Args:
        outputs: Values by name.
        nodes: More nodes.
        notes: Its metadata.
        images: Its inputs.
        declared: The outputs that it declares; those of ``outputs`` by default.
        opset: Its version.
        more: Further arguments of the model.
    """
    outputs = dict(scores=SCORES) if outputs is None else outputs
    values = [numpy_helper.from_array(value, f'{name} value') for name, value in outputs.items()]
    given = [helper.make_node('Identity', [f'{name} value'], [name]) for name in outputs]
    kinds = [(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for name, value in outputs.items()]
    found = helper.make_graph(
        [*nodes, *given], 'graph', *([helper.make_tensor_value_info(*one) for one in ones]
                                     for ones in (images, kinds if declared is None else declared)), values,
    )  # fmt: skip
    opsets = [helper.make_opsetid('', opset), *more.pop('opsets', ())]
    model = helper.make_model(found, opset_imports=opsets, ir_version=10, **more)
    helper.set_model_props(model, notes)
    return model.SerializeToString()


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs, outputs, **attributes)


def loop():
    """A loop whose condition stays true."""
    ports = [helper.make_tensor_value_info(*one) for one in (('i', INTEGER, []), ('go', TensorProto.BOOL, []))]
    body = helper.make_graph([node('Identity', ['go'], ['on'])], 'body', ports,
                             [helper.make_tensor_value_info('on', TensorProto.BOOL, [])])  # fmt: skip
    return graph(nodes=[node('Constant', [], ['true'], value=numpy_helper.from_array(np.array(True))),
                        node('Loop', ['', 'true'], [], body=body)])  # fmt: skip


def branch():
    constant = node('Constant', [], ['s'], value=numpy_helper.from_array(SCORES))
    inside = helper.make_graph([constant], 'inside', [], [helper.make_tensor_value_info('s', FLOAT, (1, 10))])
    return graph({}, [node('Constant', [], ['true'], value=numpy_helper.from_array(np.array(True))),
                      node('If', ['true'], ['scores'], then_branch=inside, else_branch=inside)],
                 declared=[('scores', FLOAT, (1, 10))])  # fmt: skip


def elsewhere(location):
    """A graph whose scores are in another file."""
    model = onnx.load_model_from_string(graph())
    (tensor,) = model.graph.initializer
    tensor.ClearField('raw_data')
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (('location', location), ('offset', '0'), ('length', '40')):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return model.SerializeToString()


def of_shape(values, declared=None):
    """A graph that computes the shape of its scores, so that nothing but a run tells it."""
    size = numpy_helper.from_array(np.array(values))
    return graph({}, [node('Constant', [], ['size'], value=size), node('ConstantOfShape', ['size'], ['scores'])],
                 declared=[('scores', FLOAT, declared or values)])  # fmt: skip


def computed(*nodes):
    return graph({}, nodes, declared=[('scores', FLOAT, (1, 10))])


def function():
    one = helper.make_function(
        'own', 'f', ['x'], ['y'], [node('Identity', ['x'], ['y'])], [helper.make_opsetid('', 18)]
    )
    return graph(functions=[one], opsets=[helper.make_opsetid('own', 1)])


def no_graphs():
    """Files for a classifier of ten classes, and a part of the line that answers each."""
    whole = graph()
    random = np.random.default_rng(0)
    unread = 'no graph that onnxruntime can run'
    yield from (
        (b'', unread), (b'text', unread), (random.bytes(4096), unread), (whole[:50], unread), (whole[:-9], ''),
        (b'PK\x03\x04' + bytes(99), unread), (graph(opset=9999), unread), (graph(opset=0), ''),
        (graph(nodes=[node('Unknown', ['image'], ['x'])]), unread),
        (graph(nodes=[node('Own', ['image'], ['x'], domain='own')], opsets=[helper.make_opsetid('own', 1)]), 'of own'),
        (function(), 'a function, f'), (loop(), 'a graph inside, of Loop'), (branch(), 'a graph inside, of If'),
        *((elsewhere(path), 'values in another file') for path in ('missing', '../x', '/etc/passwd', 'h.onnx', '')),
        (graph(notes=GOOD | dict(task='')), 'the graph of'),
        (graph(notes=GOOD | dict(task='segmentation')), 'a model for segmentation'),
        *((graph(notes=GOOD | dict(classes=classes)), 'no list of names as classes')
          for classes in ('', 'text', '{', '3', 'null', '{"a": 1}', '[1, 2]', '[["a"]]', '"ab"', '[' * 9999, '1e999')),
        (graph(notes=GOOD | dict(classes=json.dumps(CLASSES[:9]))), 'has 9 classes'),
        (graph(notes=GOOD | dict(classes=json.dumps([*CLASSES, 'more']))), 'has 11 classes'),
        (graph(notes=GOOD | dict(classes=json.dumps(CLASSES[::-1]))), 'has 10 classes, class 9'),
        (graph(images=()), 'takes 0 inputs'), (graph(images=[(n, FLOAT, (1, 3, *SIZE)) for n in 'ab']), '2 inputs'),
        *((graph(images=[('image', FLOAT, shape)]), 'not images of one size')
          for shape in ((), (3,), (3, *SIZE), (1, 3, 'H', 'W'), (1, 3, 64, 0), None, (1, 3, 64, 64, 1))),
        (graph(images=[('image', FLOAT, (0, 3, *SIZE))]), 'takes 0 images'),
        # other images than results, by what is declared or by a run
        *((graph(images=[('image', FLOAT, (count, 3, *SIZE))]), 'returns scores as') for count in (2, 'N')),
        (graph({}, [node('Flatten', ['image'], ['scores'])], images=[('image', FLOAT, ('N', 3, *SIZE))],
               declared=[('scores', FLOAT, ('N', 10))]), ''),
        *((graph(images=[('image', kind, (1, 3, *SIZE))]), 'not images of one size')
          for kind in (TensorProto.UINT8, INTEGER, TensorProto.DOUBLE, TensorProto.STRING, TensorProto.FLOAT16)),
        *((graph(images=[('image', FLOAT, (1, channels, *SIZE))]), f'of {channels} channels') for channels in (1, 4)),
        (graph(images=[('image', FLOAT, (1, 3, 32, 32))]), 'export with --size 64 64'),
        *((graph(dict(zip(names, [SCORES] * 3))), 'not scores')
          for names in (('a',), ('logits',), ('scores', 'b'), 'abc')),
        (graph({}, declared=()), ''),
        *((graph(dict(scores=value)), 'returns scores as') for value in (
            SCORES[:, :9], np.ones((1, 11), np.float32), SCORES[0], SCORES[None], np.ones((2, 10), np.float32),
            SCORES.astype(np.float64), SCORES.astype(np.float16), SCORES.astype(np.int64), np.ones((1, 0), np.float32),
            np.array([['a'] * 10], dtype=object))),
        (graph({}, [node('NonZero', ['image'], ['x']), node('Cast', ['x'], ['scores'], to=FLOAT)],
               declared=[('scores', FLOAT, ('N', 'K'))]), 'returns scores as'),
        *((graph(dict(scores=np.full((1, 10), value, np.float32))), 'NaN or infinite')
          for value in (np.nan, np.inf, -np.inf)),
        (graph(dict(scores=np.where(SCORES == 1, np.nan, SCORES))), 'NaN or infinite'),
        (of_shape((1, 9), (1, 10)), ''), (of_shape((2**40, 10), (1, 10)), ''), (of_shape((2**62, 4), (1, 10)), ''),
        (of_shape((-1, 10), (1, 10)), ''), (of_shape((0, 10), (1, 10)), ''),
        (computed(node('Reshape', ['image', 'missing'], ['scores'])), unread),
        (computed(node('Identity', ['scores'], ['scores'])), unread),
        (computed(node('Identity', ['image'], ['scores'])), ''),
        (computed(node('Flatten', ['image'], ['scores'])), ''),
    )  # fmt: skip


@pytest.fixture(scope='module')
def cfg(pristine):
    cfg = load_config(CONFIG, {'data_root': str(pristine / 'digits')})
    cfg.test_dataloader.update(num_workers=0, persistent_workers=False)
    return cfg


def predict_by(file, cfg):
    """Do what `mmlape test` does with a graph, on one image."""
    from mmpretrain.structures import DataSample

    model = build_model(cfg).eval()
    install_graph(model, Graph(file), cfg, CLASSES)
    return model.predict(torch.zeros(1, 3, *SIZE), [DataSample()])


def test_what_is_no_graph_of_ours_is_one_line(cfg, tmp_path):
    file = tmp_path / 'h.onnx'
    file.write_bytes(graph())
    assert predict_by(file, cfg)[0].pred_score.numpy() == pytest.approx(SCORES[0])
    for content, message in no_graphs():
        file.write_bytes(content)
        with pytest.raises(Exception, match=message) as caught:
            predict_by(file, cfg)
        assert isinstance(caught.value, (CheckpointError,)) or 'export with --size' in str(caught.value)
        assert '\n' not in str(caught.value) and str(file) in str(caught.value)


def names(cfg):
    classes = cfg.test_dataloader.dataset.metainfo.classes
    return dict(classes=json.dumps(list(classes)))


BOXES = dict(
    boxes=np.tile(np.float32([4, 5, 40, 30]), (1, 7, 1)), scores=np.linspace(0.9, 0.1, 7, dtype=np.float32)[None],
    labels=np.arange(7)[None], masks=np.ones((1, 7, 28, 28), np.float32),
)  # fmt: skip
LABELS = dict(labels=np.ones((1, 48, 64), np.int64))


def outputs_of_others():
    """Class, model, outputs that are right, and changes of one that are wrong."""
    detector = SimpleNamespace(roi_head=SimpleNamespace(with_mask=True))
    nan = {name: np.full_like(BOXES[name], np.nan) for name in ('boxes', 'scores', 'masks')}
    yield ExportedDetector, detector, BOXES, [
        *(dict([one]) for one in nan.items()),
        *({name: value[:, :6]} for name, value in BOXES.items()),
        dict(boxes=BOXES['boxes'].transpose(0, 2, 1).copy()), dict(boxes=BOXES['boxes'][..., :3]),
        dict(masks=BOXES['masks'][:, :, 0]), *({name: value[0]} for name, value in BOXES.items()),
        dict(labels=BOXES['labels'].astype(np.int32)), dict(labels=BOXES['scores']), dict(labels=BOXES['labels'] - 1),
        dict(labels=BOXES['labels'] + 9), dict(scores=BOXES['scores'].astype(np.float64)),
        dict(scores=BOXES['scores'][0, :1].reshape(())),
    ]  # fmt: skip
    segmentor = SimpleNamespace(out_channels=10)
    wrong = (LABELS['labels'] * -1, LABELS['labels'] * 10, LABELS['labels'].astype(np.float32), LABELS['labels'][0],
             LABELS['labels'].transpose(0, 2, 1).copy())  # fmt: skip
    yield ExportedSegmentor, segmentor, LABELS, [dict(labels=value) for value in wrong]
    logits = np.zeros((1, 10, 48, 64), np.float32)
    wrong = (logits[:, :9], logits[0], logits.transpose(0, 1, 3, 2).copy(), logits * np.nan, logits.astype(np.int64))
    yield ExportedSegmentor, segmentor, dict(logits=logits), [dict(logits=value) for value in wrong]
    yield (
        ExportedClassifier,
        None,
        dict(scores=SCORES),
        [dict(scores=SCORES[:, :9]), dict(scores=np.inf * np.ones_like(SCORES))],
    )


def test_the_outputs_of_each_task(tmp_path):
    file = tmp_path / 'graph.onnx'

    def run(task, model, outputs):
        file.write_bytes(graph(outputs, notes=GOOD | dict(task=task.task), images=[('image', FLOAT, (1, 3, 48, 64))]))
        found = Graph(file)
        found.require(3, task.declared(model, found))
        return found(torch.zeros(1, 3, 48, 64))

    for task, model, right, changes in outputs_of_others():
        for value, expected in zip(run(task, model, right), right.values(), strict=True):
            np.testing.assert_array_equal(value, expected)
        for name in right:
            without = {key: value for key, value in right.items() if key != name}
            for outputs in (without, {**right, 'more': SCORES}, {**without, name: right[name]}):
                if outputs and list(outputs) != list(right):
                    with pytest.raises(CheckpointError, match='returns'):
                        run(task, model, outputs)
        for change in each(changes):
            with pytest.raises(CheckpointError, match='give a graph of export-onnx|NaN or infinite'):
                run(task, model, right | change)
