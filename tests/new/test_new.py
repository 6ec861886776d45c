"""`mmlape new`: each form of data in several layouts, read again by the dataset that the written config names."""

import argparse
import json
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
import pytest
import supervision
import torch
from each import each
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS, HOOKS, init_default_scope
from PIL import Image
from told import assert_told

from mmlape.cli import main
from mmlape.commands import fill_parser, parse_arguments
from mmlape.errors import DataError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.checks import check_data
from mmlape.lab.inference.trained_graph import image_size
from mmlape.new import command
from mmlape.new.choices import choose_model, parse_time
from mmlape.new.coco import CocoData
from mmlape.new.command import look
from mmlape.new.heads import choose_regions
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


def regions(number: int) -> np.ndarray:
    """Stripes of ids, in another order for each image."""
    stripes = np.array([(place + number) % len(NAMES) for place in range(4)])
    return np.repeat(np.repeat(stripes, 10)[:, None], SIZE[0], axis=1)


def boxes_of(number: int) -> list[tuple[int, tuple[int, int, int, int]]]:
    """(class, (x, y, width, height)) of two objects."""
    labels = number % len(NAMES), (number + 1) % len(NAMES)
    return list(zip(labels, ((4, 6, 12, 10), (20 + number % 5, 10, 16, 20))))


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


THREE = ('class 0', 'class 1', 'class 2')
COLOURS = np.array([(0, 0, 0), (200, 30, 0), (0, 90, 255)])
MAPS: dict[str, tuple[Callable[[Path], Path], tuple[str, ...]]] = {
    'two folders': (maps, THREE),
    'splits by folder': (split_maps, THREE),
    'one folder, same stem': (lambda root: maps(root, 'all/{}.jpg', 'all/{}.png'), THREE),
    'one folder, a word behind': (lambda root: maps(root, 'all/{}.png', 'all/{}_mask.png'), THREE),
    'palette': (lambda root: maps(root, mode='P'), THREE),
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
        THREE,
    ),
}


def cityscapes(root: Path) -> None:
    """Ids of classes, of objects and colours for each image, and outlines that nobody reads."""
    for split, count in (('train', 6), ('val', 2), ('test', 2)):
        for number in range(count):
            stem = f'aachen_{number:06}_000019'
            photo(root / f'leftImg8bit/{split}/aachen/{stem}_leftImg8bit.png')
            start = root / f'gtFine/{split}/aachen/{stem}_gtFine'
            label_map(Path(f'{start}_labelIds.png'), regions(number))
            label_map(Path(f'{start}_instanceIds.png'), regions(number) * 1000)
            label_map(Path(f'{start}_color.png'), COLOURS[regions(number)])
            Path(f'{start}_polygons.json').write_text('{"imgHeight": 40, "imgWidth": 48, "objects": []}')


def camvid(root: Path) -> None:
    for split, count in (('train', 6), ('val', 2), ('test', 2)):
        maps(root, f'{split}/{split}{{}}.png', f'{split}_labels/{split}{{}}_L.png', count, lambda ids: COLOURS[ids])
    (root / 'class_dict.csv').write_text('name,r,g,b\nVoid,0,0,0\nRoad,200,30,0\nSky,0,90,255\n')


@pytest.mark.parametrize(('make', 'classes'), [(cityscapes, THREE), (camvid, ('Void', 'Road', 'Sky'))])
def test_layouts_of_public_label_maps(make, classes, tmp_path):
    make(tmp_path)
    found = look(tmp_path)
    assert (found.task, found.classes, found.images()) == ('segmentation', classes, dict(train=6, val=2))
    images, label_maps = found.books()
    assert (
        images.left_out == label_maps.left_out - Counter({'beside the map of the classes': 20}) == {'for testing': 2}
    )


BY_NAME: list[tuple[Callable[[np.ndarray], np.ndarray], list[str], bool | None, dict[int, str | None]]] = [
    (lambda ids: ids, ['1=scratch', '2=stain'], None, {0: 'background', 1: 'scratch', 2: 'stain'}),
    (lambda ids: ids, ['2=stain', '1=scratch'], False, {0: None, 1: 'scratch', 2: 'stain'}),
    (lambda ids: ids, ['scratch', 'stain'], None, {0: 'background', 1: 'scratch', 2: 'stain'}),
    (lambda ids: np.where(ids == 2, 255, ids), ['1=leaf'], None, {0: 'background', 1: 'leaf', 2: None}),
    (lambda ids: np.where(ids == 2, 255, 0), ['leaf'], None, {0: 'background', 1: 'background', 2: 'leaf'}),
    (
        lambda ids: COLOURS[ids],
        ['stain=0,90,255', 'scratch=200,30,0'],
        None,
        {0: 'background', 1: 'scratch', 2: 'stain'},
    ),
]


