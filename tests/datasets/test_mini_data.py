"""The mini data, of digits and objects: layouts that agree, separate splits, reproducible bytes, refused options."""

import json
import tempfile
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
import sklearn.datasets
from config_helpers import ROOT, load
from data_helpers import coco_of, digest, scenes_of
from each import each
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from properties import examples

from mmlape.errors import ConfigError, DataError
from mmlape.lab.datasets.mini import make, objects, scenes, writers
from mmlape.lab.datasets.mini.make import MARKER, MiniOptions, make_mini_data, read_options
from mmlape.lab.datasets.mini.objects import CLASSES, FOLDERS, ObjectOptions, divide_stamps, find_stamps
from mmlape.lab.datasets.retarget import reroot
from mmlape.projects.size_sweep.sweep import at_scale

SMALL = dict(train=10, val=6, digits=40, size=(80, 112), digit_size=(20, 36), per_scene=(3, 5))


@pytest.fixture(scope='module')
def mini(tmp_path_factory):
    root = tmp_path_factory.mktemp('data') / 'mini'
    make_mini_data(root, MiniOptions(**SMALL))
    return root


def test_a_canvas_of_scale_1_has_the_validation_scenes_themselves(mini, tmp_path):
    options = read_options(mini)
    assert options == MiniOptions(**SMALL)
    make_mini_data(tmp_path / 'again', options.on_canvas(1))
    before, after = digest(mini), digest(tmp_path / 'again')
    scenes_of_val = {name for name in before if 'val2017' in name or 'validation' in name}
    assert len(scenes_of_val) > 2 * SMALL['val']
    assert {name: after[name] for name in scenes_of_val} == {name: before[name] for name in scenes_of_val}


@examples(max_examples=100)
@given(start=st.integers(0, 99), wanted=st.integers(1, 90), have=st.integers(1, 30))
def test_what_is_continued_by_reflection_is_what_numpy_pads(start, wanted, have):
    start %= 2 * have
    padded = np.pad(np.arange(have), (0, start + wanted + have), mode='symmetric')
    assert scenes.reflected(start, wanted, have).tolist() == padded[start : start + wanted].tolist()


@pytest.mark.parametrize('split', ['train', 'val'])
def test_annotations_fit_images_and_label_maps(mini, split):
    assert (mini / 'ade' / 'classes.txt').read_text().split() == list(make.ADE_CLASSES)
    captions = json.loads((mini / 'coco' / 'annotations' / f'captions_{split}2017.json').read_text())['annotations']
    assert [category['name'] for category in coco_of(mini, split).cats.values()] == list(scenes.DIGIT_NAMES)
    for record, things, behind in scenes_of(mini, split, 10, border=1):
        assert 1 <= len(things) <= 5 and (record['height'], record['width']) == (80, 112)
        texts = [one['caption'].split() for one in captions if one['image_id'] == record['id']]
        names = [scenes.DIGIT_NAMES[one['category_id'] - 1] for one in things]
        assert [words[1] for words in texts[: len(names)]] == names
        assert {words[-1] for words in texts} == {dict(china='temple', flower='flower')[record['photograph']]}
        assert {*np.unique(behind)} - {0} == {11 + scenes.PHOTOGRAPHS.index(record['photograph'])}


def test_scans_of_training_stay_out_of_validation(mini):
    used = {split: {entry['scan'] for entry in coco_of(mini, split).anns.values()} for split in ('train', 'val')}
    for split, scans in used.items():
        for path in (mini / 'digits' / split).rglob('*.png'):
            scans.add(int(path.stem[-4:]))
    assert len(used['train']) > 40 and not used['train'] & used['val']
    offered = {split: set(np.concatenate(scenes.divide_scans(split)).tolist()) for split in used}
    assert used['train'] <= offered['train'] and used['val'] <= offered['val']
    assert not offered['train'] & offered['val'] and len(offered['train'] | offered['val']) == 1797


def test_polygons_of_several_parts_and_holes():
    mask = np.zeros((24, 30), bool)
    mask[2:20, 3:16] = True
    mask[5:9, 6:10] = mask[12:16, 8:13] = False
    mask[13:15, 10:11] = True
    mask[21, 27] = mask[4:6, 20:29] = True
    polygons = writers.encode_polygons(mask)
    from pycocotools import mask as coco_mask

    filled = coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(polygons, 24, 30)))
    np.testing.assert_array_equal(filled.astype(bool), mask)
    block = np.zeros((24, 30), bool)
    block[4:10, 8:12] = True
    corners = np.reshape(writers.encode_polygons(block), (-1, 2))
    assert corners.mean(axis=0).tolist() == [10, 7], 'centred on the pixels that it covers'


