"""`mmlape new`: each form of data in several layouts, read again by the dataset that the written config names."""

import json
import os
import re
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import supervision
import torch
from drawn_data import (
    HUES,
    NAMES,
    SIZES,
    cityscapes,
    class_folders,
    coco,
    labelme,
    maps,
    objects_of,
    photo,
    regions,
    roboflow,
    voc,
    write,
    write_list,
    yolo,
)
from each import each
from hypothesis import given
from hypothesis import strategies as st
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image, TiffImagePlugin
from properties import examples
from told import assert_told

from mmlape.cli import main
from mmlape.errors import DataError
from mmlape.lab.config.config_file import load_config
from mmlape.new import command
from mmlape.new.choices import choose_model, parse_time
from mmlape.new.coco import CocoData
from mmlape.new.command import look
from mmlape.new.writing import choose_regions
from mmlape.registry import MODELS

BY_NAME: list[tuple[Callable[[np.ndarray], np.ndarray], list[str], bool | None, dict[int, str | None]]] = [
    (lambda ids: ids, ['1=scratch', '2=stain'], None, {0: 'background', 1: 'scratch', 2: 'stain'}),
    (lambda ids: ids, ['2=stain', '1=scratch'], False, {0: None, 1: 'scratch', 2: 'stain'}),
    (lambda ids: ids, ['scratch', 'stain'], None, {0: 'background', 1: 'scratch', 2: 'stain'}),
    (lambda ids: np.where(ids == 2, 255, ids), ['1=leaf'], None, {0: 'background', 1: 'leaf', 2: None}),
    (lambda ids: np.where(ids == 2, 255, 0), ['leaf'], None, {0: 'background', 1: 'background', 2: 'leaf'}),
    (lambda ids: HUES[ids], ['stain=0,90,255', 'scratch=200,30,0'], None, {0: 'background', 1: 'scratch', 2: 'stain'}),
]


@pytest.mark.parametrize(('convert', 'names', 'background', 'drawn'), BY_NAME)
def test_each_value_gets_the_name_beside_it(convert, names, background, drawn, tmp_path):
    """What is trained on is the class that its number or its colour was named for."""
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
            for value, label in {*zip(regions(number).ravel().tolist(), labels.ravel().tolist())}:
                assert drawn[value] == (None if label == 255 else found.classes[label])


# boxes ---------------------------------------------------------------------------------------------------------------


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
    (yolo if layout == 'YOLO' else voc)(tmp_path)
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
    expected = Counter({0: 'no', 1: 'yes', 2: '1'}[label] for number in range(8) for label, *_ in objects_of(number))
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
    stored = dict(imageWidth=SIZES[0][0], imageHeight=SIZES[0][1])
    rewrite(tmp_path, '00.json', lambda text: json.dumps(json.loads(text) | stored))
    sizes = [(one['width'], one['height']) for one in content(look(tmp_path))['images']]
    assert sizes == [SIZES[0], *(size[::-1] if tag == 6 else size for size in (*SIZES[1:], *SIZES))]


# splits --------------------------------------------------------------------------------------------------------------


def listed_voc(root: Path, task: str) -> None:
    """Boxes and label maps, with a list of each task: the other one's divides otherwise."""
    voc(root)
    maps(root, 'JPEGImages/{:02}.jpg', 'SegmentationClass/{:02}.png', range(12))
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
             f'masks/{("train_station", "valley", "test")[number % 3]}{number}_{{}}.png', range(1))  # fmt: skip