@pytest.mark.parametrize(('convert', 'names', 'background', 'drawn'), BY_NAME)
def test_each_value_gets_the_name_beside_it(convert, names, background, drawn, tmp_path):
    """What is trained on at a stripe is the class that its number or its colour was named for."""
    maps(tmp_path / 'data', convert=convert)
    (tmp_path / 'names.txt').write_text('\n'.join(names) + '\n')
    for place, words in enumerate((names, [str(tmp_path / 'names.txt')])):
        found = look(tmp_path / 'data', names=words, background=background)
        found.divide(None, 0)
        (folder := tmp_path / f'{place}').mkdir()
        parts = found.prepare(folder)
        (file,) = {part['data_prefix']['seg_map_path'] for part in parts.values()}
        for number in range(8):
            labels = np.array(Image.open(Path(file, f'{number:02}.png'))).astype(int)
            for value, label in zip(regions(number).ravel(), labels.ravel()):
                assert drawn[value] == (None if label == 255 else found.classes[label])


@pytest.mark.parametrize(
    ('convert', 'names', 'message'),
    [
        (lambda ids: ids, ['a'], '1 names for the values 0, 1, 2: which is which. --classes 0=NAME 1=NAME 2=NAME'),
        (lambda ids: ids, list('abcd'), '4 names for the values 0, 1, 2'),
        (lambda ids: COLOURS[ids], ['a', 'b'], r'0,90,255, 200,30,0: which is which. --classes 0=NAME NAME=0,90,255'),
        (lambda ids: ids, ['1=a'], 'label maps have 0, 2, which have no name in --classes'),
        (lambda ids: ids, ['1=a', 'b'], "'b' has neither number nor colour, as others have: write 1=b"),
        (lambda ids: ids, ['1=a', '1=b'], 'names a number or a colour more than once'),
    ],
)
def test_names_that_fit_in_several_ways_are_asked_for(convert, names, message, tmp_path):
    maps(tmp_path, convert=convert)
    with pytest.raises(DataError, match=message):
        look(tmp_path, names=names)


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


def test_images_of_two_suffixes_are_linked_and_those_without_a_map_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    maps(Path('data'))
    photo(Path('data/images/new.jpg'))
    photo(Path('data/images/00.png'))
    Path('data/images/00.jpg').unlink()
    cfg = written('data', '--iters', '20')
    assert 'no annotation: 1' in capsys.readouterr().out
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
        names = json.dumps(dict(enumerate(NAMES)))  # which is YAML, too
        (root / 'data.yaml').write_text(f'path: .\ntrain: {train}\nval: {val}\nnames: {names}\n')
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
            objects += f'<object><name>{escape(NAMES[label])}</name><bndbox>{bounds}</bndbox></object>'
        file = root / f'Annotations/{number:02}.xml'
        file.parent.mkdir(parents=True, exist_ok=True)
        size = f'<size><width>{SIZE[0]}</width><height>{SIZE[1]}</height><depth>3</depth></size>'
        file.write_text(f'<annotation>{size}{objects}</annotation>')
    lists = root / 'ImageSets/Main'
    lists.mkdir(parents=True)
    (lists / 'train.txt').write_text('\n'.join(f'{number:02}' for number in range(8)))
    (lists / 'val.txt').write_text('\n'.join(f'{number:02}' for number in range(8, 12)))


