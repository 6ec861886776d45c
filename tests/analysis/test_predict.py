"""`mmlape.load`, `Model.predict` and `mmlape predict`, beside the inference functions of the MM packages."""

import copy
import json
import shutil

import numpy as np
import pytest
import tiny
import torch
from PIL import Image
from pycocotools.coco import COCO

import mmlape
from mmlape.cli import main
from mmlape.errors import ConfigError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.evaluation.saved import object_rows
from mmlape.lab.inference.drawing import draw_sample
from mmlape.lab.inference.evaluator import test as evaluate
from mmlape.lab.inference.prediction import init_model
from mmlape.lab.inference.results import RESULTS
from mmlape.lab.training.trainer import train

CONFIGS = tiny.ROOT / 'configs'
# config, folder of the mini data, its images
TASKS = {
    'detection': ('mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco', 'coco', 'val2017'),
    'segmentation': ('segmenter/segmenter_deit-mini_1xb16-250i_mini-ade', 'ade', 'images/validation'),
    'classification': ('deit/deit-mini-lape_1xb32-5e_mini-digits', 'digits', 'val'),
}


@pytest.fixture(scope='module', params=TASKS)
def case(request, pristine, tmp_path_factory):
    """A model with random weights, its config and checkpoint, and the folder of its images."""
    name, folder, images = TASKS[request.param]
    options = {'data_root': str(pristine / folder)}
    if request.param != 'classification':
        options['model.backbone.init_cfg'] = None
    if request.param == 'detection':
        options['model.test_cfg.rcnn.max_per_img'] = 20  # for speed
    cfg = load_config(CONFIGS / f'{name}.py', options)
    torch.manual_seed(1)
    module = init_model(cfg, None, 'cpu')
    checkpoint = tmp_path_factory.mktemp('predict') / 'model.pth'
    torch.save({'state_dict': module.state_dict(), 'meta': {'dataset_meta': {'classes': module.classes}}}, checkpoint)
    return mmlape.load(cfg, checkpoint, device='cpu'), cfg, pristine / folder / images


def arrays_of(prediction):
    """The arrays of a result by name."""
    names = ('boxes', 'scores', 'labels', 'masks')
    return {name: getattr(prediction, name) for name in names if getattr(prediction, name, None) is not None}


def assert_same(one, other, tolerance=0.0):
    first, second = arrays_of(one), arrays_of(other)
    assert first and first.keys() == second.keys()
    for name, values in first.items():
        assert values.shape == second[name].shape and values.dtype == second[name].dtype
        assert np.abs(values.astype(float) - second[name]).max(initial=0) <= tolerance, name


def by_openmmlab(model, image):
    """The arrays that the function of the task's own package gives, in our names."""
    if model.task == 'detection':
        from mmdet.apis import inference_detector

        found = inference_detector(model.module, str(image)).pred_instances
        return {key: np.asarray(found[name]) for key, name in
                dict(boxes='bboxes', scores='scores', labels='labels', masks='masks').items()}  # fmt: skip
    if model.task == 'segmentation':
        from mmseg.apis import inference_model

        return dict(labels=inference_model(model.module, str(image)).pred_sem_seg.data[0].numpy())
    from mmpretrain.apis import ImageClassificationInferencer

    model.module._config = model.module.cfg
    return dict(scores=ImageClassificationInferencer(model.module, device=None)(str(image))[0]['pred_scores'])


def test_predictions_are_those_of_openmmlab(case):
    model, _, folder = case
    results = model.predict(folder)
    files = sorted(folder.rglob('*.png')) or sorted(folder.rglob('*.jpg'))
    assert [result.path for result in results] == files and len(files) >= 3
    for result in results[:3]:
        assert isinstance(result, RESULTS[model.task])
        expected, found = by_openmmlab(model, result.path), arrays_of(result)
        assert expected.keys() == found.keys()
        for name, values in expected.items():
            assert (np.asarray(values) == found[name]).all(), name
    if model.task == 'detection':
        assert len(results[0].scores) and (np.diff(results[0].scores) <= 0).all()
        assert results[0].masks.shape == (len(results[0].scores), *results[0].size)
        half = results[0].above(float(np.median(results[0].scores)))
        assert len(half.names) == len(half.masks) < len(results[0].names)