SPLITS: dict[str, tuple[Callable[[Path], None], str | None, dict[str, int]]] = {
    'Cityscapes': (cityscapes, None, dict(train=6, val=2)),
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


# what all have in common ---------------------------------------------------------------------------------------------


SHORT = ['--seed', '1', '--allow-batch-mismatch', '--shorten', '0.1', '--cfg-options']
OF_LOADERS = ('num_workers', 'persistent_workers')
SHORT += [f'{split}_dataloader.{key}=0' for split in ('train', 'val', 'test') for key in OF_LOADERS]
"""Options of a run of a few steps."""


def written(data: str, *options: str) -> Config:
    """Write a config by the command, which checks its data."""
    assert main(['new', data, '--model', 'mini', *options]) == 0
    return Config.fromfile('data.py')


def test_balance_repeats_images_of_rare_classes(tmp_path, monkeypatch):
    """The threshold of ClassBalancedDataset is of shares of images, however many objects they have."""
    monkeypatch.chdir(tmp_path)
    roboflow(Path('data'))
    file = Path('data/train/_annotations.coco.json')
    content = json.loads(file.read_text())
    common = [one for one in content['annotations'] if one['category_id'] != 1]
    rare = next(one for one in content['annotations'] if one['category_id'] == 1)
    objects = [rare, *common, *common, *common]
    content['annotations'] = [dict(one, id=number) for number, one in enumerate(objects, 1)]
    file.write_text(json.dumps(content))
    cfg = written('data', '--balance', '--iters', '20')
    shares = sorted(len({one['image_id'] for one in objects if one['category_id'] == key}) / 8 for key in (1, 2, 3))
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
    maps(Path('data'), convert=lambda ids: np.where(np.arange(len(ids))[:, None] + 0 * ids < 2, 1, 0))
    cfg = written('data', '--balance', '--iters', '20')
    common, rare = cfg.model.decode_head.loss_decode.class_weight
    assert rare > common > 0


def redraw(file: Path, kind: str) -> None:
    """Make another shape of the first of LabelMe's file."""
    content = json.loads(file.read_text())
    content['shapes'][0]['shape_type'] = kind
    file.write_text(json.dumps(content))


def as_rasters(root: Path) -> None:
    """Write label maps as QGIS rasterises polygons: 0 is the value without data."""
    for file in (root / 'labels').iterdir():
        tags = TiffImagePlugin.ImageFileDirectory_v2()
        tags[42113] = '0'
        Image.open(file).save(file.with_suffix('.tif'), tiffinfo=tags)
        file.unlink()


OF_NAMES: list[tuple[Callable[[np.ndarray], np.ndarray], list[str]]] = [
    (lambda ids: ids, ['a']),
    (lambda ids: ids, list('abcd')),
    (lambda ids: HUES[ids], ['a', 'b']),
    (lambda ids: ids, ['1=a']),
    (lambda ids: ids, ['1=a', 'b']),
    (lambda ids: ids, ['1=a', '1=b']),
]
"""Values of label maps, and names for them that fit in several ways, or in none."""
WRONG: dict[str, Callable[[Path], object]] = {
    'empty': lambda root: root.mkdir(),
    'images alone': lambda root: [photo(root / f'{number}.jpg') for number in range(5)],
    'three images': lambda root: maps(root, numbers=range(3)),
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
    'masks as JPEG': lambda root: maps(root, labels='masks/{:02}.jpg'),
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
    'two numberings': lambda root: (
        yolo(root, described=False),
        write(root / 'data.yaml', 'names: [dog, cat, hat]\n'),
    ),
    'one class beside no data': lambda root: (maps(root, convert=lambda ids: np.minimum(ids, 1)), as_rasters(root)),
    'a broken image': lambda root: (maps(root), (root / 'images/03.jpg').write_bytes(b'x')),
}


def test_what_is_wrong_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    told = []
    cases = [(case, make, []) for case, make in WRONG.items()]
    cases += [(' '.join(names), partial(maps, convert=of), ['--classes', *names]) for of, names in OF_NAMES]
    for number, (case, make, options) in each(enumerate(cases)):
        (folder := tmp_path / f'{number}').mkdir()
        monkeypatch.chdir(folder)
        make(Path('data'))
        assert main(['new', 'data', '--model', 'mini', *options]) == 1
        told.append(f'{case}: {capsys.readouterr().err.strip().splitlines()[-1]}')
        assert sorted(path.name for path in folder.iterdir()) == ['data']
    assert_told('new-refused', '\n'.join(told))


@examples(max_examples=12)
@given(rows=st.integers(1, 38))
def test_the_share_of_ignored_pixels_is_told_above_a_half(rows):
    with tempfile.TemporaryDirectory() as folder:
        maps(
            Path(folder), numbers=range(5), convert=lambda ids: np.where(np.arange(len(ids))[:, None] < rows, 255, ids)
        )
        found = look(Path(folder))
        found.divide(None, 0)
        trained = [np.asarray(Image.open(f'{folder}/{sample.file}')) for sample in found.of_split['train']]
    told = [line for line in found.remarks() if 'pixels are ignored' in line]
    share = (np.concatenate([*map(np.ravel, trained)]) == 255).mean()
    assert [line.startswith(f'warning: {share:.1%} of') for line in told] == [True] * int(share > 0.5)


def test_sixteen_regions_an_object_rounded_up_to_a_power_of_two():
    for objects in range(300):
        regions, wanted = choose_regions(objects), min(16 * objects, 512)
        assert regions in (64, 128, 256, 512) and regions >= wanted and (regions == 64 or regions < 2 * wanted)


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