def test_overwrite_replaces_only_what_it_made(tmp_path):
    root = tmp_path / 'mini'
    tiny = dict(train=2, val=1, digits=0)
    root.mkdir()
    make_mini_data(root, MiniOptions(**tiny))  # an empty directory is free
    before = digest(root)
    with pytest.raises(DataError, match='not empty.*--overwrite'):
        make_mini_data(root, MiniOptions(**tiny))
    make_mini_data(root, MiniOptions(train=1, val=1, digits=0, seed=4), overwrite=True)
    assert digest(root) != before and len(list((root / 'coco' / 'train2017').iterdir())) == 1

    precious = root / 'coco' / 'notes.txt'
    precious.write_text('mine')
    before = digest(root)
    with pytest.raises(DataError, match='notes.txt was not made by mmlape'):
        make_mini_data(root, MiniOptions(**tiny), overwrite=True)
    assert digest(root) == before
    precious.unlink()
    (root / MARKER).unlink()
    with pytest.raises(DataError, match=f'has no {MARKER}'):
        make_mini_data(root, MiniOptions(**tiny), overwrite=True)


def test_a_failed_run_leaves_the_target_as_it_was(tmp_path, monkeypatch):
    root = tmp_path / 'mini'
    make_mini_data(root, MiniOptions(train=2, val=1, digits=0))
    before = digest(root)
    monkeypatch.setattr(scenes, 'describe', lambda scene: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make_mini_data(tmp_path / 'new', MiniOptions(train=2, val=1, digits=0))
    with pytest.raises(ZeroDivisionError):
        make_mini_data(root, MiniOptions(train=1, val=1, digits=0), overwrite=True)
    assert digest(root) == before and [path.name for path in tmp_path.iterdir()] == ['mini']


def test_invalid_options_are_refused_by_name():
    for option in each((
        dict(train=0), dict(val=0), dict(digits=-1), dict(digits=9), dict(vtab=-1), dict(size=(16, 128)),
        dict(per_scene=(4, 3)), dict(per_scene=(0, 3)), dict(digit_size=(20, 300)), dict(digit_size=(4, 30)),
        dict(size=(70000, 128)), dict(drawn_for=(96, 128)), dict(seed=-1),
    )):  # fmt: skip
        with pytest.raises(ConfigError, match=f'option {next(iter(option))} '):
            MiniOptions(**option)


@examples(max_examples=12)
@given(
    size=st.tuples(st.integers(32, 90), st.integers(32, 90)),
    digit_size=st.tuples(st.integers(12, 40), st.integers(0, 60)).map(lambda pair: (pair[0], sum(pair))),
    count=st.integers(1, 5),
    crop=st.integers(16, 40),
)
def test_options_that_are_accepted_give_digits_in_every_image(size, digit_size, count, crop):
    """As many as are asked for, or one in each cell; else the option is named before anything is drawn."""
    options = dict(
        train=2, val=1, digits=10, vtab=2, size=size, digit_size=digit_size, per_scene=(count,) * 2, crop=crop
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            make_mini_data(Path(folder) / 'mini', MiniOptions(**options))
        except ConfigError as error:
            assert 'option digit_size must' in str(error)
            return
        content = coco_of(Path(folder) / 'mini', 'train')
        cells = np.prod([scenes.cells_along(side, digit_size[1]) for side in size])
        assert all(len(content.getAnnIds(image)) == min(count, cells) for image in content.imgs)


def test_vtab_is_tested_on_scans_that_training_has_not_seen(tmp_path, monkeypatch):
    """Its lists are drawn in turns: train800 and val200 from the scans of training, test from those of validation."""
    made, draw = [], scenes.draw
    monkeypatch.setattr(scenes, 'draw', lambda *args, **kw: (made.append(one) or one for one in draw(*args, **kw)))
    rows = make_mini_data(tmp_path / 'mini', MiniOptions(train=1, val=1, digits=0, vtab=12))
    assert [row['images'] for row in rows if row['format'] == 'VTAB'] == [12, 3, 6] * 3
    known = {split: set(np.concatenate(scenes.divide_scans(split))) for split in scenes.SPLITS}
    left = made[2:]
    for name, label in (('digits', lambda scene: scene.things[0].label), ('textures', lambda scene: scene.photograph),
                        ('counts', lambda scene: len(scene.things) - 1)):  # fmt: skip
        for listed, count, of in (('train800', 12, 'train'), ('val200', 3, 'train'), ('test', 6, 'val')):
            part, left = left[:count], left[count:]
            assert {digit.source['scan'] for scene in part for digit in scene.things} <= known[of], (name, listed)
            lines = (tmp_path / 'mini' / 'vtab' / name / f'{listed}.txt').read_text().splitlines()
            assert [int(line.split()[1]) for line in lines] == [label(scene) for scene in part]
            images = [cv2.imread(str(tmp_path / 'mini' / 'vtab' / name / line.split()[0])) for line in lines]
            assert all((image == scene.image).all() for image, scene in zip(images, part, strict=True))
            assert {image.shape for image in images} == {(64, 64, 3)}
        lists = [(tmp_path / 'mini' / 'vtab' / name / f'{one}.txt').read_text() for one in ('train800', 'val200')]
        assert ''.join(lists) == (tmp_path / 'mini' / 'vtab' / name / 'train800val200.txt').read_text()
    assert not left


def test_classes_come_up_equally_often():
    sampled = scenes.in_turn(['abc', 'de'], np.random.default_rng(3))
    items = [next(sampled) for _ in range(60)]
    assert Counter(items) == {(0, 'a'): 10, (0, 'b'): 10, (0, 'c'): 10, (1, 'd'): 15, (1, 'e'): 15}
    assert items[:6] != items[6:12]


# objects -------------------------------------------------------------------------------------------------------------

WORDS = ('ant', 'bee', 'cat', 'dog', 'emu', 'fox', 'gnu', 'hen')


def draw(path: Path, label: int, number: int) -> None:
    """An ellipse or a triangle with soft edges, of an own colour; what is transparent has another one."""
    rows, columns = np.mgrid[:120, :90]
    if label % 2:
        cover = 1.2 - np.hypot((rows - 60) / 50, (columns - 45) / (20 + 3 * number))
    else:
        cover = (rows - 2 * abs(columns - 45)) / 20
    image = np.zeros((120, 90, 4), np.uint8)
    image[..., :3] = (0, 255, 0)
    image[cover > 0, :3] = (20 * label, 30 * number, 200)
    image[..., 3] = np.clip(255 * cover, 0, 255)
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), image)


