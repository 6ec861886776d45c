"""`mmlape new`: each form of data in several layouts, read again by the dataset that the written config names."""

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS, HOOKS, init_default_scope
from PIL import Image

from mmlape.cli import main
from mmlape.commands import fill_parser, parse_arguments
from mmlape.errors import ConfigError, DataError
from mmlape.lab.datasets.checks import check_data
from mmlape.lab.export.model import image_size
from mmlape.new.command import look
from mmlape.new.recipe import choose_model, choose_regions, parse_time
from mmlape.registry import MODELS

SIZE = (48, 40)
NAMES = ('cat', 'dog', 'hat')
RANDOM = np.random.default_rng(0)


def photo(path: Path, size=SIZE) -> None:
    """Write an image of noise, which is no label map."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RANDOM.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(path)


def label_map(path: Path, values: np.ndarray, mode: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(values.astype(np.uint8 if values.max() < 256 else np.uint16), mode)
    if mode == 'P':
        image.putpalette(RANDOM.integers(0, 256, 768).tolist())
    image.save(path)


def regions(number: int, ids=(0, 1, 2)) -> np.ndarray:
    """Three stripes of ids, in another order for each image."""
    stripes = np.array([ids[(place + number) % len(ids)] for place in range(4)])
    return np.repeat(np.repeat(stripes, 10)[:, None], SIZE[0], axis=1)


def boxes_of(number: int) -> list[tuple[int, tuple[int, int, int, int]]]:
    """(class, (x, y, width, height)) of two objects."""
    return [(number % 3, (4, 6, 12, 10)), ((number + 1) % 3, (20 + number % 5, 10, 16, 20))]


# label maps ----------------------------------------------------------------------------------------------------------


def maps(
    root: Path, images='images/{}.jpg', labels='labels/{}.png', count=8, convert=lambda ids: ids, mode=None
) -> Path:
    for number in range(count):
        photo(root / images.format(f'{number:02}'))
        label_map(root / labels.format(f'{number:02}'), convert(regions(number)), mode)
    return root


def split_maps(root: Path) -> Path:
    for split, count in (('train', 6), ('valid', 3)):
        maps(root, f'{split}/images/{split}{{}}.jpg', f'{split}/masks/{split}{{}}.png', count)
    return root


def listed_maps(root: Path, names: tuple[str, ...], convert=lambda ids: ids) -> Path:
    maps(root, convert=convert)
    (root / 'classes.txt').write_text('\n'.join(names) + '\n')
    return root


COLOURS = np.array([(0, 0, 0), (200, 30, 0), (0, 90, 255)])
MAPS: dict[str, tuple[Callable[[Path], Path], tuple[str, ...]]] = {
    'two folders': (maps, ('class 0', 'class 1', 'class 2')),
    'splits by folder': (split_maps, ('class 0', 'class 1', 'class 2')),
    'one folder, same stem': (lambda root: maps(root, 'all/{}.jpg', 'all/{}.png'), ('class 0', 'class 1', 'class 2')),
    'one folder, a word behind': (
        lambda root: maps(root, 'all/{}.png', 'all/{}_mask.png'),
        ('class 0', 'class 1', 'class 2'),
    ),
    'palette': (lambda root: maps(root, mode='P'), ('class 0', 'class 1', 'class 2')),
    'names': (lambda root: listed_maps(root, NAMES), NAMES),
    'names, none for 0': (lambda root: listed_maps(root, NAMES[:2]), ('background', *NAMES[:2])),
    'ids from 1': (lambda root: listed_maps(root, NAMES, lambda ids: ids + 1), NAMES),
    'binary': (lambda root: maps(root, convert=lambda ids: np.where(ids == 2, 255, 0)), ('background', 'object')),
    'sparse ids': (lambda root: maps(root, convert=lambda ids: ids * 7 + 3), ('id 3', 'id 10', 'id 17')),
    'ids of 16 bits': (lambda root: maps(root, convert=lambda ids: ids * 300), ('id 0', 'id 300', 'id 600')),
    'colours': (
        lambda root: maps(root, convert=lambda ids: COLOURS[ids]),
        ('background', 'colour 0,90,255', 'colour 200,30,0'),
    ),
    'grey in three channels': (
        lambda root: maps(root, convert=lambda ids: np.repeat(ids[..., None], 3, axis=2)),
        ('class 0', 'class 1', 'class 2'),
    ),
}


@pytest.mark.parametrize('layout', MAPS)
def test_label_maps(layout, tmp_path, monkeypatch):
    """What the dataset reads are the stripes that were drawn, under one id for each."""
    monkeypatch.chdir(tmp_path)
    make, classes = MAPS[layout]
    make(Path('data'))
    cfg = written('data', '--iters', '20')
    assert cfg.classes == classes
    drawn: dict[int, set[int]] = {}
    for split in ('train', 'val'):
        for sample in read(cfg, split):
            number = int(Path(sample['img_path']).stem[-2:])
            labels = sample['data_samples'].gt_sem_seg.data[0].numpy()
            for place, stripe in enumerate(labels.reshape(4, 10, -1)):
                (value,) = set(stripe.ravel().tolist())
                drawn.setdefault(int(regions(number)[place * 10, 0]), set()).add(value)
    assert all(len(values) == 1 for values in drawn.values())
    ids = [values.pop() for _, values in sorted(drawn.items())]
    if layout == 'binary':
        assert ids == [0, 0, 1]
    elif layout == 'colours':
        assert ids == [0, 2, 1]  # by colour
    else:
        assert ids == [0, 1, 2]


def test_images_without_a_map_are_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    maps(Path('data'))
    photo(Path('data/images/new.jpg'))
    cfg = written('data', '--iters', '20')
    assert 'no annotation: 1' in capsys.readouterr().out
    assert sum(len(read(cfg, split)) for split in ('train', 'val')) == 8


def test_images_of_two_suffixes_are_linked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    maps(Path('data'))
    photo(Path('data/images/00.png'))
    Path('data/images/00.jpg').unlink()
    cfg = written('data', '--iters', '20')
    assert sum(len(read(cfg, split)) for split in ('train', 'val')) == 8
    assert all(path.is_symlink() for path in Path('data_data/images').iterdir())


# boxes ---------------------------------------------------------------------------------------------------------------


def coco(root: Path, file: str, folder: str, numbers: range, masks=False) -> None:
    images, annotations = [], []
    for number in numbers:
        photo(root / folder / f'{number:02}.jpg')
        images.append(dict(id=number, file_name=f'{number:02}.jpg', width=SIZE[0], height=SIZE[1]))
        for label, (x, y, width, height) in boxes_of(number):
            corners = [x, y, x + width, y, x + width, y + height, x, y + height]
            annotations.append(
                dict(
                    id=len(annotations) + 1,
                    image_id=number,
                    category_id=label * 10 + 5,
                    bbox=[x, y, width, height],
                    area=width * height,
                    iscrowd=0,
                    **(dict(segmentation=[corners]) if masks else {}),
                )
            )
    categories = [dict(id=label * 10 + 5, name=name) for label, name in enumerate(NAMES)]
    content = dict(images=images, categories=categories, annotations=annotations)
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(json.dumps(content))


def roboflow(root: Path, masks=False) -> None:
    coco(root, 'train/_annotations.coco.json', 'train', range(8), masks)
    coco(root, 'valid/_annotations.coco.json', 'valid', range(8, 12), masks)


def public_coco(root: Path) -> None:
    coco(root, 'annotations/instances_train2017.json', 'train2017', range(8), True)
    coco(root, 'annotations/instances_val2017.json', 'val2017', range(8, 12), True)
    (root / 'annotations/captions_train2017.json').write_text('{"images": [], "annotations": [{"caption": "a"}]}')


def yolo(root: Path, images='images/{split}', labels='labels/{split}', described=True, polygon=False) -> None:
    for split, numbers in (('train', range(8)), ('val', range(8, 12))):
        for number in numbers:
            photo(root / images.format(split=split) / f'{number:02}.jpg')
            rows = []
            for label, (x, y, width, height) in boxes_of(number):
                right, low = x + width, y + height
                values = [x + width / 2, y + height / 2, width, height]
                if polygon:
                    values = [x, y, right, y, right, low, x, low]
                parts = [value / SIZE[place % 2] for place, value in enumerate(values)]
                rows.append(' '.join(map(str, [label, *parts])))
            file = root / labels.format(split=split) / f'{number:02}.txt'
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text('\n'.join(rows) + '\n')
    if described:
        train, val = (images.format(split=split) for split in ('train', 'val'))
        text = f'path: .\ntrain: {train}\nval: {val}\nnames:\n  0: cat\n  1: dog\n  2: hat\n'
        (root / 'data.yaml').write_text(text)
    else:
        (root / 'classes.txt').write_text('\n'.join(NAMES) + '\n')


def voc(root: Path) -> None:
    for number in range(12):
        photo(root / f'JPEGImages/{number:02}.jpg')
        objects = ''
        for label, (x, y, width, height) in boxes_of(number):
            corners = (x + 1, y + 1, x + width + 1, y + height + 1)  # Pascal VOC counts pixels from 1
            bounds = ''.join(
                f'<{name}>{value}</{name}>' for name, value in zip(('xmin', 'ymin', 'xmax', 'ymax'), corners)
            )
            objects += f'<object><name>{NAMES[label]}</name><bndbox>{bounds}</bndbox></object>'
        file = root / f'Annotations/{number:02}.xml'
        file.parent.mkdir(parents=True, exist_ok=True)
        size = f'<size><width>{SIZE[0]}</width><height>{SIZE[1]}</height><depth>3</depth></size>'
        file.write_text(f'<annotation>{size}{objects}</annotation>')
    lists = root / 'ImageSets/Main'
    lists.mkdir(parents=True)
    (lists / 'train.txt').write_text('\n'.join(f'{number:02}' for number in range(8)))
    (lists / 'val.txt').write_text('\n'.join(f'{number:02}' for number in range(8, 12)))


def labelme(root: Path, rectangles=False) -> None:
    """The first object as two polygons of a group, the second as a rectangle; images by Windows' paths."""
    for split, numbers in (('train', range(8)), ('val', range(8, 12))):
        for number in numbers:
            photo(root / split / 'photos' / f'{number:02}.jpg')
            shapes = []
            for place, (label, (x, y, width, height)) in enumerate(boxes_of(number)):
                right, low, middle = x + width, y + height, x + width / 2
                if place or rectangles:
                    shape = dict(shape_type='rectangle', group_id=None)
                    parts = [[[x, y], [right, low]]]
                else:
                    shape = dict(shape_type='polygon', group_id=3)
                    halves = (x, middle), (middle, right)
                    parts = [[[a, y], [b, y], [b, low], [a, low]] for a, b in halves]
                shapes += [dict(shape, label=NAMES[label], points=points, flags={}) for points in parts]
            content = dict(version='5.5.0', shapes=shapes, imagePath=f'..\\photos\\{number:02}.jpg', imageData=None)
            file = root / split / 'json' / f'{number:02}.json'
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(content))


