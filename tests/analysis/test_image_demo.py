"""Drawings of predictions for models of each task, and refused input."""

import numpy as np
import pytest
import tiny
import torch
from mmengine.structures import InstanceData
from PIL import Image

from mmlape.analysis import drawing
from mmlape.analysis.inference import init_model, predict
from mmlape.analysis.predictions import compare_on_dataset, predict_and_draw
from mmlape.cli import main
from mmlape.datasets.mini.make import MiniOptions, make_mini_data
from mmlape.datasets.palette import class_palette
from mmlape.errors import CheckpointError, ConfigError, DataError

CLASSES = ('ant', 'bee', 'cat')
CONFIGS = tiny.ROOT / 'configs'
DETECTOR = CONFIGS / 'detection' / 'mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py'
CLASSIFIER = CONFIGS / 'classification' / 'digits' / 'deit-mini-lape_1xb32-5e_mini-digits.py'


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
    make_mini_data(root, MiniOptions(train=2, val=2, digits=10, masks='rle'))
    return root


def _grey(height, width):
    return np.full((height, width, 3), 128, np.uint8)


def _objects(**more):
    boxes = torch.tensor([[10.0, 10, 40, 40], [60, 50, 90, 75]])
    masks = torch.zeros(2, 80, 100, dtype=torch.bool)
    masks[0, 10:40, 10:40] = True
    masks[1, 50:75, 60:90] = True
    return InstanceData(bboxes=boxes, labels=torch.tensor([0, 2]), masks=masks, **more)


def test_objects_are_drawn_where_they_are_in_the_colour_of_their_class():
    result = drawing.draw_instances(_grey(80, 100), _objects(), CLASSES)
    assert result.shape == (512, 640, 3)
    for (y, x), label in (((25, 25), 0), ((62, 75), 2)):
        expected = (128 + np.array(class_palette(3)[label])) / 2
        assert np.abs(result[int(y * 6.4), int(x * 6.4)] - expected).max() <= 2
    assert (result[400:, :300] == 128).all()


def test_objects_below_the_threshold_are_left_out():
    image, objects = _grey(80, 100), _objects(scores=torch.tensor([0.9, 0.2]))
    result = drawing.draw_instances(image, objects, CLASSES, score_thr=0.5)
    assert (result[:, 330:] == 128).all()
    assert (result[160, 160] != 128).any()
    assert (drawing.draw_instances(image, objects, CLASSES, score_thr=0.95) == drawing.enlarge(image)).all()


def test_tags_of_crowded_objects_do_not_cover_one_another():
    colours = [(200, 0, 0), (0, 200, 0), (0, 0, 200)]
    boxes = np.array([[100.0, 100, 300, 300], [105, 104, 290, 280], [110, 102, 320, 310]])
    result = drawing._draw_tags(_grey(640, 640), ['ant 0.90', 'bee 0.80', 'cat 0.70'], boxes, colours)
    areas = [(result == colour).all(axis=-1).sum() for colour in colours]
    assert min(areas) > 0.7 * max(areas)


def test_label_maps_are_drawn_pixel_by_pixel_and_unlabelled_ones_left_alone():
    labels = np.full((64, 64), 255, np.uint8)
    labels[:, :20], labels[:, 20:30] = 1, 2
    result, colours = drawing.draw_label_map(_grey(64, 64), labels, CLASSES, opacity=0.5)
    assert list(colours) == ['bee', 'cat']  # the larger first
    assert np.abs(result[320, 100] - (128 + np.array(colours['bee'])) / 2).max() <= 2
    assert (result[:, 310:] == 128).all()
    nothing, empty = drawing.draw_label_map(_grey(64, 64), np.full((64, 64), 255), CLASSES)
    assert (nothing == 128).all() and not empty


def test_large_images_keep_their_size_and_their_labels_line_up():
    labels = np.zeros((700, 900), np.uint8)
    labels[350:] = 1
    result, colours = drawing.draw_label_map(_grey(700, 900), labels, CLASSES, opacity=1.0)
    assert result.shape == (700, 900, 3)
    assert (result[349] == colours['ant']).all() and (result[350] == colours['bee']).all()