@pytest.fixture(scope='module')
def stamps(tmp_path_factory):
    """A folder as the package's: eight objects of each class, one of them twice; a cartoon and a mirrored one."""
    root = tmp_path_factory.mktemp('stamps')
    for label, folders in enumerate(FOLDERS.values()):
        for number, word in enumerate(WORDS):
            draw(root / folders[0] / f'{word}.png', label, number)
        for name in ('dog_lying', 'cartoon/cow', 'cat_mirror'):
            draw(root / folders[0] / f'{name}.png', label, 0)
    return root


@pytest.fixture(scope='module')
def made(stamps, tmp_path_factory):
    root = tmp_path_factory.mktemp('data') / 'objects'
    make_mini_data(root, ObjectOptions(train=12, val=6, size=(160, 224), stamps=str(stamps)))
    return root


@pytest.mark.parametrize('split', ['train', 'val'])
def test_both_layouts_have_the_same_objects(made, split):
    assert [category['name'] for category in coco_of(made, split).cats.values()] == list(FOLDERS)
    assert (made / 'ade' / 'classes.txt').read_text().split() == list(CLASSES)
    for record, things, behind in scenes_of(made, split, len(FOLDERS), border=4):
        assert (record['height'], record['width']) == (160, 224) and (behind == len(CLASSES)).all()
        assert all(one['stamp'] in (*WORDS, 'dog_lying') for one in things)


def test_no_object_is_in_both_splits(stamps, made):
    """Whatever the seed and the canvas; the two images of one object go together, and each class is in both."""
    used = {}
    for split in ('train', 'val'):
        coco = coco_of(made, split)
        names = {(one['category_id'], one['stamp'].split('_')[0]) for one in coco.anns.values()}
        offered = divide_stamps(find_stamps(stamps), split)
        assert all(offered)
        known = {(i + 1, path.stem.split('_')[0]) for i, paths in enumerate(offered) for path in paths}
        assert names <= known
        used[split] = known
    assert not used['train'] & used['val'] and len(used['train'] | used['val']) == 8 * len(FOLDERS)
    assert {word for _, word in used['val']} == {'dog', 'hen'}