def without_area(root: Path) -> None:
    roboflow(root, True)
    for file in root.rglob('*.json'):
        content = json.loads(file.read_text())
        for one in content['annotations']:
            del one['area'], one['iscrowd']
        file.write_text(json.dumps(content))


def yolo_without_val(root: Path) -> None:
    """As small public sets are: the images of train are named for val, too."""
    yolo(root)
    for folder in ('images', 'labels'):
        for file in (root / folder / 'val').iterdir():
            file.rename(root / folder / 'train' / file.name)
    description = root / 'data.yaml'
    description.write_text(description.read_text().replace('val: images/val', 'val: images/train'))


BOXES: dict[str, tuple[Callable[[Path], None], str]] = {
    'roboflow': (roboflow, 'boxes'),
    'roboflow with masks': (lambda root: roboflow(root, True), 'masks'),
    "COCO's folders": (public_coco, 'masks'),
    'one file, no split': (lambda root: coco(root, 'all.json', 'pictures/deep', range(12)), 'boxes'),
    'YOLO': (yolo, 'boxes'),
    'YOLO, a folder a split': (lambda root: yolo(root, '{split}/images', '{split}/labels'), 'boxes'),
    'YOLO, beside the images': (lambda root: yolo(root, '{split}', '{split}'), 'boxes'),
    'YOLO, bare': (lambda root: yolo(root, described=False), 'boxes'),
    'YOLO, polygons': (lambda root: yolo(root, polygon=True), 'masks'),
    'YOLO, train for val': (yolo_without_val, 'boxes'),
    'Pascal VOC': (voc, 'boxes'),
    'LabelMe': (labelme, 'masks'),
    'LabelMe, rectangles': (lambda root: labelme(root, True), 'boxes'),
    'no area': (without_area, 'masks'),
}


