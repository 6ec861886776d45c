"""The quick check on broken mini data: every case is one message that names the file and the fix."""

import shutil

import numpy as np
import pytest
from data_helpers import FOLDERS, ade_cfg, build, coco_cfg, edit, folder_cfg, refusal
from mmengine import Config
from PIL import Image

from mmlape.lab.datasets.checks import check_data
from mmlape.lab.datasets.mini.make import ADE_CLASSES
from mmlape.lab.datasets.mini.scenes import DIGIT_NAMES

# ---------------------------------------------------------------- good data


def test_mini_data_passes_in_every_format(mini):
    coco = check_data(coco_cfg(mini / 'coco'))
    assert [(part.split, part.images) for part in coco] == [('train', 6), ('val', 3)], 'test equals val: checked once'
    assert coco[0].seen == set(range(10)) and not coco[0].sampled
    ade = check_data(ade_cfg(mini / 'ade'))
    assert ade[0].num_classes == 12 and 10 in ade[0].seen | ade[1].seen
    assert check_data(folder_cfg(mini / 'digits'))[0].num_classes == 10
    assert len(check_data(folder_cfg(mini / 'digits', metainfo=dict(classes=FOLDERS)), splits=['val'])) == 1


def test_remote_and_unknown_data_is_skipped():
    assert check_data(coco_cfg('s3://bucket/coco'), splits=['train']) == []
    assert check_data(Config(dict(train_dataloader=dict(dataset=dict(type='mmdet.CityscapesVideo'))))) == []
    for name in ('CocoPanopticDataset', 'LVISV1Dataset', 'Objects365V2Dataset'):
        cfg = coco_cfg('nowhere')
        cfg.train_dataloader.dataset.dataset.type = name
        assert check_data(cfg, splits=['train']) == [], 'it reads JSON of its own'
    cfg.train_dataloader.dataset.dataset.type = 'CityscapesDataset'
    assert 'nowhere' in refusal(cfg, splits=['train'])


def test_missing_mini_data_names_the_command_that_makes_it(tmp_path):
    assert f'"mmlape make-mini-data {tmp_path}/mini"' in refusal(ade_cfg(tmp_path / 'mini' / 'ade'))
    (tmp_path / 'mini').mkdir()
    assert f'"mmlape make-mini-data {tmp_path}/mini --overwrite"' in refusal(ade_cfg(tmp_path / 'mini' / 'ade'))


# ---------------------------------------------------------------- COCO


@pytest.mark.parametrize(
    'name, message',
    [
        ('', 'Data root'),
        ('annotations/instances_train2017.json', 'Annotation file'),
        ('train2017', 'Image directory'),
        ('val2017', 'Image directory'),
    ],
)
def test_coco_missing_path(mini, name, message):
    root = (mini / 'coco').rename(mini / 'own')
    path = root / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    text = refusal(coco_cfg(root))
    assert message in text and str(path) in text and 'cocodataset.org' in text and 'make-mini-data' in text


def test_root_of_all_mini_data_instead_of_one_format(mini):
    assert f'Did you mean --cfg-options data_root={mini}/coco' in refusal(coco_cfg(mini))
    assert f'Did you mean --cfg-options data_root={mini}/ade' in refusal(ade_cfg(mini))


def test_coco_listed_image_is_missing(mini):
    (mini / 'coco' / 'train2017' / '000000000004.jpg').unlink()
    text = refusal(coco_cfg(mini / 'coco'))
    assert '1 of 6 images' in text and '000000000004.jpg' in text


def test_coco_other_categories(mini):
    text = refusal(coco_cfg(mini / 'coco', classes=None, num_classes=80))
    assert 'only in the data: zero, one' in text and 'only in the config: person, bicycle' in text
    assert f'data_root={mini}/coco ' in text
    path = mini / 'coco' / 'annotations' / 'instances_val2017.json'
    edit(path, lambda content: content['categories'][3].update(name='drei'))
    text = refusal(coco_cfg(mini / 'coco'))
    assert str(path) in text and 'only in the data: drei; only in the config: three' in text


def test_coco_classes_in_another_order(mini):
    """MMDetection takes labels in the file's order whatever the config says: names would be exchanged silently."""
    text = refusal(coco_cfg(mini / 'coco', classes=DIGIT_NAMES[::-1]))
    assert 'another order' in text