@pytest.mark.parametrize('count', [1, 40])
def test_a_legend_shows_every_class_within_the_height_given(count):
    colours = {f'a class with number {k}': tuple(colour) for k, colour in enumerate(class_palette(count))}
    panel = drawing.legend(colours, 300)
    assert panel.shape[0] == 300
    for colour in colours.values():
        assert (panel == colour).all(axis=-1).sum() >= 15 * 15


def test_the_tool_draws_a_segmentation(segmenter, tmp_path):
    config, checkpoint, data = segmenter
    image, out = data / 'images' / 'validation' / '0.png', tmp_path / 'new folder' / 'drawing.png'
    tool = tiny.ROOT / 'tools' / 'image_demo.py'
    output = tiny.run(tool, image, config, checkpoint, '--out', out, '--device', 'cpu', cwd=tmp_path)
    model = init_model(config, checkpoint, 'cpu')
    labels = predict(model, image).pred_sem_seg.data[0].numpy()
    result, colours = drawing.draw_label_map(np.asarray(Image.open(image)), labels, model.classes)
    drawn = np.asarray(Image.open(out))
    assert drawn.shape[1] > result.shape[1]  # the legend is beside it
    assert (drawn[:, : result.shape[1]] == result).all()
    for name in colours:
        assert f'{name}: {(labels == model.classes.index(name)).mean():.1%}' in output
    assert f'wrote {out}' in output


def test_segmentations_beside_their_ground_truth(segmenter, tmp_path):
    config, checkpoint, data = segmenter
    model = init_model(config, checkpoint, 'cpu')
    (path,) = compare_on_dataset(model, [1], tmp_path)
    image = np.asarray(Image.open(data / 'images' / 'validation' / '1.png'))
    labels = np.asarray(Image.open(data / 'annotations' / 'validation' / '1.png')).astype(int) - 1
    truth, _ = drawing.draw_label_map(image, labels, model.classes)
    drawn = np.asarray(Image.open(path))
    assert (drawn[40 : 40 + truth.shape[0], : truth.shape[1]] == truth).all()
    assert drawn.shape[1] > 2 * truth.shape[1]


def test_detections_on_an_image_and_beside_the_ground_truth(mini, tmp_path):
    options = [f'data_root={mini / "coco"}', 'model.backbone.init_cfg=None']
    model = init_model(DETECTOR, None, 'cpu', options)
    checkpoint = _checkpoint(model, tmp_path / 'model.pth')
    image = next((mini / 'coco' / 'val2017').iterdir())
    found = predict_and_draw(image, DETECTOR, checkpoint, tmp_path / 'out.jpg', 0.0, 'cpu', options)
    prediction = predict(model, image).pred_instances
    assert len(found) == len(prediction) > 0
    assert found[0]['score'] == pytest.approx(float(prediction.scores.max()))
    assert found[0]['class'] == model.classes[int(prediction.labels[prediction.scores.argmax()])]
    assert Image.open(tmp_path / 'out.jpg').size == (640, 640)
    paths = compare_on_dataset(model, [0, 1], tmp_path / 'pairs', score_thr=1.0)
    for path in paths:
        drawn = np.asarray(Image.open(path))[40:]
        truth, predicted = drawn[:, :640], drawn[:, 650:1290]
        changed = (truth != predicted).any(axis=-1).mean()  # no score is 1: only the ground truth is drawn
        assert 0.02 < changed < 0.9


def test_the_class_of_an_image(mini, tmp_path):
    options = [f'data_root={mini / "digits"}']
    model = init_model(CLASSIFIER, None, 'cpu', options)
    checkpoint = _checkpoint(model, tmp_path / 'model.pth')
    image = next((mini / 'digits' / 'val').rglob('*.png'))
    found = predict_and_draw(image, CLASSIFIER, checkpoint, tmp_path / 'out.png', device='cpu')
    prediction = predict(model, image)
    assert len(found) == 5
    assert found[0]['class'] == model.classes[int(prediction.pred_label)]
    assert set(model.classes) == {path.name for path in (mini / 'digits' / 'val').iterdir()}
    assert [row['score'] for row in found] == sorted((row['score'] for row in found), reverse=True)
    assert Image.open(tmp_path / 'out.png').size == (640, 680)