def labelme(root: Path, rectangles=False) -> None:
    """The first object as two polygons of a group, the second as a rectangle of two or four corners."""
    for split, numbers in (('train', range(8)), ('val', range(8, 12))):
        for number in numbers:
            photo(root / split / 'photos' / f'{number:02}.jpg')
            shapes = []
            for place, (label, (x, y, width, height)) in enumerate(boxes_of(number)):
                right, low, middle = x + width, y + height, x + width / 2
                if place or rectangles:
                    shape = dict(shape_type='rectangle', group_id=None)
                    parts = [[[x, y], [right, low]] if number % 2 else [[x, y], [right, y], [right, low], [x, low]]]
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
    'roboflow, masks left out': (lambda root: roboflow(root, True), 'boxes'),
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
    cfg = written('data', '--iters', '20', *(('--task', 'boxes') if 'left out' in layout else ()))
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
            is_outlined = task == 'masks' or 'left out' in layout
            assert all(bool(one.get('mask')) == is_outlined for one in sample['instances'])
    assert seen == set(range(12))
    if layout == 'no area':
        annotations = [json.loads(file.read_text())['annotations'] for file in Path('data_data').glob('*.json')]
        assert all(one['area'] == one['bbox'][2] * one['bbox'][3] for part in annotations for one in part)
        assert all(annotations)


@pytest.mark.parametrize('objects, regions', [(0, 64), (4, 64), (5, 128), (16, 256), (17, 512), (93, 512)])
def test_regions_are_sixteen_an_object_within_limits(objects, regions):
    assert choose_regions(objects) == regions


def test_a_circle_of_labelme_is_an_object(tmp_path):
    """Of its middle and a point of it, in whichever direction."""
    for number, edge in enumerate(((30, 20), (20, 30), (14, 28), (20, 10))):
        photo(tmp_path / f'{number}.jpg')
        shape = dict(label='a', shape_type='circle', points=[[20, 20], edge])
        text = json.dumps(dict(shapes=[shape], imagePath=f'{number}.jpg'))
        (tmp_path / f'{number}.json').write_text(text)
    found = look(tmp_path)
    assert found.task == 'masks' and found.counts == {'a': 4}
    for one in content(found)['annotations']:
        assert one['area'] == pytest.approx(np.pi * 100, rel=0.03)
        np.testing.assert_allclose(one['bbox'], (10, 10, 20, 20), atol=0.3)


@pytest.mark.parametrize('layout', ['YOLO', 'Pascal VOC'])
def test_boxes_are_those_that_supervision_reads(layout, tmp_path):
    """Parity with another reader, also of shares with many digits and of objects that are difficult."""
    BOXES[layout][0](tmp_path)
    folder = 'images/train' if layout == 'YOLO' else 'JPEGImages'
    theirs = (
        supervision.DetectionDataset.from_yolo(
            str(tmp_path / folder), str(tmp_path / 'labels/train'), str(tmp_path / 'data.yaml')
        )
        if layout == 'YOLO'
        else supervision.DetectionDataset.from_pascal_voc(str(tmp_path / folder), str(tmp_path / 'Annotations'))
    )
    found = look(tmp_path)
    for sample in found.of_split['train']:
        detections = theirs.annotations[str(tmp_path / sample.image)]
        ours = [(label, one['bbox']) for label, one in sample.annotation[1]]
        assert [label for label, _ in ours] == [theirs.classes[number] for number in detections.class_id]
        boxes = np.array([(x, y, x + width, y + height) for _, (x, y, width, height) in ours])
        np.testing.assert_allclose(boxes, detections.xyxy, atol=1e-4)


def contents(found: CocoData) -> dict[str, dict]:
    return {split: found.content(samples, '') for split, samples in found.of_split.items()}


def content(found: CocoData) -> dict:
    return contents(found)['train']


def rewrite(root: Path, pattern: str, change: Callable[[str], str]) -> None:
    """Change the texts of some files."""
    for file in root.rglob(pattern):
        file.write_text(change(file.read_text()))


def test_numbers_of_yolo_are_kept(tmp_path):
    """Names by their numbers, in whichever order, with gaps; YAML's words for truth are names."""
    yolo(tmp_path)
    rewrite(tmp_path / 'labels', '*.txt', lambda text: text.replace('\n1 ', '\n7 ').replace('\n2 ', '\n5 '))
    rewrite(tmp_path / 'labels', '*.txt', lambda text: re.sub('^1 ', '7 ', re.sub('^2 ', '5 ', text)))
    (tmp_path / 'data.yaml').write_text('train: images/train\nval: images/val\nnames: {7: yes, 0: no, 5: "1"}\n')
    expected = Counter({0: 'no', 1: 'yes', 2: '1'}[label] for number in range(8) for label, _ in boxes_of(number))
    found = look(tmp_path)
    assert (found.classes, found.counts) == (('no', '1', 'yes'), expected)