@pytest.mark.parametrize('layout', BOXES)
def test_boxes(layout, tmp_path, monkeypatch):
    """Every box is read where it was drawn, with its class, for training or validation."""
    monkeypatch.chdir(tmp_path)
    make, task = BOXES[layout]
    make(Path('data'))
    cfg = written('data', '--iters', '20')
    assert (cfg.classes, 'mask_head' in cfg.model.roi_head) == (NAMES, task == 'masks')
    assert cfg.model.train_cfg.rcnn.sampler.num == 64, 'two objects an image'
    stop = HOOKS.build(cfg.custom_hooks[0])
    for rising in np.linspace(0, 0.2, 20):
        assert not stop._check_stop_condition(rising)[0], 'AP rises slowly'
    seen = set()
    for split in ('train', 'val'):
        for sample in read(cfg, split):
            number = int(Path(sample['img_path']).stem)
            seen.add(number)
            found = {int(one['bbox_label']): np.array(one['bbox']) for one in sample['instances']}
            for label, (x, y, width, height) in boxes_of(number):
                np.testing.assert_allclose(found[label], (x, y, x + width, y + height), atol=1.01)
            assert all(bool(one.get('mask')) == (task == 'masks') for one in sample['instances'])
    assert seen == set(range(12))
    if layout == 'no area':
        for file in Path('data_data').glob('*.json'):
            annotations = json.loads(file.read_text())['annotations']
            assert annotations
            for one in annotations:
                assert one['area'] == one['bbox'][2] * one['bbox'][3]
    assert sum(len(read(cfg, split)) for split in ('train', 'val')) == 12


