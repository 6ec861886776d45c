"""Scenes of objects: blended, split by object, of one size and density on every canvas."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import sklearn.datasets
from config_helpers import ROOT, load
from data_helpers import coco_of, digest, scenes_of
from PIL import Image

from mmlape.lab.datasets.mini import objects
from mmlape.lab.datasets.mini.make import make_mini_data, read_options
from mmlape.lab.datasets.mini.objects import CLASSES, FOLDERS, ObjectOptions, divide_stamps, find_stamps
from mmlape.lab.datasets.retarget import reroot
from mmlape.projects.size_sweep.sweep import at_scale

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
    for canvas, scenes in ((192, 60), (256, 40), (512, 10)):
        options = ObjectOptions(size=(canvas, canvas))
        things = [thing for _ in range(scenes) for thing in objects.compose(drawn, photographs, options, rng)[1]]
        sides = [max(cv2.boundingRect(thing.mask.astype(np.uint8))[2:]) for thing in things]
        assert min(sides) > 40 and max(sides) <= 104 and abs(np.mean(sides) - 76) < 8
        assert abs(len(things) / scenes / (canvas / 256) ** 2 - 3) < 0.5


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


def test_a_seed_and_the_number_of_scenes_decide_the_bytes(stamps, made, tmp_path):
    options = dict(val=6, size=(160, 224), stamps=str(stamps))
    make_mini_data(tmp_path / 'more', ObjectOptions(train=14, **options))
    make_mini_data(tmp_path / 'other', ObjectOptions(train=12, seed=1, **options))
    more, other, fewer = digest(tmp_path / 'more'), digest(tmp_path / 'other'), digest(made)
    images = [name for name in fewer if name.endswith(('.jpg', '.png'))]
    assert images and all(more[name] == fewer[name] for name in images)
    assert [name for name in fewer if other[name] == fewer[name]] == ['ade/classes.txt']


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