@pytest.mark.parametrize(('points', 'shape'), [(2, ''), (3, ''), (2, 'kpt_shape: [4, 2]'), (3, 'kpt_shape: [4, 3]')])
def test_keypoints_are_no_outlines(points, shape, tmp_path):
    yolo(tmp_path)
    boxes = content(look(tmp_path))
    more = {2: r'\1 \2', 3: r'\1 \2 1'}[points]
    rewrite(tmp_path / 'labels', '*.txt', lambda text: re.sub(r'\d (\S+) (\S+) .*', rf'\g<0>{f" {more}" * 4}', text))
    rewrite(tmp_path, 'data.yaml', lambda text: text + shape)
    if shape:
        assert content(look(tmp_path)) == boxes
    else:
        with pytest.raises(DataError, match='may be outlines, or boxes with keypoints: --task masks, or kpt_shape'):
            look(tmp_path)


@pytest.mark.parametrize(
    ('form', 'file', 'before', 'after'),
    [
        (voc, '00.xml', '</name>', '</name><difficult>1</difficult>'),
        (labelme, '00.json', '"label"', '"difficult": true, "label"'),
        (labelme, '00.json', '"flags": {}', '"flags": {"difficult": true}'),
    ],
)
def test_difficult_objects_are_neither_learnt_nor_missed(form, file, before, after, tmp_path):
    form(tmp_path)
    rewrite(tmp_path, file, lambda text: text.replace(before, after, 1))
    found = look(tmp_path)
    book = found.books()[1]
    assert book.left_out['marked difficult'] == 1 == book.total - sum(book.used.values())
    crowds = [one['iscrowd'] for one in content(found)['annotations']]
    assert crowds == [1] + (len(crowds) - 1) * [0]


def test_the_outline_wins_over_a_box_beside_it(tmp_path):
    """Of COCO's form."""
    roboflow(tmp_path, True)
    right = content(look(tmp_path))
    for file in tmp_path.rglob('*.json'):
        changed = json.loads(file.read_text())
        for one in changed['annotations']:
            one['bbox'][0] += 5
        file.write_text(json.dumps(changed))
    found = look(tmp_path)
    assert any('have a box beside their outline' in line for line in found.remarks())
    for one, other in zip(content(found)['annotations'], right['annotations'], strict=True):
        np.testing.assert_allclose(one['bbox'], other['bbox'])


def test_images_without_objects_are_trained_on(tmp_path, monkeypatch):
    """As many as the table counts."""
    monkeypatch.chdir(tmp_path)
    yolo(Path('data'))
    empty = sorted(Path('data').rglob('train/*.txt'))[0]
    empty.write_text('')
    command.write_config(Path('data'), Path('c.py'), 'new', model='mini', iterations=20)
    dataset = load_config('c.py').train_dataloader.dataset
    init_default_scope('mmdet')
    assert len(DATASETS.build(dataset)) == look(Path('data')).images()['train']


@pytest.mark.parametrize('tag', [6, 1])
def test_sizes_of_labelme_are_its_own(tag, tmp_path):
    """The pixels that shapes are of: as the file says, else as programs show the image."""
    labelme(tmp_path, True)
    for file in tmp_path.rglob('*.jpg'):
        exif = Image.Exif()
        exif[0x112] = tag
        Image.open(file).save(file, exif=exif)
    stored = dict(imageWidth=SIZE[0], imageHeight=SIZE[1])
    rewrite(tmp_path, '00.json', lambda text: json.dumps(json.loads(text) | stored))
    sizes = [(one['width'], one['height']) for one in content(look(tmp_path))['images']]
    assert sizes == [SIZE] + 7 * [SIZE[::-1] if tag == 6 else SIZE]


@pytest.mark.parametrize('name', ['../{folder}/{name}', '{root}/{folder}/{name}', '..\\{folder}\\{name}'])
def test_names_of_images_in_coco_may_be_paths(name, tmp_path):
    roboflow(tmp_path)
    expected = contents(look(tmp_path))
    for folder in ('train', 'valid'):
        content = json.loads((tmp_path / folder / '_annotations.coco.json').read_text())
        for image in content['images']:
            image['file_name'] = name.format(root=tmp_path, folder=folder, name=image['file_name'])
        (tmp_path / folder / '_annotations.coco.json').write_text(json.dumps(content))
    assert contents(look(tmp_path)) == expected


# splits --------------------------------------------------------------------------------------------------------------