@pytest.mark.parametrize('objects, regions', [(0, 64), (4, 64), (5, 128), (16, 256), (17, 512), (93, 512)])
def test_regions_are_sixteen_an_object_within_limits(objects, regions):
    assert choose_regions(objects) == regions


def test_a_circle_of_labelme_is_an_object(tmp_path):
    """Of its middle and a point of it, in whichever direction."""
    for number, edge in enumerate(((30, 20), (20, 30), (14, 28), (20, 10))):
        photo(tmp_path / f'{number}.jpg')
        shape = dict(label='a', shape_type='circle', points=[[20, 20], edge])
        content = dict(shapes=[shape], imagePath=f'{number}.jpg')
        (tmp_path / f'{number}.json').write_text(json.dumps(content))
    found = look(tmp_path)
    assert found.task == 'masks' and found.counts == {'a': 4}
    for one in found.parts['train'].content['annotations']:
        assert one['area'] == pytest.approx(np.pi * 100, rel=0.03)
        np.testing.assert_allclose(one['bbox'], (10, 10, 20, 20), atol=0.3)


def test_boxes_alone_of_data_with_masks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    roboflow(Path('data'), masks=True)
    cfg = written('data', '--task', 'boxes', '--iters', '20')
    assert 'mask_head' not in cfg.model.roi_head and cfg.val_evaluator.metric == 'bbox'


# folders of classes --------------------------------------------------------------------------------------------------


def class_folders(root: Path, *splits: str) -> None:
    for split in splits or ('',):
        for name in NAMES:
            for number in range(6):
                photo(root / split / name / f'{number}.jpg')