def test_batches_arrays_and_pillows_images_give_the_same(case):
    model, _, folder = case
    files = sorted([*folder.rglob('*.png'), *folder.rglob('*.jpg')])[:3]
    alone = model.predict(files)
    images = [Image.open(file).convert('RGB') for file in files]
    lossless = files[0].suffix == '.png'
    for ways, tolerance in ((files, 1e-4), (images, 1e-4), ([np.asarray(image) for image in images], 1e-4)):
        if ways is not files and not lossless:
            continue  # two decoders of JPEG differ by a level
        for one, other in zip(alone, model.predict(ways, batch_size=2), strict=True):
            assert_same(one, other, tolerance)
    (one,) = model.predict(images[0])
    assert one.path is None and one.size == images[0].size[::-1]
    assert_same(one, model.predict(np.asarray(images[0]))[0])
    stack = np.stack([np.asarray(images[0])] * 2)
    assert len(model.predict(stack)) == 2


@pytest.mark.parametrize('case', ['segmentation'], indirect=True)
def test_changes_of_a_config_arrive_however_it_is_given(case, tmp_path):
    """By its file, as a value, and in a checkpoint; a key that is unknown is an error each time."""
    model, cfg, _ = case
    held = tmp_path / 'held.pth'
    torch.save(dict(torch.load(model.checkpoint), meta=dict(cfg=cfg.pretty_text)), held)
    (tmp_path / 'file.py').write_text(cfg.pretty_text)
    options = ['model.backbone.with_cp=True']
    for given in ((cfg, model.checkpoint), (tmp_path / 'file.py', model.checkpoint), (held,)):
        changed = mmlape.load(*given, device='cpu', cfg_options=options)
        assert changed.module.cfg.model.backbone.with_cp and not cfg.model.backbone.get('with_cp')
        with pytest.raises(ConfigError, match='with_cq'):
            mmlape.load(*given, device='cpu', cfg_options=['model.backbone.with_cq=True'])


def test_neighbours_of_another_size_change_nothing(case):
    model, _, _ = case
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, (*size, 3), np.uint8) for size in ((64, 64), (64, 96), (80, 64), (80, 64))]
    for image, result in zip(images, model.predict(images, batch_size=4), strict=True):
        assert result.size == image.shape[:2]
        assert_same(model.predict(image)[0], result, 1e-3)


def test_a_config_of_tiles_is_tested_and_predicted_by_them(case, tmp_path):
    """What is saved of a test is what `Model.predict` returns; one tile is the image in one piece, bit for bit."""
    model, cfg, folder = case
    complete = copy.deepcopy(cfg)
    data = complete.test_dataloader.dataset
    data.pipeline = [step for step in data.pipeline if step['type'] != 'Resize']
    complete.test_dataloader.update(num_workers=0, persistent_workers=False)
    complete.merge_from_dict({'model.test_cfg.mode': 'whole'} if model.task == 'segmentation' else {})
    files, results = sorted([*folder.rglob('*.png'), *folder.rglob('*.jpg')]), {}
    ways = dict(complete=None, one=dict(tile=80), several=dict(tile=40, overlap=20, max_per_img=7))
    for name, tiles in ways.items():
        tiled, out = copy.deepcopy(complete), tmp_path / name
        if tiles:
            tiled.test_cfg = dict(type='mmlape.TiledTestLoop', batch_size=1, **tiles)
        if tiles and model.task == 'classification':
            with pytest.raises(ConfigError, match='tile=.* is for detectors and segmentors, not classification'):
                evaluate(tiled, model.checkpoint, tmp_path, show=False)
            continue
        metrics = evaluate(tiled, model.checkpoint, out, save_pred=True, show_dir=out / 'drawn', show=False)['metrics']
        assert sorted(path.name for path in (out / 'drawn').rglob('*.*')) == sorted(file.name for file in files)
        written = sorted(path for path in (out / 'predictions').rglob('*') if path.is_file())
        results[name] = metrics, [file.read_bytes() for file in written]
        predicted = mmlape.load(tiled, model.checkpoint, device='cpu').predict(files)
        if model.task == 'segmentation':
            for file, result in zip(written, predicted, strict=True):
                assert (np.asarray(Image.open(file)) == result.labels + 1).all()
        elif model.task == 'detection':
            saved = json.loads(written[0].read_text())
            numbers = sorted({row['image_id'] for row in saved})
            rows = (object_rows(result.sample.pred_instances, number, range(1, 11))
                    for number, result in zip(numbers, predicted, strict=True))  # fmt: skip
            assert saved == [row for of_image in rows for row in of_image]
            assert len(saved) == 7 * len(files) or name != 'several'
    assert results['complete'] == results.get('one', results['complete']) != results.get('several')
    with pytest.raises(ConfigError, match='tiles'):
        evaluate(tiled, model.checkpoint, tmp_path / 'new', tta=())
    assert not (tmp_path / 'new').exists()


