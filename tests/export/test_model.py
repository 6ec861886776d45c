"""Complete models as ONNX graphs: onnxruntime's outputs and metrics beside those of the MM packages' own inference."""

import copy
import hashlib
import json
import re
import runpy
import shutil
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from checkpoint_helpers import save
from config_helpers import ROOT
from each import each
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.structures import InstanceData
from PIL import Image
from properties import examples

from mmlape.checkpoint.opening import open_file
from mmlape.cli import main
from mmlape.errors import CheckpointError, ExportError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.export.graphs import Graph, exported_model
from mmlape.lab.export.graphs.operators import best_boxes, translations
from mmlape.lab.export.graphs.segmentor import ExportedSegmentor
from mmlape.lab.export.writing import Form, size_on_disk
from mmlape.lab.export.writing import save as save_graph
from mmlape.lab.inference.evaluator import test as evaluate
from mmlape.lab.inference.prediction import init_model, load, predict_batch
from mmlape.lab.inference.trained_graph import (
    EXAMPLES,
    Checked,
    check,
    complete,
    equal_labels,
    export,
    graph_file,
    graph_of,
    image_size,
)
from mmlape.lab.inference.trained_model import Trained
from mmlape.lab.training.optim import build_model

SIDE = 64
FORM = Form((SIDE, SIDE))
ADAPTER = dict(  # one interaction has an injector and an extractor
    arch=dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=64), interaction_indexes=[[0, 1]],
    use_extra_extractor=False, vit_feature_source='last', conv_inplane=4, deform_num_heads=2, img_size=SIDE,
    window_attn=False, init_cfg=None,
)  # fmt: skip
SEGMENTER = dict(
    backbone=dict(arch=ADAPTER['arch'], window_attn=False, init_cfg=None),
    decode_head=dict(in_channels=32, channels=32, embed_dims=32, num_heads=2, num_layers=1),
)
UPERNET = dict(
    backbone=ADAPTER,
    decode_head=dict(in_channels=[32] * 4, channels=8),
    auxiliary_head=dict(in_channels=32, channels=8),
)
MASK2FORMER = dict(
    backbone=ADAPTER,
    data_preprocessor=dict(test_cfg=dict(size=(SIDE, SIDE))),
    decode_head=dict(
        in_channels=[32] * 4, num_queries=5, pixel_decoder=dict(encoder=dict(num_layers=1)),
        transformer_decoder=dict(num_layers=1),
    ),
    test_cfg=dict(crop_size=(SIDE, SIDE), stride=(48, 48)),
)  # fmt: skip
MASK_RCNN = dict(
    backbone=ADAPTER,
    neck=dict(in_channels=[32] * 4),
    test_cfg=dict(rpn=dict(nms_pre=60, max_per_img=40), rcnn=dict(score_thr=0.08, max_per_img=20)),
)
FASTER_R_CNN = dict(  # what `new` writes for a ViT of timm, without masks
    backbone=dict(
        _delete_=True, type='mmlape.TimmViTAdapter', vit=dict(model_name='test_vit', frozen=True), mode='read-only',
        vit_feature_source='interaction', conv_inplane=4, deform_num_heads=2,
    ),
    neck=dict(in_channels=[64] * 4),
    roi_head=dict(mask_roi_extractor=None, mask_head=None),
    test_cfg=MASK_RCNN['test_cfg'],
)  # fmt: skip
DETECTOR = 'mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco'
MODELS = {
    'segmenter': ('segmenter/segmenter_deit-mini_1xb16-250i_mini-ade', SEGMENTER),
    'upernet': ('upernet/upernet_deit-mini-adapter-lape_1xb4-200i_mini-ade', UPERNET),
    'mask2former': ('mask2former/mask2former_deit-mini-adapter-lape_1xb4-200i_mini-ade', MASK2FORMER),
    'mask-rcnn': (DETECTOR, MASK_RCNN),
    'timm': (DETECTOR, FASTER_R_CNN),
}