@pytest.mark.parametrize('splits', [(), ('train', 'val'), ('train', 'test')])
def test_class_folders(splits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    class_folders(Path('data'), *splits)
    cfg = written('data', '--iters', '20')
    train, val = (read(cfg, split) for split in ('train', 'val'))
    rows = [sample for part in (train, val) for sample in part]
    assert len(rows) == len({sample['img_path'] for sample in rows}) == (36 if splits else 18)
    assert all(Path(sample['img_path']).parent.name == NAMES[sample['gt_label']] for sample in rows)
    assert {sample['gt_label'] for sample in val} == {0, 1, 2}


# what all have in common ---------------------------------------------------------------------------------------------


def written(data: str, *options: str) -> Config:
    """Write a config by the command, and check its data."""
    assert main(['new', data, '--model', 'mini', *options]) == 0
    cfg = Config.fromfile('data.py')
    check_data(cfg)
    return cfg


def read(cfg: Config, split: str) -> list[dict]:
    """Return what the dataset of a split has of each image; of label maps also the map."""
    init_default_scope(cfg.default_scope)
    dataset = dict(cfg[f'{split}_dataloader'].dataset)
    dataset['test_mode'] = True
    load = [
        dict(type='LoadImageFromFile'),
        dict(type='LoadAnnotations', reduce_zero_label=dataset.get('reduce_zero_label')),
        dict(type='PackSegInputs'),
    ]
    dataset['pipeline'] = load if cfg.default_scope == 'mmseg' else []
    built = DATASETS.build(dataset)
    if cfg.default_scope != 'mmseg':
        return [built.get_data_info(place) for place in range(len(built))]
    return [dict(built[place], img_path=built.get_data_info(place)['img_path']) for place in range(len(built))]


@pytest.mark.parametrize('make', [maps, class_folders, pytest.param(roboflow, marks=pytest.mark.release)])
def test_a_written_config_trains_and_is_evaluated(make, tmp_path, monkeypatch, capsys):
    """Two steps and a validation, and the schedule that was asked for."""
    monkeypatch.chdir(tmp_path)
    make(Path('data'))
    cfg = written('data', '--iters', '30', '--patience', '2')
    assert (cfg.train_cfg.max_iters, cfg.train_cfg.val_interval) == (30, 3)
    assert set(image_size(cfg)) == {cfg.img_size}  # of `export-onnx`, without --size
    fast = [
        f'{split}_dataloader.{key}'
        for split in ('train', 'val')
        for key in ('num_workers=0', 'persistent_workers=False')
    ]
    options = ['train_dataloader.batch_size=2', *fast]
    words = [
        'train',
        'data.py',
        '--seed',
        '1',
        '--allow-batch-mismatch',
        '--shorten',
        '0.1',
        '--cfg-options',
        *options,
    ]
    assert main(words) == 0
    record = json.loads(Path('work_dirs/data/run.json').read_text())
    assert record['state'] == 'finished' and record['last']['metrics']
    folder = {'maps': 'data/images', 'roboflow': 'data/train'}.get(make.__name__, 'data/cat')
    assert main(['predict', 'work_dirs/data', folder]) == 0  # the config passes the gate
    assert any(Path('work_dirs/data/predicted/overlays').iterdir())
    printed = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith('  mmlape ')]
    assert [words[1] for words in printed] == ['train', 'test', 'predict', 'export-onnx']
    for words in printed:  # each is complete
        parser = fill_parser(argparse.ArgumentParser(), words[1])
        parse_arguments(parser, words[2:])


def test_the_same_seed_gives_the_same_split_and_another_one_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    maps(Path('data'), count=20)
    lists = []
    for seed in ('0', '0', '1'):
        written('data', '--seed', seed, '--iters', '20')
        lists.append(Path('data_data/val.txt').read_text())
        shutil.rmtree('data_data')
        Path('data.py').unlink()
    assert lists[0] == lists[1] != lists[2]