def test_classes_come_from_the_checkpoint(segmenter, tmp_path):
    config, checkpoint, data = segmenter
    content = torch.load(checkpoint, weights_only=True)
    state = {k: v[:2] if 'conv_seg' in k else v for k, v in content['state_dict'].items()}
    torch.save({'state_dict': state, 'meta': {'dataset_meta': {'classes': ['sea', 'land']}}}, tmp_path / 'two.pth')
    image = data / 'images' / 'validation' / '0.png'
    found = predict_and_draw(image, config, tmp_path / 'two.pth', tmp_path / 'out.png', device='cpu')
    assert {row['class'] for row in found} <= {'sea', 'land'}


def test_invalid_input_is_refused_before_a_model_is_built(segmenter, tmp_path):
    config, checkpoint, data = segmenter
    image, out = data / 'images' / 'validation' / '0.png', tmp_path / 'out.png'
    cut = tmp_path / 'cut.png'
    cut.write_bytes(image.read_bytes()[:200])
    text = tmp_path / 'text.jpg'
    text.write_text('no image')
    nothing = 'no checkpoint, so that building a model would be another error'
    floats = tmp_path / 'floats.tif'
    Image.fromarray(np.random.default_rng(0).random((32, 32), np.float32)).save(floats)
    for bad, message in (
        (tmp_path / 'none.png', 'does not exist'),
        (cut, 'cut.png'),
        (text, 'text.jpg'),
        (floats, 'floats.tif has pixels that are floats: save it with 8 bits a channel'),
    ):
        with pytest.raises(DataError, match=message):
            predict_and_draw(bad, config, nothing, out)
    for bad, message in (
        (tmp_path / 'out.doc', "not '.doc'"),
        (tmp_path / 'out', "not ''"),
        (cut / 'out.png', 'cannot write'),
    ):
        with pytest.raises(DataError, match=message):
            predict_and_draw(image, config, nothing, bad)
    (tmp_path / 'folder.png').mkdir()
    with pytest.raises(DataError, match='is a folder'):
        predict_and_draw(image, config, nothing, tmp_path / 'folder.png')
    with pytest.raises(ConfigError, match="device 'cuda:77' cannot be used on this machine"):
        predict_and_draw(image, config, checkpoint, out, device='cuda:77')
    with pytest.raises(CheckpointError, match='no such file'):
        predict_and_draw(image, config, tmp_path / 'none.pth', out, device='cpu')
    assert not out.exists()


def test_an_image_below_one_patch_is_one_line(segmenter, tmp_path, capsys):
    """2000x60 pixels are 32x1 once the pipeline has fitted them into 32x32."""
    _, checkpoint, data = segmenter
    Image.new('RGB', (2000, 60)).save(tmp_path / 'wide.png')
    resize = "test_pipeline.insert(1, dict(type='Resize', scale=(32, 32), keep_ratio=True))\n"
    small = tiny.write_config(tmp_path, data, resize + "model['data_preprocessor'].pop('test_cfg')\n")
    words = ['image-demo', str(tmp_path / 'wide.png'), str(small), str(checkpoint), '--out', str(tmp_path / 'out.png')]
    assert main([*words, '--device', 'cpu']) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith('mmlape: error: an image of 1x32 pixels is smaller than one patch of 8x8: enlarge it')


def test_the_tool_shows_an_error_without_a_traceback(segmenter, tmp_path):
    config, checkpoint, _ = segmenter
    tool = tiny.ROOT / 'tools' / 'image_demo.py'
    output = tiny.run(tool, 'none.png', config, checkpoint, '--out', 'out.png', cwd=tmp_path, status=1, **tiny.REAL)
    assert 'mmlape: error: Image none.png does not exist' in output and 'Traceback' not in output