def config_of(name, data, **changes) -> Config:
    """Return a smaller model of a mini config, on images of 64 x 64."""
    path, model = MODELS[name]
    folder = path.rpartition('_mini-')[2]
    cfg = load_config(str(ROOT / 'configs' / f'{path}.py'), [f'data_root={data}/{folder}/'])
    cfg.merge_from_dict(dict(model=copy.deepcopy(model), crop_size=(SIDE, SIDE)) | changes)
    if folder == 'ade':
        cfg.model.data_preprocessor.size = (SIDE, SIDE)
    if name == 'timm':
        cfg.test_evaluator.metric = ['bbox']
    loader = cfg.test_dataloader
    loader.update(num_workers=0, persistent_workers=False)
    for step in loader.dataset.pipeline:
        if step['type'] == 'Resize':
            step['scale'] = (SIDE, SIDE)
    return cfg


def weights_of(cfg, folder):
    """Write random weights; a detector's scores are apart, so that rounding does not change their order."""
    torch.manual_seed(0)
    model = build_model(cfg)
    for name, value in model.named_parameters():
        if name.endswith(('rpn_cls.weight', 'fc_cls.weight')):
            value.data *= 5
    return save(folder / 'trained.pth', model.state_dict(), 'state_dict')


@pytest.fixture(
    scope='module',
    params=[
        'segmenter',
        *(pytest.param(name, marks=pytest.mark.release) for name in ('mask-rcnn', 'timm', 'upernet', 'mask2former')),
    ],
)
def exported(request, pristine, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    cfg = config_of(request.param, pristine)
    checkpoint = weights_of(cfg, folder)
    export(Trained(cfg, str(checkpoint)), FORM, folder / 'model.onnx')
    return cfg, checkpoint, folder / 'model.onnx'


def read(path):
    """Return an image as a graph takes it, without a line of ours."""
    image = Image.open(path).convert('RGB')
    return np.asarray(image, np.float32).transpose(2, 0, 1)[None]


def test_a_graph_gives_the_outputs_of_the_model(exported):
    """On an image file, whose normalisation and order of channels are inside the graph; metadata say what it is."""
    cfg, checkpoint, path = exported
    model = init_model(cfg, open_file(str(checkpoint)), 'cpu')
    root = cfg.data_root
    image = sorted((ROOT / root).rglob('val*/*.jpg'))[0]
    session = onnxruntime.InferenceSession(str(path), providers=['CPUExecutionProvider'])
    found = session.run(None, {'image': read(image)})
    (sample,) = predict_batch(model, [model.preparation.of_file(image)])
    if model.task == 'segmentation':
        np.testing.assert_allclose(found[0][0], sample.seg_logits.data.numpy(), atol=1e-4, rtol=0)
    else:
        boxes, scores, labels, *masks = (value[0] for value in found)
        objects = sample.pred_instances
        count = len(objects)
        assert 0 < count <= 20 == len(scores) and (scores[count:] == -1).all()
        assert len(masks) == model.roi_head.with_mask
        np.testing.assert_allclose(scores[:count], objects.scores, atol=1e-4)
        np.testing.assert_allclose(boxes[:count], objects.bboxes, atol=1e-3)
        np.testing.assert_array_equal(labels[:count], objects.labels)
        for of_objects in masks:
            assert of_objects.shape == (20, 28, 28)
            assert 0 <= of_objects.min() < of_objects.max() <= 1
    notes = Graph(path).notes
    assert json.loads(notes['classes']) == list(cfg.classes) and notes['size'] == f'{SIDE} {SIDE}'
    assert json.loads(notes['mean']) == pytest.approx([123.675, 116.28, 103.53])
    assert (notes['task'], notes['input'], notes['normalised']) == (model.task, 'RGB 0..255', 'inside')


def test_a_graph_has_the_metrics_of_the_model(exported, tmp_path):
    """By the same evaluator; every object is the same, with its mask."""
    cfg, checkpoint, path = exported
    results = [
        evaluate(cfg, weights, tmp_path / name, save_pred=True, show=False)
        for name, weights in (('torch', checkpoint), ('onnx', path))
    ]
    assert results[0]['metrics'] == pytest.approx(results[1]['metrics'], abs=1e-3, nan_ok=True)
    assert results[0]['images'] == 3
    if results[0]['task'] == 'detection':
        files = [tmp_path / name / 'predictions' / 'predictions.json' for name in ('torch', 'onnx')]
        ours, theirs = (json.loads(file.read_text()) for file in files)
        assert len(ours) == len(theirs) > 0
        for one, other in zip(ours, theirs):
            for key in ('category_id', 'segmentation'):
                assert one.get(key) == other.get(key)
            assert one['bbox'] == pytest.approx(other['bbox'], abs=2e-3)


def test_equal_scores_are_in_the_order_of_a_stable_sort(pristine, tmp_path, monkeypatch):
    """MMDetection's own sort keeps no order of equal scores; made stable, it gives the same boxes."""
    cfg = config_of('mask-rcnn', pristine)
    model = init_model(cfg, open_file(weights_of(cfg, tmp_path)), 'cpu')
    for layer in (model.rpn_head.rpn_cls, model.roi_head.bbox_head.fc_cls):
        layer.weight.data.zero_()
        layer.bias.data.zero_()
    model.roi_head.bbox_head.fc_cls.bias.data[:4] = 2  # above the threshold
    model.roi_head.bbox_head.fc_reg.weight.data *= 20
    graph = exported_model(model, cfg)
    sort = torch.Tensor.sort
    monkeypatch.setattr(torch.Tensor, 'sort', lambda values, *args, **options: sort(
        values, dim=options.get('dim', args[0] if args else -1), descending=options.get('descending', False),
        stable=True))  # fmt: skip
    image = torch.rand(1, 3, SIDE, 80, generator=torch.Generator().manual_seed(0)) * 255
    with torch.no_grad():
        boxes, scores, labels, _ = graph(image)
        expected = graph.predicted(image)
    assert len(scores.unique()) == 1 and len(labels.unique()) == 4
    torch.testing.assert_close(boxes, expected[0], atol=1e-4, rtol=0)
    assert torch.equal(scores, expected[1]) and torch.equal(labels, expected[2])


@pytest.mark.release
def test_labels_are_the_classes_of_the_logits(pristine, tmp_path):
    """Those of two images larger than the window vote where windows overlap; predict runs the graph too."""
    cfg = config_of('segmenter', pristine)
    cfg.model.test_cfg = dict(mode='slide', crop_size=(48, 48), stride=(16, 16))
    steps = cfg.test_dataloader.dataset.pipeline
    cfg.test_dataloader.dataset.pipeline = [step for step in steps if step['type'] != 'Resize']
    cfg.dump(tmp_path / 'config.py')
    checkpoint = weights_of(cfg, tmp_path)
    path = tmp_path / 'labels.onnx'
    words = ('export-onnx', tmp_path / 'config.py', checkpoint, '--labels', '--out', path)
    assert main([str(word) for word in words]) == 0
    graph = Graph(path)
    assert graph.size == (48, 48) == image_size(cfg) and graph.outputs == ('labels',)
    model = load(cfg, path)
    image = np.random.default_rng(0).integers(0, 256, (48, 48, 3), np.uint8)
    (result,) = model.predict(image)
    own = load(cfg, checkpoint).predict(image)[0]
    np.testing.assert_array_equal(result.labels, own.labels)
    assert model.classes == own.classes
    large = np.tile(image, (2, 2, 1))[:64, :64]
    assert (model.predict(large)[0].labels == load(cfg, checkpoint).predict(large)[0].labels).mean() > 0.8


@examples(max_examples=30)
@given(labels=arrays(np.int64, (1, 3, 4), elements=st.integers(0, 1)), threshold=st.floats(0.01, 0.99))
def test_labels_of_one_class_are_those_of_the_graph(labels, threshold):
    """A model of one class decides by its sigmoid, at its own threshold."""
    model = SimpleNamespace(out_channels=1)
    ExportedSegmentor.install(model, lambda inputs: [torch.from_numpy(labels)])
    logits = model.encode_decode(torch.zeros(1, 3, 3, 4), [])
    assert logits.shape == (1, 1, 3, 4)
    np.testing.assert_array_equal((logits[:, 0].sigmoid() > threshold).numpy(), labels == 1)


CASCADE = 'cascade_mask_rcnn/cascade-mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco'
INSTANCES = 'mask2former/mask2former_deit-mini-adapter-lape_1xb4-200i_mini-coco'


@pytest.mark.parametrize(
    ('name', 'changes', 'reason'),
    [
        (CASCADE, {}, 'CascadeRCNN cannot be exported: its roi_head is CascadeRoIHead'),
        (INSTANCES, {}, 'Mask2Former cannot be exported: segmentors, Mask R-CNN'),
        (MODELS['mask-rcnn'][0], {'model.test_cfg.rcnn.nms.type': 'soft_nms'}, 'test_cfg.rcnn.nms='),
    ],
    ids=['cascade', 'mask2former', 'soft-nms'],
)
def test_a_model_that_cannot_be_exported_says_why(name, changes, reason):
    cfg = load_config(str(ROOT / 'configs' / f'{name}.py'))
    cfg.merge_from_dict(changes)
    with pytest.raises(ExportError, match=reason) as caught:
        exported_model(build_model(cfg), cfg)
    assert '\n' not in str(caught.value)


def test_each_image_of_a_batch_has_its_own_objects(pristine, tmp_path):
    """Those that it has alone, and that MMDetection finds; of an image without any, too."""
    cfg = config_of('mask-rcnn', pristine, **{'model.test_cfg.rcnn.score_thr': 0.1})
    model = init_model(cfg, open_file(weights_of(cfg, tmp_path)), 'cpu')
    graph = exported_model(model, cfg)
    paths = sorted((pristine / 'coco' / 'val2017').glob('*.jpg'))[:2]
    images = torch.from_numpy(
        np.concatenate([read(paths[0]), read(paths[1]), np.full((1, 3, SIDE, SIDE), 114.0, 'f')])
    )
    with torch.no_grad():
        found, predicted = graph(images), graph.predicted(images)
        for place in range(3):
            alone = graph(images[place : place + 1])
            for ours, theirs in zip(found, alone):
                torch.testing.assert_close(ours[place], theirs[0], atol=1e-3, rtol=1e-4)
    assert (found[1] > 0).sum(1).tolist() == (predicted[1] > 0).sum(1).tolist()
    assert not torch.equal(found[0][0], found[0][1])
    torch.testing.assert_close(found[1], predicted[1], atol=1e-4, rtol=0)
    torch.testing.assert_close(found[0], predicted[0], atol=1e-2, rtol=0)
    assert torch.equal(found[2], predicted[2])
    objects = found[1] > 0
    torch.testing.assert_close(found[3][objects], predicted[3][objects], atol=1e-3, rtol=0)


@pytest.mark.release
@pytest.mark.parametrize('name', MODELS)
def test_a_graph_takes_any_number_of_images(name, pristine, tmp_path):
    cfg = config_of(name, pristine)
    checkpoint = str(weights_of(cfg, tmp_path))
    path = tmp_path / 'model.onnx'
    export(Trained(cfg, checkpoint), Form((SIDE, SIDE), None), path)
    graph, images = Graph(path), torch.rand(4, 3, SIDE, SIDE) * 255
    assert graph.batch is None
    together = graph(images)
    for place in range(4):
        alone = graph(images[place : place + 1])
        for ours, theirs in zip(together, alone):
            torch.testing.assert_close(ours[place], theirs[0], atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize('exported', ['segmenter'], indirect=True)
def test_graphs_that_the_page_makes_smaller_are_checked(exported, pristine, tmp_path, monkeypatch, capsys):
    """They run as any graph, also without our notes; one with other outputs does not."""
    cfg, checkpoint, path = exported
    page = (ROOT / 'docs/how-to/export.md').read_text()
    (block,) = (text for text in re.findall(r'```python\n(.*?)```', page, re.DOTALL) if 'quantize_static' in text)
    monkeypatch.chdir(tmp_path)
    Path('onnx').mkdir()
    Path('images').mkdir()
    shutil.copy(path, 'onnx/model.onnx')
    complete(Path('onnx/model.onnx'))
    for image in sorted((pristine / 'ade').rglob('val*/*.jpg')):
        Image.open(image).resize((SIDE, SIDE)).save(Path('images', image.name))
    exec(block, {})
    cfg.dump('config.py')
    sizes, limits = {}, {'model': 0.9999, 'half': 0.99, 'int8': 0.9}
    for name, limit in limits.items():
        file = Path('onnx', f'{name}.onnx')
        graph = onnx.load(file)
        del graph.metadata_props[:]
        onnx.save(graph, file)
        sizes[name] = file.stat().st_size
        found = check(Trained(cfg, str(checkpoint)), file, 'images')
        assert found.equal >= limit
        command = ['export-onnx', 'config.py', str(checkpoint), '--check', 'images', '--graph', str(file)]
        assert main(command) == (0 if found.passes else 1)
        evaluate(cfg, file, tmp_path / name, show=False)
    assert sizes['int8'] < 0.6 * sizes['model'] and sizes['half'] < 0.65 * sizes['model']
    capsys.readouterr()
    graph.graph.output[0].name = graph.graph.node[-1].output[0] = 'other'
    onnx.save(graph, 'onnx/other.onnx')
    assert main([*command[:-1], 'onnx/other.onnx']) == 1
    assert 'returns other, not logits' in capsys.readouterr().err
    assert main([*command[:3], '--graph', 'onnx/half.onnx']) == 1
    assert '--graph names what --check DIR compares' in capsys.readouterr().err


@pytest.mark.parametrize('exported', ['segmenter'], indirect=True)
def test_large_values_are_in_a_file_beside_the_graph(exported, tmp_path, monkeypatch):
    _, _, path = exported
    monkeypatch.setattr('mmlape.lab.export.writing.LARGEST_FILE', 0)
    large, images = tmp_path / 'large.onnx', torch.rand(1, 3, SIDE, SIDE) * 255
    save_graph(onnx.load(path), large)
    data = tmp_path / 'large.onnx.data'
    assert data.stat().st_size > 9 * large.stat().st_size / 10
    assert size_on_disk(large) == data.stat().st_size + large.stat().st_size
    assert size_on_disk(path) == path.stat().st_size
    assert torch.equal(Graph(large)(images)[0], Graph(path)(images)[0])
    data.rename(tmp_path / 'other')
    for link in (False, True):
        if link:
            data.symlink_to(tmp_path / 'other')
        with pytest.raises(CheckpointError, match='values in another file'):
            Graph(large)


@pytest.mark.parametrize('exported', ['segmenter'], indirect=True)
def test_a_folder_runs_without_this_package(exported, pristine, tmp_path):
    cfg, checkpoint, path = exported
    (tmp_path / 'model.onnx').write_bytes(path.read_bytes())
    complete(tmp_path / 'model.onnx')
    assert {file.name for file in tmp_path.iterdir()} == {
        'model.onnx',
        'model.json',
        'labels.txt',
        'example.py',
        'example.cpp',
    }
    assert (tmp_path / 'labels.txt').read_text().splitlines() == list(cfg.classes)
    about = json.loads((tmp_path / 'model.json').read_text())
    assert (about['task'], about['size'], about['batch']) == ('segmentation', [SIDE, SIDE], 1)
    assert about['mean'] == pytest.approx([123.675, 116.28, 103.53]) and about['outputs'] == {
        'logits': [1, len(cfg.classes), SIDE, SIDE]
    }
    assert len((tmp_path / 'example.py').read_text().splitlines()) <= 80
    image = sorted((pristine / 'ade').rglob('val*/*.jpg'))[0]
    done = subprocess.run(
        [sys.executable, 'example.py', image], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    shares = dict(line.rsplit(' ', 1) for line in done.stdout.splitlines())
    labels = load(cfg, checkpoint).predict(image)[0].shares
    assert {name: float(share) for name, share in shares.items()} == pytest.approx(
        {name: share for name, share in labels.items() if share >= 0}, abs=0.02)  # fmt: skip


@pytest.mark.parametrize(
    'exported', ['segmenter', pytest.param('mask-rcnn', marks=pytest.mark.release)], indirect=True
)
def test_the_example_goes_by_the_tiles_of_the_config(exported, pristine, tmp_path, monkeypatch, capsys):
    """Logits are not averaged there: the same where tiles do not overlap."""
    cfg, checkpoint, _ = exported
    cfg, detects = copy.deepcopy(cfg), cfg.model.type.endswith('RCNN')
    cfg.test_cfg = dict(type='mmlape.TiledTestLoop', tile=SIDE, overlap=24 if detects else 0)
    data = cfg.test_dataloader.dataset
    data.pipeline = [step for step in data.pipeline if step['type'] != 'Resize']
    export(Trained(cfg, str(checkpoint)), replace(FORM, size=image_size(cfg)), tmp_path / 'model.onnx')
    complete(tmp_path / 'model.onnx')
    with Image.open(sorted((pristine / 'ade').rglob('val*/*.jpg'))[0]) as opened:
        opened.convert('RGB').resize((2 * SIDE, 3 * SIDE)).save(tmp_path / 'image.png')
    monkeypatch.setattr(sys, 'argv', ['example.py', str(tmp_path / 'image.png')])
    capsys.readouterr()
    runpy.run_path(str(tmp_path / 'example.py'))
    printed = capsys.readouterr().out
    of_graph, of_weights = (
        evaluate(cfg, file, tmp_path / name, show=False)['metrics']
        for name, file in dict(graph=tmp_path / 'model.onnx', weights=checkpoint).items()
    )
    assert of_graph == pytest.approx(of_weights, abs=0.05)
    lines = [line.rsplit(' ', 5 if detects else 1) for line in printed.splitlines()]
    (predicted,) = load(cfg, checkpoint).predict(tmp_path / 'image.png')
    if detects:
        predicted = predicted.above(0.3)
        assert [line[0] for line in lines] == predicted.names and len(lines) > 3
        found = np.array([line[1:] for line in lines], float)
        assert found == pytest.approx(np.c_[predicted.scores, predicted.boxes], abs=0.06)
    else:
        assert {name: float(share) for name, share in lines} == pytest.approx(predicted.shares, abs=0.001)


DEBIAN = 'http://deb.debian.org/debian/pool/main/o/onnxruntime'


@pytest.fixture(scope='module')
def headers(tmp_path_factory):
    """onnxruntime's headers of C++, of an older version, as Debian has them."""
    package, folder = 'libonnxruntime-dev_1.21.0+dfsg-1_amd64.deb', tmp_path_factory.mktemp('headers')
    try:
        with urllib.request.urlopen(f'{DEBIAN}/{package}', timeout=30) as page:
            content = page.read()
    except OSError as error:
        pytest.skip(f'{package} cannot be downloaded: {error}')
    assert hashlib.sha256(content).hexdigest() == '14f7d959d5deacbcf1504830d4189f91fc67382b399ed9ae9d3aa9c4050ced08'
    (folder / package).write_bytes(content)
    subprocess.run(['dpkg-deb', '-x', folder / package, folder], check=True)
    return folder / 'usr/include/onnxruntime'


@pytest.fixture(scope='module')
def compiled(headers, tmp_path_factory):
    """The example in C++ with the library of onnxruntime's wheel."""
    (library,) = Path(onnxruntime.__file__).parent.glob('capi/libonnxruntime.so.*')
    folder = tmp_path_factory.mktemp('compiled')
    for name in ('libonnxruntime.so', 'libonnxruntime.so.1'):  # as it is linked, and as it is loaded
        (folder / name).symlink_to(library)
    example, source = folder / 'example', EXAMPLES[1]
    links = [f'-L{folder}', '-lonnxruntime', f'-Wl,-rpath,{folder}']
    done = subprocess.run(
        ['c++', '-std=c++17', '-Wall', '-Wextra', f'-I{headers}', source, '-o', example, *links],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
    return example


def in_c_and_python(folder, compiled, image):
    """Return what both examples print of an image."""
    commands = [sys.executable, 'example.py', image], [compiled, image]
    return [
        subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout for command in commands
    ]


@pytest.mark.release
@pytest.mark.parametrize('exported', ['segmenter', 'mask-rcnn'], indirect=True)
@pytest.mark.parametrize('batch', [1, None])
def test_the_example_in_c_prints_what_that_in_python_does(exported, pristine, tmp_path, compiled, batch):
    """On an image that fills the graph, and on one that is padded; --labels, too."""
    cfg, checkpoint, _ = exported
    detector = cfg.model.type.endswith('RCNN')
    form = replace(FORM, batch=batch)
    export(Trained(cfg, str(checkpoint)), form, tmp_path / 'model.onnx', labels=batch is None and not detector)
    complete(tmp_path / 'model.onnx')
    with Image.open(sorted((pristine / 'ade').rglob('val*/*.jpg'))[0]) as opened:
        whole = opened.convert('RGB').resize((SIDE, SIDE))
    for size in ((SIDE, SIDE), (SIDE, SIDE // 2), (SIDE // 3, SIDE)):
        whole.resize(size).save(tmp_path / 'image.ppm')
        first, second = in_c_and_python(tmp_path, compiled, tmp_path / 'image.ppm')
        assert first == second and first
    whole.resize((SIDE + 1, SIDE)).save(tmp_path / 'image.ppm')
    done = subprocess.run([compiled, 'image.ppm'], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, f'give a PPM image in colour of at most {SIDE} x {SIDE} pixels\n')


@pytest.mark.parametrize('exported', ['segmenter'], indirect=True)
def test_a_check_says_how_equal_the_graph_is(exported, pristine, tmp_path, capsys):
    """With the metrics of the test set if the folder has it; a graph of other weights fails."""
    cfg, checkpoint, path = exported
    found = check(Trained(cfg, str(checkpoint)), path, pristine / 'ade')
    expected = evaluate(cfg, checkpoint, tmp_path / 'a', show=False)
    assert found.passes and len(found.compared) == 3
    assert [side.metrics['mIoU'] for side in found.sides] == pytest.approx([expected['metrics']['mIoU']] * 3, abs=0.05)
    printed = capsys.readouterr().out
    assert 'MMSegmentation' in printed and '3 images: 100.000%' in printed
    torch.manual_seed(1)
    other = build_model(cfg)
    other.init_weights()
    weights = save(tmp_path / 'other.pth', other.state_dict(), 'state_dict')
    assert not check(Trained(cfg, weights), path, pristine / 'ade').passes
    (image,) = sorted((pristine / 'ade').rglob('val*/*.jpg'))[:1]
    (tmp_path / 'own').mkdir()
    (tmp_path / 'own' / image.name).write_bytes(image.read_bytes())
    found = check(Trained(cfg, str(checkpoint)), path, tmp_path / 'own')
    assert len(found.compared) == 1 and not found.sides[0].metrics and found.equal == 1


@pytest.mark.parametrize('exported', ['segmenter'], indirect=True)
def test_the_graph_of_a_run_has_its_weights(exported, tmp_path):
    cfg, checkpoint, path = exported
    run = tmp_path / 'run'
    (run / 'onnx').mkdir(parents=True)
    with pytest.raises(CheckpointError, match='does not exist: mmlape export-onnx run writes it'):
        graph_of(Trained(cfg, str(checkpoint), source='run'))
    (run / 'onnx' / 'model.onnx').write_bytes(path.read_bytes())
    assert graph_of(Trained(cfg, str(checkpoint), source=str(run))) == run / 'onnx' / 'model.onnx'
    with pytest.raises(CheckpointError, match='has other weights than .*writes it again'):
        graph_of(Trained(cfg, save(tmp_path / 'b.pth', {}), source=str(run)))


def operator(module, *inputs):
    """Return a function that runs a module in onnxruntime."""
    import io

    file = io.BytesIO()
    program = torch.onnx.export(module, inputs, dynamo=True, opset_version=18, custom_translation_table=translations())
    program.save(file)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=['CPUExecutionProvider'])
    names = [given.name for given in session.get_inputs()]

    def run(*inputs):
        found = session.run(None, {name: value.numpy() for name, value in zip(names, inputs)})
        return [torch.from_numpy(value) for value in found]

    return run


class Suppression(torch.nn.Module):
    def __init__(self, by_place):
        super().__init__()
        self.by_place = by_place

    def forward(self, boxes, scores):
        return best_boxes(boxes, scores, 0.5, 0.2, 12, self.by_place)


def random_boxes(*shape):
    generator = torch.Generator().manual_seed(0)
    corners, sides = torch.rand(2, *shape, 2, generator=generator)
    return torch.cat([corners * 30, corners * 30 + 5 + 20 * sides], -1)


@pytest.mark.parametrize(('by_place', 'count'), [(False, 20), (True, 20), (True, 3)])
def test_boxes_of_each_image_are_suppressed_alone(by_place, count):
    """Equal scores, too; and of an image without boxes, or with fewer than are returned."""
    boxes, generator = random_boxes(2, 3, count), torch.Generator().manual_seed(1)
    scores = torch.rand(2, 3, count, generator=generator)
    one_empty = scores * 0.22
    one_empty[1] = 0
    run = operator(Suppression(by_place), boxes, scores)
    for row in each((scores, (scores * 4).ceil() / 4, one_empty, scores * 0)):
        place, best = run(boxes, row)
        expected = best_boxes(boxes, row, 0.5, 0.2, 12, by_place)
        assert torch.equal(place, expected[0]) and torch.equal(best, expected[1])
        for image in range(2):
            alone = best_boxes(boxes[image : image + 1], row[image : image + 1], 0.5, 0.2, 12, by_place)
            assert torch.equal(place[image], alone[0][0]) and torch.equal(best[image], alone[1][0])
    assert (best == -1).all()


@pytest.mark.parametrize('seed', range(8))
def test_equal_objects_are_counted_one_by_one(seed):
    """Sure ones of either, of which the other has one of the same class that covers it, whatever its score."""
    rng, samples, found = np.random.default_rng(seed), [], []
    for count in rng.integers(0, 5, 2):
        boxes = rng.choice([0, 0, 40], (count, 2)) + rng.integers(0, 2, (count, 2))
        boxes = np.concatenate([boxes, boxes + 30], 1).astype(np.float32)
        scores, labels = rng.choice([0.2, 0.3, 0.9], count).astype(np.float32), rng.integers(0, 2, count)
        tensors = [torch.from_numpy(value) for value in (boxes, scores, labels)]
        objects = InstanceData(**dict(zip(('bboxes', 'scores', 'labels'), tensors)))
        samples.append(DetDataSample(pred_instances=objects))
        found.append(list(zip(boxes, scores, labels)))

    def overlap(a, b):
        shared = np.prod(np.clip(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0, None))
        return shared / (900 + 900 - shared)

    equal = []
    for mine, theirs in (found, found[::-1]):
        for box, score, label in mine:
            if score >= np.float32(0.3):
                equal.append(any(label == other[2] and overlap(box, other[0]) >= 0.9 for other in theirs))
    expected = np.mean(equal) if equal else np.nan
    assert equal_labels('detection', *samples) == pytest.approx(expected, nan_ok=True)


def checked(equal, apart=None):
    """Return a check of one image, with a metric that differs by so many points from PyTorch's."""
    metrics = [{}, {}, {}] if apart is None else [{'mIoU': 9}, {'mIoU': 50}, {'mIoU': 50 - apart}]
    return Checked([SimpleNamespace(metrics=one) for one in metrics], [equal])


def test_a_check_passes_by_labels_and_metrics():
    for result in each([checked(0.999), checked(0.9995, 0.09), checked(np.nan, -0.09), checked(1, -0.09)]):
        assert result.passes
    for result in each([checked(0.9989), checked(1, 0.11), checked(1, -0.11), checked(np.nan), checked(np.nan, 0.2)]):
        assert not result.passes


@pytest.mark.parametrize(('scores', 'empty'), [([[0.9, -1]], True), ([[-1, -1], [0.9, 0.8]], False)])
def test_one_object_is_next_to_nothing(scores, empty, pristine):
    """MMDetection's may differ in one: where two boxes overlap as much as the threshold."""
    cfg, scores = config_of('timm', pristine), np.float32(scores)
    model = build_model(cfg)
    graph = exported_model(model, cfg)
    assert graph.is_empty((np.zeros((*scores.shape, 4)), scores, np.zeros(scores.shape))) == empty


def test_a_graph_is_in_the_folder_of_its_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / 'run'
    run.mkdir()
    save(run / 'iter_1.pth', {})
    Path('a.py').touch()
    cfg = Config({}, filename='a.py')

    def file(source='', checkpoint=None, out=None):
        return graph_file(Trained(cfg, checkpoint, source=source), out)

    elsewhere = str(save(tmp_path / 'iter_1.pth', {}))
    assert file('run', elsewhere) == Path('run/onnx/model.onnx')
    assert file('', elsewhere) == file() == tmp_path / 'work_dirs/a/onnx/model.onnx'
    (run / 'run.json').write_text('{}')
    assert file('', str(run / 'iter_1.pth')) == run / 'onnx/model.onnx'
    assert file('run', elsewhere, 'b') == Path('b/model.onnx') and file(out='b/c.onnx') == Path('b/c.onnx')