def test_the_files_of_a_folder(case, tmp_path, capsys):
    model, cfg, folder = case
    images = tmp_path / 'images'
    files = sorted([*folder.rglob('*.png'), *folder.rglob('*.jpg')])[:2]
    (images / 'a').mkdir(parents=True)
    suffix = files[0].suffix
    names = [f'a/one{suffix}', f'b{suffix}']
    for name, file in zip(names, files):
        shutil.copy(file, images / name)
    (images / 'aa.png').write_bytes(b'no image')
    cfg.dump(tmp_path / 'config.py')
    words = ['predict', tmp_path / 'config.py', model.checkpoint, images, '--device', 'cpu', '--out']
    out = tmp_path / 'out'
    assert main([str(word) for word in (*words, out, '--score-thr', '0')]) == 1
    printed = capsys.readouterr().out
    assert 'predicted on 2 images' in printed and f'skipped: Image {images}/aa.png cannot be read' in printed
    results = model.predict([images / name for name in names])
    for name, result in zip(names, results):
        if suffix == '.png':
            image = np.asarray(Image.open(result.path).convert('RGB'))
            expected = draw_sample(image, result.sample, model.classes, model.palette, 0.0, ('pred',))
            assert (np.asarray(Image.open(out / 'overlays' / name)) == expected).all()
    if model.task == 'segmentation':
        assert json.loads((out / 'classes.json').read_text()) == list(model.classes)
        for name, result in zip(names, results):
            saved = np.asarray(Image.open((out / 'labels' / name).with_suffix('.png')))
            assert (saved == result.labels).all()
    elif model.task == 'detection':
        coco = COCO(str(out / 'predictions.json'))
        assert [image['file_name'] for image in coco.loadImgs(coco.getImgIds())] == names
        for image_id, result in zip(coco.getImgIds(), results):
            rows = coco.loadAnns(coco.getAnnIds(image_id))
            assert len(rows) == len(result.names) > 0
            assert {coco.cats[row['category_id']]['name'] for row in rows} == set(result.names)
            order = np.argsort([-row['score'] for row in rows], kind='stable')
            for row, mask, name in zip([rows[place] for place in order], result.masks, result.names):
                assert (coco.annToMask(row) == mask).all() and coco.cats[row['category_id']]['name'] == name
                assert row['area'] == mask.sum()
    else:
        rows = json.loads((out / 'predictions.json').read_text())
        assert [(row['image'], row['class']) for row in rows] == [(n, r.name) for n, r in zip(names, results)]
        assert rows[0]['top'] == dict(results[0].top()) and len(rows[0]['top']) == 5
    assert main([str(word) for word in (*words, out)]) == 1
    assert 'has files already: give another folder, or --overwrite' in capsys.readouterr().err
    assert main([str(word) for word in (*words, tmp_path / 'plain', '--no-overlays', '--quiet')]) == 1
    assert not (tmp_path / 'plain' / 'overlays').exists()


@pytest.fixture(scope='module')
def run_folder(tmp_path_factory):
    """A finished run of a tiny segmentor with its data."""
    root = tmp_path_factory.mktemp('run')
    config = tiny.write_config(root, tiny.write_data(root / 'data'))
    train(load_config(config), root / 'run', seed=0)
    return root


def test_a_run_is_loaded_by_its_folder(run_folder):
    folder, images = run_folder / 'run', run_folder / 'data' / 'images' / 'validation'
    model = mmlape.load(folder, device='cpu')
    (best,) = folder.glob('best_*.pth')
    assert model.checkpoint == best and model.classes == tiny.CLASSES
    results = model.predict(images, batch_size=2)
    assert len(results) == 5
    for result in results:
        assert result.labels.shape == result.size == (48, 48)
        assert sum(result.shares.values()) == pytest.approx(1)
        for name, share in result.shares.items():
            assert result.mask(name).mean() == pytest.approx(share)
    with pytest.raises(ConfigError, match=r"no class 'sky'; there are: left; right; below"):
        results[0].mask('sky')


def test_two_images_of_one_name_have_two_maps(run_folder, tmp_path):
    source = run_folder / 'data' / 'images' / 'validation' / '0.png'
    images = tmp_path / 'images'
    images.mkdir()
    for name in ('a.png', 'a.bmp', 'b.png'):
        Image.open(source).save(images / name)
    out = images / 'predicted'  # inside the folder: a second call leaves its own files out
    for more in ((), ('--overwrite',)):
        words = ['predict', run_folder / 'run', images, '--out', out, '--device', 'cpu', *more]
        assert main([str(word) for word in words]) == 0
        maps = sorted(path.name for path in (out / 'labels').iterdir())
        assert maps == ['a.bmp.png', 'a.png.png', 'b.png'] and len(list((out / 'overlays').iterdir())) == 3