def test_a_canvas_has_objects_of_the_same_size_as_often(stamps):
    rng = np.random.default_rng(0)
    drawn, photographs = objects.sample_stamps(find_stamps(stamps), 'train', rng), objects.read_photographs('train')
    for canvas, count in ((192, 60), (256, 40), (512, 10)):
        options = ObjectOptions(size=(canvas, canvas))
        things = [thing for _ in range(count) for thing in objects.compose(drawn, photographs, options, rng)[1]]
        sides = [max(cv2.boundingRect(thing.mask.astype(np.uint8))[2:]) for thing in things]
        assert min(sides) > 40 and max(sides) <= 104 and abs(np.mean(sides) - 76) < 8
        assert abs(len(things) / count / (canvas / 256) ** 2 - 3) < 0.5


@pytest.mark.parametrize('mirrored', [False, True])
def test_an_object_is_blended_by_its_transparency(stamps, monkeypatch, mirrored):
    """As PIL reduces the same image with premultiplied colours, and puts it on a background."""
    monkeypatch.setattr(objects, 'GAIN', (1, 1))
    monkeypatch.setattr(objects, 'TINT', (1, 1))
    stamp = objects.read_stamp(stamps / 'animals/birds/emu.png')
    stamp = stamp[: stamp.shape[0] // 2 * 2, : stamp.shape[1] // 2 * 2]
    rng = np.random.default_rng(next(seed for seed in range(9) if np.random.default_rng(seed).integers(2) == mirrored))
    colour, cover = objects.draw_stamp(stamp, max(stamp.shape) // 2, rng)
    given = Image.fromarray(stamp[:, :: -1 if mirrored else 1]).convert('RGBa')
    small = given.reduce(2).convert('RGBA')
    behind = np.full((*cover.shape, 3), 90.0)
    ours = behind + cover[..., None] * (colour - behind)
    theirs = Image.alpha_composite(Image.new('RGBA', small.size, (90, 90, 90, 255)), small)
    assert np.abs(ours - np.asarray(theirs)[..., :3]).max() < 3


@pytest.mark.parametrize('kind', ['digits', 'objects'])
def test_the_seed_decides_the_bytes_of_an_image_however_many_there_are(kind, mini, stamps, made, tmp_path):
    of_objects = dict(train=12, val=6, size=(160, 224), stamps=str(stamps))
    make_options, given = (ObjectOptions, of_objects) if kind == 'objects' else (MiniOptions, SMALL)
    make_mini_data(tmp_path / 'more', make_options(**{**given, 'train': 14}))
    make_mini_data(tmp_path / 'other', make_options(**given, seed=1))
    more, other, fewer = (
        digest(tmp_path / 'more'),
        digest(tmp_path / 'other'),
        digest(made if kind == 'objects' else mini),
    )
    lists = [f'coco/annotations/{one}_train2017.json' for one in ('captions', 'instances')]
    assert [name for name in fewer if more[name] != fewer[name]] == [*lists[kind == 'objects' :], MARKER]
    same = [name for name, value in other.items() if fewer.get(name) == value]
    assert same == ['ade/classes.txt', 'coco/annotations/vocabulary.txt'][: 1 + (kind == 'digits')]


def test_its_config_is_tested_on_another_canvas_as_it_is_drawn(made, tmp_path):
    cfg = load(ROOT / 'configs/segmenter/segmenter_deit-mini_1xb16-2000i_mini-objects-ade.py')
    before = cfg.test_dataloader.dataset.pipeline
    reroot(cfg.test_dataloader, 'data/objects/ade', str(made / 'ade'), set())
    assert at_scale(cfg, 1, tmp_path).to_dict() == cfg.to_dict()
    changed = at_scale(cfg, 1.5, tmp_path)
    dataset = changed.test_dataloader.dataset
    assert read_options(Path(dataset.data_root).parent).size == (240, 336) and dataset.pipeline == before
    assert str(made) not in json.dumps(changed.test_dataloader, default=str)
    assert tuple(changed.model.data_preprocessor.size) == (384, 384)


def test_photographs_are_those_of_scikit_learn_and_of_one_split():
    assert not {*objects.PHOTOGRAPHS['train']} & {*objects.PHOTOGRAPHS['val']}
    china = objects.read_photographs('train')[0][..., ::-1]
    np.testing.assert_array_equal(china, sklearn.datasets.load_sample_image('china.jpg'))