def write_list(file: Path, names) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(''.join(f'{name}\n' for name in names))


def listed_voc(root: Path, task: str) -> None:
    """Boxes and label maps, with a list of each task: the other one's divides otherwise."""
    voc(root)
    maps(root, 'JPEGImages/{}.jpg', 'SegmentationClass/{}.png', 12)
    for folder, count in (('Main', 9), ('Segmentation', 7)):
        write_list(root / f'ImageSets/{folder}/train.txt', [f'{number:02}' for number in range(count)])
        write_list(root / f'ImageSets/{folder}/val.txt', [f'{number:02}' for number in range(count, 12)])


def listed_classes_(root: Path) -> None:
    class_folders(root / 'images')
    for split, numbers in (('train', range(4)), ('test', range(4, 6))):
        write_list(root / f'meta/{split}.txt', [f'{name}/{number}' for name in NAMES for number in numbers])


def listed_yolo(root: Path) -> None:
    yolo(root, 'images', 'labels')
    for name, numbers in (('first', range(8)), ('second', range(8, 12))):
        write_list(root / f'{name}.txt', [f'./images/{number:02}.jpg' for number in numbers])
    (root / 'data.yaml').write_text('train: first.txt\nval: second.txt\nnames: [cat, dog, hat]\n')


def class_then_split(root: Path) -> None:
    for name in NAMES:
        for split, count in (('train', 4), ('val', 2), ('test', 1)):
            for number in range(count):
                photo(root / name / split / f'{number}.jpg')


def words_in_names(root: Path) -> None:
    for number in range(12):
        maps(root, f'images/{("train_station", "valley", "test")[number % 3]}{number}_{{}}.jpg',
             f'masks/{("train_station", "valley", "test")[number % 3]}{number}_{{}}.png', 1)  # fmt: skip


SPLITS: dict[str, tuple[Callable[[Path], None], str | None, dict[str, int]]] = {
    'ImageSets of boxes': (lambda root: listed_voc(root, 'boxes'), 'boxes', dict(train=9, val=3)),
    'ImageSets of label maps': (lambda root: listed_voc(root, 'maps'), 'segmentation', dict(train=7, val=5)),
    'lists with paths, test for validation': (listed_classes_, None, dict(train=12, val=6)),
    'lists of a data.yaml': (listed_yolo, None, dict(train=8, val=4)),
    'splits below classes': (class_then_split, None, dict(train=12, val=6)),
    'words in names of files': (words_in_names, None, dict(train=12)),
    'a class of the name of a split': (
        lambda root: [photo(root / split / name / f'{number}.jpg')
                      for split in ('train', 'val') for name in ('bus', 'train') for number in range(4)],
        None, dict(train=8, val=8),
    ),
}  # fmt: skip


@pytest.mark.parametrize('layout', SPLITS)
def test_splits_that_come_with_the_data(layout, tmp_path):
    make, task, counts = SPLITS[layout]
    make(tmp_path)
    found = look(tmp_path, task)
    assert found.images() == counts
    for book in found.books():
        assert book.total == sum(book.used.values()) + book.left_out.total()


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
        dict(type='LoadAnnotations', reduce_zero_label=False),
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


def test_balance_repeats_images_of_rare_classes(tmp_path, monkeypatch):
    """The threshold of ClassBalancedDataset is of shares of images, however many objects they have."""
    monkeypatch.chdir(tmp_path)
    roboflow(Path('data'))
    file = Path('data/train/_annotations.coco.json')
    content = json.loads(file.read_text())
    common = [one for one in content['annotations'] if one['category_id'] != 5]
    rare = next(one for one in content['annotations'] if one['category_id'] == 5)
    objects = [rare, *common, *common, *common]
    content['annotations'] = [dict(one, id=number) for number, one in enumerate(objects, 1)]
    file.write_text(json.dumps(content))
    cfg = written('data', '--balance', '--iters', '20')
    shares = sorted(len({one['image_id'] for one in objects if one['category_id'] == key}) / 8 for key in (5, 15, 25))
    assert cfg.train_dataloader.dataset.oversample_thr == pytest.approx(shares[1], abs=1e-3)


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_command_leaves_nothing_in_the_way(number, tmp_path, monkeypatch):
    """After SIGTERM the folder is gone; after SIGKILL the next command replaces it."""
    monkeypatch.chdir(tmp_path)
    maps(Path('data'))
    child = os.fork()
    if not child:
        monkeypatch.setattr(command, 'full_check', lambda *args: os.kill(os.getpid(), number))
        try:
            main(['new', 'data', '--model', 'mini'])
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ['data'] + ['data_data'] * (number == signal.SIGKILL)
    assert main(['new', 'data', '--model', 'mini']) == 0
    assert not [path for path in Path('data_data').iterdir() if path.name.startswith('.')]


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