def test_coco_some_classes_picked_on_purpose(mini):
    cfg = coco_cfg(mini / 'coco', classes=DIGIT_NAMES[2:5], num_classes=3)
    assert check_data(cfg)[0].split == 'train'
    assert build(cfg).metainfo['classes'] == DIGIT_NAMES[2:5]


def test_coco_image_of_another_size_than_annotated(mini):
    path = mini / 'coco' / 'train2017' / '000000000002.jpg'
    Image.new('RGB', (40, 50)).save(path)
    text = refusal(coco_cfg(mini / 'coco'))
    assert f'{path} is 40 x 50' in text and '64 x 64' in text


def test_evaluator_with_a_missing_file(mini):
    cfg = coco_cfg(mini / 'coco')
    cfg.test_evaluator[0].ann_file = '/nowhere/instances.json'
    assert '/nowhere/instances.json of test_evaluator' in refusal(cfg)
    check_data(cfg, splits=['train', 'val'])


# ---------------------------------------------------------------- images, in every format


@pytest.mark.parametrize(
    'damage, reason',
    [
        (lambda data: b'', 'is empty'),
        (lambda data: data[: len(data) // 2], 'truncated'),
        (lambda data: b'<html>404 not found</html>', 'cannot identify'),
    ],
    ids=['empty', 'truncated', 'no image'],
)
@pytest.mark.parametrize('kind', ['coco', 'ade', 'label map', 'digits'])
def test_broken_image(mini, kind, damage, reason):
    path, cfg = {
        'coco': (mini / 'coco/train2017/000000000003.jpg', coco_cfg(mini / 'coco')),
        'ade': (mini / 'ade/images/validation/ADE_val_00000002.jpg', ade_cfg(mini / 'ade')),
        'label map': (mini / 'ade/annotations/training/ADE_train_00000006.png', ade_cfg(mini / 'ade')),
        'digits': (min((mini / 'digits/train/six').iterdir()), folder_cfg(mini / 'digits')),
    }[kind]
    if kind == 'digits':  # a sample of one a class
        for other in set(path.parent.iterdir()) - {path}:
            other.unlink()
    path.write_bytes(damage(path.read_bytes()))
    text = refusal(cfg)
    assert str(path) in text and reason in text


@pytest.mark.parametrize('kind', ['coco', 'ade', 'digits'])
def test_image_smaller_than_a_patch(mini, kind):
    path, cfg = {
        'coco': (mini / 'coco/val2017/000000000001.jpg', coco_cfg(mini / 'coco')),
        'ade': (mini / 'ade/images/training/ADE_train_00000001.jpg', ade_cfg(mini / 'ade')),
        'digits': (min((mini / 'digits/val/one').iterdir()), folder_cfg(mini / 'digits')),
    }[kind]
    Image.new('RGB', (64, 15)).save(path)
    text = refusal(cfg)
    assert f'{path} is 64 x 15' in text and '16 x 16 patch' in text


# ---------------------------------------------------------------- ADE20K


def test_ade_missing_parts(mini):
    root = (mini / 'ade').rename(mini / 'own')
    (root / 'annotations/training/ADE_train_00000004.png').unlink()
    text = refusal(ade_cfg(root))
    assert '1 of 6 images' in text and 'ADE_train_00000004.png' in text and 'ADEChallengeData2016.zip' in text
    shutil.rmtree(root / 'annotations/training')
    assert f'Label map directory {root}/annotations/training' in refusal(ade_cfg(root))
    for path in (root / 'images/training').iterdir():
        path.unlink()
    (root / 'annotations/training').mkdir()
    assert 'has no .jpg images' in refusal(ade_cfg(root))


def test_ade_label_ids_outside_the_classes(mini):
    path = mini / 'ade/annotations/training/ADE_train_00000002.png'
    labels = np.asarray(Image.open(path)).copy()
    labels[:2] = 255
    Image.fromarray(labels).save(path)
    check_data(ade_cfg(mini / 'ade'))
    labels[3, 3], labels[4, 4] = 13, 99
    Image.fromarray(labels).save(path)
    text = refusal(ade_cfg(mini / 'ade'))
    assert str(path) in text and 'id 13, 99' in text and 'ids 1 to 12 are allowed' in text and '0 and 255' in text


def test_ade_label_ids_count_from_zero_without_reduce_zero_label(mini):
    text = refusal(ade_cfg(mini / 'ade', reduce_zero_label=False))
    assert 'id 12' in text and 'ids 0 to 11 are allowed' in text


def test_ade_label_map_of_wrong_form(mini):
    path = mini / 'ade/annotations/training/ADE_train_00000001.png'
    image = Image.open(path)
    image.convert('RGB').save(path)
    assert f'{path} has 3 channels' in refusal(ade_cfg(mini / 'ade'))
    image.resize((32, 48)).save(path)
    assert f'{path} is 32 x 48' in refusal(ade_cfg(mini / 'ade'))


def test_ade_classes(mini):
    text = refusal(ade_cfg(mini / 'ade', type='ADE20KDataset', num_classes=150))
    assert 'classes.txt' in text and 'only in the data: zero' in text and 'only in the config: wall' in text
    text = refusal(ade_cfg(mini / 'ade', type='ADE20KDataset', metainfo=dict(classes=ADE_CLASSES)))
    assert 'BaseSegDataset' in text and 'zero' in text


# ---------------------------------------------------------------- ImageNet's format


def test_folder_format(mini):
    root = mini / 'digits'
    assert 'another order' in refusal(folder_cfg(root, metainfo=dict(classes=DIGIT_NAMES)))
    assert 'only in the config' in refusal(folder_cfg(root, type='ImageNet', num_classes=1000))
    for path in (root / 'train/two').iterdir():
        path.unlink()
    assert f'{root}/train/two has no images' in refusal(folder_cfg(root))
    shutil.rmtree(root / 'val')
    assert f'{root}/val' in refusal(folder_cfg(root), splits=['val'])


def test_folder_list(mini):
    root = mini / 'digits'
    names = sorted(path.relative_to(root).as_posix() for path in (root / 'train').rglob('*.png'))
    lines = [f'{name} {FOLDERS.index(name.split("/")[1])}' for name in names]
    (root / 'list.txt').write_text('\n'.join(lines))
    cfg = folder_cfg(root, metainfo=dict(classes=FOLDERS), ann_file='list.txt', data_prefix='')
    assert check_data(cfg)[0].images == len(names) and len(check_data(cfg)[0].seen) == 10
    (root / 'list.txt').write_text('\n'.join(line for line in lines if line.endswith((' 3', ' 5'))))
    assert check_data(cfg)[0].seen == {3, 5}
    (root / 'an image.png').write_bytes((root / names[0]).read_bytes())
    (root / 'list.txt').write_text(f'an image.png 4\n{lines[0]}')
    assert check_data(cfg)[0].seen == {4, int(lines[0][-1])}
    (root / 'an image.png').unlink()
    (root / 'list.txt').write_text('\n'.join([*lines[:7], f'{names[0]} 10']))
    assert 'line 8: label 10 is outside the 10 classes' in refusal(cfg)
    (root / 'list.txt').write_text(names[0])
    assert 'line 1' in refusal(cfg)
    cfg = folder_cfg(root, ann_file='list.txt', data_prefix='', with_label=False)
    assert check_data(cfg)[0].images == 1
    (root / 'list.txt').write_text(f'{names[0]}\nnowhere.png')
    assert 'nowhere.png' in refusal(cfg)


# ---------------------------------------------------------------- heads


def test_heads_that_differ_from_the_data(mini):
    text = refusal(coco_cfg(mini / 'coco', num_classes=80))
    assert 'model.roi_head.bbox_head.num_classes is 80' in text and 'has 10 classes' in text
    cfg = coco_cfg(mini / 'coco')
    cfg.model.panoptic_head = dict(num_things_classes=80, num_stuff_classes=0)
    assert 'model.panoptic_head.num_things_classes is 80' in refusal(cfg)
    cfg.model.panoptic_head.num_stuff_classes = 53
    check_data(cfg)
    cfg = ade_cfg(mini / 'ade')
    cfg.model.auxiliary_head[0].num_classes = 150
    assert 'model.auxiliary_head[0].num_classes is 150' in refusal(cfg)
    cfg = folder_cfg(mini / 'digits')
    cfg.data_preprocessor.num_classes = 1000
    assert 'data_preprocessor.num_classes is 1000' in refusal(cfg)