def test_balance_gives_rare_classes_more(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    maps(Path('data'), convert=lambda ids: np.where(np.arange(40)[:, None] + 0 * ids < 2, 1, 0))
    cfg = written('data', '--balance', '--iters', '20')
    common, rare = cfg.model.decode_head.loss_decode.class_weight
    assert rare > common > 0


def redraw(file: Path, kind: str) -> None:
    """Make another shape of the first of LabelMe's file."""
    content = json.loads(file.read_text())
    content['shapes'][0]['shape_type'] = kind
    file.write_text(json.dumps(content))


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    'empty': (lambda root: root.mkdir(), 'data has no files, and no images: nothing known'),
    'texts': (lambda root: (root.mkdir(), (root / 'a.txt').write_text('x')), r'1 \.txt, and no images'),
    'images alone': (
        lambda root: [photo(root / f'{number}.jpg') for number in range(5)],
        r'data has 5 \.jpg: nothing known\. What is: images with label maps',
    ),
    'three images': (lambda root: maps(root, count=3), '3 images with labels'),
    'one class': (
        lambda root: [photo(root / 'cat' / f'{number}.jpg') for number in range(5)],
        "images of one class only, 'cat'",
    ),
    'one id': (
        lambda root: maps(root, convert=lambda ids: 0 * ids),
        'have the id 0 only: there is nothing to choose from',
    ),
    'no pairs': (
        lambda root: maps(root, labels='labels/other{}.png'),
        'has images in images and labels, but no image with a label map of the same name',
    ),
    'mixed, images beside class folders': (
        lambda root: (class_folders(root), photo(root / 'first.jpg')),
        'has images in folders, and 1 beside these, such as first.jpg: move each into the folder of its class',
    ),
    'mixed, splits and a class': (
        lambda root: (class_folders(root, 'train', 'val'), photo(root / 'hat/0.jpg')),
        'has images in train and val, and others in hat: move those below train and val',
    ),
    'too few names': (lambda root: listed_maps(root, NAMES[:1]), '1 names for the values 0, 1, 2: which is which'),
    'absent images': (
        lambda root: (coco(root, 'all.json', 'images', range(8)), shutil.rmtree(root / 'images')),
        r"lists 8 images that are not there, such as '00\.jpg'",
    ),
    'two files': (
        lambda root: (coco(root, 'a.json', 'images', range(8)), coco(root, 'b.json', 'images', range(8))),
        r'data/images/00\.jpg has two annotations, a\.json and b\.json',
    ),
    'bad line of YOLO': (
        lambda root: (yolo(root), (root / 'labels/train/00.txt').write_text('0 0.5 x 0.1 0.1\n')),
        '00.txt',
    ),
    'a line of LabelMe': (
        lambda root: (labelme(root), redraw(root / 'train/json/00.json', 'line')),
        r"00\.json has the shape 0 \('.*'\), a line of 4 points: objects are polygon, rectangle, circle",
    ),
    'an image of LabelMe': (
        lambda root: (labelme(root), (root / 'train/photos/00.jpg').unlink()),
        r"00\.json names the image '..\\\\photos\\\\00\.jpg', which is not there",
    ),
}