WRONG: dict[str, Callable[[Path], object]] = {
    'empty': lambda root: root.mkdir(),
    'images alone': lambda root: [photo(root / f'{number}.jpg') for number in range(5)],
    'three images': lambda root: maps(root, count=3),
    'one class': lambda root: [photo(root / 'cat' / f'{number}.jpg') for number in range(5)],
    'one id': lambda root: maps(root, convert=lambda ids: 0 * ids),
    'no pairs': lambda root: maps(root, labels='labels/other{}.png'),
    'mixed, images beside class folders': lambda root: (class_folders(root), photo(root / 'first.jpg')),
    'mixed, splits and a class': lambda root: (class_folders(root, 'train', 'val'), photo(root / 'hat/0.jpg')),
    'absent images': lambda root: (coco(root, 'all.json', 'images', range(8)), shutil.rmtree(root / 'images')),
    'two files': lambda root: (coco(root, 'a.json', 'images', range(8)), coco(root, 'b.json', 'images', range(8))),
    'bad line of YOLO': lambda root: (yolo(root), (root / 'labels/train/00.txt').write_text('0 0.5 x 0.1 0.1\n')),
    'a line of LabelMe': lambda root: (labelme(root), redraw(root / 'train/json/00.json', 'line')),
    'an image of LabelMe': lambda root: (labelme(root), (root / 'train/photos/00.jpg').unlink()),
    'masks as JPEG': lambda root: maps(root, labels='masks/{}.jpg'),
    'two tasks': lambda root: listed_voc(root, 'both'),
    'two forms of boxes': lambda root: (yolo(root), coco(root, 'all.json', 'images/train', range(8))),
    'test alone': lambda root: class_folders(root, 'test'),
    'two lists': lambda root: (listed_classes_(root), write_list(root / 'meta/val.txt', ['cat/0'])),
    'a list of others': lambda root: (maps(root), write_list(root / 'train.txt', ['00', '99'])),
    'outlines of some': lambda root: (
        yolo(root, polygon=True),
        (root / 'labels/train/00.txt').write_text('0 .5 .5 .1 .1'),
    ),
    'a number without a name': lambda root: (
        yolo(root),
        (root / 'labels/train/00.txt').write_text('999999999 .5 .5 .1 .1'),
    ),
    'a broken image': lambda root: (maps(root), (root / 'images/03.jpg').write_bytes(b'x')),
}


def test_what_is_wrong_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    told = []
    for number, (case, make) in each(enumerate(WRONG.items())):
        (folder := tmp_path / f'{number}').mkdir()
        monkeypatch.chdir(folder)
        make(Path('data'))
        assert main(['new', 'data', '--model', 'mini']) == 1
        told.append(f'{case}: {capsys.readouterr().err.strip().splitlines()[-1]}')
        assert sorted(path.name for path in folder.iterdir()) == ['data']
    assert_told('new-refused', '\n'.join(told))


def test_times():
    seconds = {'90s': 90, '30m': 1800, '2h': 7200, '1h30m': 5400, '0.5h': 1800}
    assert {text: parse_time(text) for text in seconds} == seconds
    for text in each(['', '2', 'h', '-1h', '2d', '1h2']):
        with pytest.raises(ValueError):
            parse_time(text)


@pytest.mark.parametrize('task', ['segmentation', 'classes'])
@pytest.mark.parametrize(
    'name', [*('mini', 'deit-tiny-adapter', 'timm/test_vit'), pytest.param('beit-base', marks=pytest.mark.release)]
)
def test_models_by_name_are_built_for_the_size_and_width_that_the_config_says(task, name):
    model = choose_model(task, name, None, 'adapter' if task == 'segmentation' else 'linear')
    backbone = model.backbone | {key: 160 for key in ('img_size',) if key in model.backbone}
    with torch.no_grad():
        maps = MODELS.build(dict(backbone, init_cfg=None)).eval()(torch.zeros(1, 3, 160, 160))
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