@pytest.mark.parametrize('case', WRONG)
def test_what_is_wrong_is_one_line_and_leaves_nothing(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make, message = WRONG[case]
    make(Path('data'))
    assert main(['new', 'data', '--model', 'mini']) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith('mmlape: error: ')
    with pytest.raises(DataError, match=message):
        look(Path('data'))
    assert sorted(path.name for path in tmp_path.iterdir()) == ['data']


def test_a_broken_image_stops_before_the_config_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    maps(Path('data'))
    Path('data/images/03.jpg').write_bytes(b'no image')
    assert main(['new', 'data', '--model', 'mini']) == 1
    assert 'data/images/03.jpg' in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ['data']


def test_an_existing_config_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    maps(Path('data'))
    Path('data.py').write_text('mine')
    assert main(['new', 'data', '--model', 'mini']) == 1
    assert 'data.py exists: remove it, or give another --out' in capsys.readouterr().err
    assert Path('data.py').read_text() == 'mine'


@pytest.mark.release  # a trial starts and resumes a run
def test_a_trial_decides_the_length_and_prints_no_log(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    maps(Path('data'), count=4)
    assert main(['new', 'data', '--model', 'mini', '--time', '2h']) == 0
    out, err = capfd.readouterr()
    assert 'an iteration takes ' in out and 'about 2:00:00 in all' in out
    assert 'mmengine' not in out + err and len(out.splitlines()) < 30
    cfg = Config.fromfile('data.py')
    assert 50 <= cfg.train_cfg.max_iters <= 60_000


@pytest.mark.parametrize(
    ('text', 'seconds'), [('90s', 90), ('30m', 1800), ('2h', 7200), ('1h30m', 5400), ('0.5h', 1800)]
)
def test_times(text, seconds):
    assert parse_time(text) == seconds


@pytest.mark.parametrize('text', ['', '2', 'h', '-1h', '2d', '1h2'])
def test_what_is_no_time(text):
    with pytest.raises(ValueError):
        parse_time(text)


@pytest.mark.parametrize('task', ['segmentation', 'classes'])
@pytest.mark.parametrize(
    'name',
    [
        *('mini', 'deit-tiny', 'deit-tiny-lape-dpn', 'deit-tiny-adapter', 'timm/test_vit'),
        pytest.param('beit-base', marks=pytest.mark.release),
    ],
)
def test_models_by_name_are_built_for_the_size_and_width_that_the_config_says(task, name):
    model = choose_model(task, name, None, 160)
    with torch.no_grad():
        maps = MODELS.build(dict(model.backbone, init_cfg=None)).eval()(torch.zeros(1, 3, 160, 160))
    sides = [(40, 40), (20, 20), (10, 10), (5, 5)] if task == 'segmentation' else [()]
    assert [tuple(one.shape) for one in maps] == [(1, model.embed_dims, *side) for side in sides]


@pytest.mark.parametrize(
    ('options', 'head', 'rate'),
    [((), 'FCNHead', 0.01), (('--head', 'adapter'), 'UPerHead', 0.001), (('--model', 'mini'), 'UPerHead', 0.001)],
)
def test_few_images_train_a_linear_head_over_a_frozen_vit(options, head, rate, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    maps(Path('data'))
    assert main(['new', 'data', '--model', 'timm/test_vit', '--iters', '20', '--balance', *options]) == 0
    cfg = Config.fromfile('data.py')
    assert (cfg.model.decode_head.type, cfg.optim_wrapper.optimizer.lr) == (head, rate)
    assert len(cfg.model.decode_head.loss_decode.class_weight) == 3
    cfg.model.backbone.init_cfg = None
    init_default_scope('mmseg')
    model = MODELS.build(cfg.model)
    trained = {name.partition('.')[0] for name, part in model.named_parameters() if part.requires_grad}
    assert trained == ({'decode_head'} if head == 'FCNHead' else {'backbone', 'decode_head', 'auxiliary_head'})
    with torch.no_grad():
        assert model.eval().encode_decode(torch.zeros(1, 3, 48, 40), [dict(img_shape=(48, 40))]).shape == (
            1,
            3,
            48,
            40,
        )


@pytest.mark.parametrize('head', ['linear', 'adapter'])
def test_a_fine_tuned_vit_has_a_rate_that_falls_from_its_last_layer(head, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    maps(Path('data'))
    words = ['--model', 'timm/test_vit', '--iters', '20', '--head', head, '--fine-tune']
    assert main(['new', 'data', *words]) == 0
    cfg = Config.fromfile('data.py')
    cfg.model.backbone.init_cfg = None
    init_default_scope('mmseg')
    model = MODELS.build(cfg.model)
    groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    rates = {id(param): group['lr'] for group in groups for param in group['params']}
    blocks = [rates[id(block.attn.qkv.weight)] for block in model.backbone.vit.blocks]
    assert blocks == pytest.approx([1e-4 * 0.8 ** (len(blocks) - place) for place in range(len(blocks))])
    assert max(rates.values()) == cfg.optim_wrapper.optimizer.lr == (0.01 if head == 'linear' else 0.001)


@pytest.mark.parametrize('name', ['mini', 'deit-tiny'])
def test_what_is_trained_in_any_case_is_not_fine_tuned(name):
    with pytest.raises(ConfigError, match=f'--fine-tune: {name} is trained in any case'):
        choose_model('segmentation', name, None, 160, fine_tune=True)


@pytest.mark.parametrize(
    ('name', 'message'),
    [('dinov2-small', 'patches of 14 pixels'), ('swin-tiny', 'takes plain ViTs'), ('nobody', 'has no model')],
)
def test_models_that_do_not_fit(name, message):
    with pytest.raises(ConfigError, match=message):
        choose_model('segmentation', name, None, 160)
