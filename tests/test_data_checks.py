"""The quick check on broken mini data: every case is one message that names the file and the fix."""

import itertools
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from mmengine import Config
from PIL import Image

from mmlape.datasets.checks.base import DatasetCheck, ImageEntry
from mmlape.datasets.checks.config import CHECKS
from mmlape.datasets.checks.full import full_check
from mmlape.datasets.checks.issues import WARNING, DataIssue
from mmlape.datasets.checks.quick import check_data
from mmlape.datasets.coco_file import read_coco
from mmlape.datasets.formats import FORMATS
from mmlape.datasets.heads import patch_size
from mmlape.datasets.image_files import looks_truncated
from mmlape.datasets.mini.make import MiniOptions, make_mini_data
from mmlape.datasets.mini.scenes import DIGIT_NAMES
from mmlape.datasets.mini.writers import ADE_CLASSES
from mmlape.datasets.retarget import retarget_data
from mmlape.datasets.sources import DataSource, read_lines
from mmlape.datasets.transforms import guard_loading
from mmlape.errors import ConfigError, DataError
from mmlape.registry import DATASETS, TRANSFORMS

FOLDERS = tuple(sorted(DIGIT_NAMES))


@pytest.fixture(scope='module')
def pristine(tmp_path_factory):
    root = tmp_path_factory.mktemp('data') / 'mini'
    make_mini_data(root, MiniOptions(train=6, val=3, digits=50, size=(64, 64), digit_size=(20, 30), objects=(3, 5)))
    return root


@pytest.fixture
def mini(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / 'mini')


def coco_cfg(root, classes=DIGIT_NAMES, num_classes=10):
    def dataset(split):
        return dict(
            type='CocoDataset',
            data_root=f'{root}/',
            ann_file=f'annotations/instances_{split}2017.json',
            data_prefix=dict(img=f'{split}2017/'),
            pipeline=[dict(type='LoadImageFromFile'), dict(type='LoadAnnotations', with_bbox=True, with_mask=True)],
            **(dict(metainfo=dict(classes=classes)) if classes else {}),
        )

    val = dict(batch_size=1, dataset=dict(dataset('val'), test_mode=True))
    evaluator = dict(type='CocoMetric', ann_file=f'{root}/annotations/instances_val2017.json')
    return Config(
        dict(
            default_scope='mmdet',
            data_root=f'{root}/',
            train_dataloader=dict(batch_size=1, dataset=dict(type='RepeatDataset', times=2, dataset=dataset('train'))),
            val_dataloader=val,
            test_dataloader=val,
            val_evaluator=evaluator,
            test_evaluator=[evaluator],
            model=dict(
                type='MaskRCNN',
                backbone=dict(type='mmlape.ViTAdapter'),
                rpn_head=dict(num_classes=1),
                roi_head=dict(bbox_head=dict(num_classes=num_classes), mask_head=[dict(num_classes=num_classes)]),
            ),
        )
    )


def ade_cfg(root, type='BaseSegDataset', num_classes=12, **options):
    if type == 'BaseSegDataset':
        options = dict(dict(metainfo=dict(classes=ADE_CLASSES), reduce_zero_label=True), **options)

    def loader(split):
        return dict(
            batch_size=2,
            dataset=dict(
                type=type,
                data_root=str(root),
                data_prefix=dict(img_path=f'images/{split}', seg_map_path=f'annotations/{split}'),
                pipeline=[dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')],
                **options,
            ),
        )

    return Config(
        dict(
            default_scope='mmseg',
            data_root=str(root),
            train_dataloader=loader('training'),
            val_dataloader=loader('validation'),
            test_dataloader=loader('validation'),
            val_evaluator=dict(type='IoUMetric'),
            model=dict(
                backbone=dict(type='mmlape.VisionTransformer', patch_size=16),
                decode_head=dict(num_classes=num_classes),
                auxiliary_head=[dict(num_classes=num_classes)],
            ),
        )
    )


def folder_cfg(root, type='CustomDataset', num_classes=10, **options):
    def loader(split):
        dataset = dict(type=type, data_root=str(root), data_prefix=split, pipeline=[dict(type='LoadImageFromFile')])
        return dict(batch_size=2, dataset=dict(dataset, **options))

    return Config(
        dict(
            default_scope='mmpretrain',
            data_root=str(root),
            train_dataloader=loader('train'),
            val_dataloader=loader('val'),
            data_preprocessor=dict(num_classes=num_classes),
            model=dict(backbone=dict(type='VisionTransformer'), head=dict(num_classes=num_classes)),
        )
    )


def refusal(cfg, **options):
    with pytest.raises(DataError) as caught:
        check_data(cfg, **options)
    return str(caught.value)


class Silent:
    """A progress display that shows nothing."""

    def start(self, description, total):
        pass

    def advance(self):
        pass


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def build(cfg, split='train'):
    """The dataset of a config as the MM packages build it."""
    import mmseg.datasets  # noqa: F401
    from mmengine import registry

    registry.init_default_scope(cfg.default_scope)
    return registry.DATASETS.build(cfg[f'{split}_dataloader'].dataset)


# ---------------------------------------------------------------- good data


def test_mini_data_passes_in_every_layout(mini):
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


def test_root_of_all_mini_data_instead_of_one_layout(mini):
    assert f'Did you mean --cfg-options data_root={mini}/coco' in refusal(coco_cfg(mini))
    assert f'Did you mean --cfg-options data_root={mini}/ade' in refusal(ade_cfg(mini))


@pytest.mark.parametrize('content', ['', '[1, 2', '{"images": [], "annotations": [', 'PK\x03\x04', '[]', '{}'])
def test_coco_annotations_that_are_not_coco(mini, content):
    path = mini / 'coco' / 'annotations' / 'instances_val2017.json'
    path.write_text(content)
    assert str(path) in refusal(coco_cfg(mini / 'coco'))


def test_a_sample_of_a_coco_file_agrees_with_the_complete_file(mini):
    path = mini / 'coco' / 'annotations' / 'instances_train2017.json'
    full, part = read_coco(path), read_coco(path, full_read_bytes=0)
    assert part.class_names == full.class_names and part.images == full.images and part.annotations is None
    assert part.first_annotations == full.annotations and not full.first_annotations
    path.write_text(json.dumps(json.loads(path.read_text()), indent=2, sort_keys=True))
    assert read_coco(path, full_read_bytes=0).categories == full.categories
    edit(path, lambda content: content.pop('categories'))
    with pytest.raises(DataError, match='no list "categories"'):
        read_coco(path, full_read_bytes=0)
    path.write_text(path.read_text()[:-40])
    with pytest.raises(DataError, match='truncated'):
        read_coco(path, full_read_bytes=0)


@pytest.mark.parametrize(
    'damage, message',
    [
        (lambda c: c['images'][0].update(file_name=5), 'an invalid "file_name" in "images"'),
        (lambda c: c['images'][0].update(width=None), 'an invalid "width" in "images"'),
        (lambda c: c['categories'][0].update(id=[1]), 'an invalid "id" in "categories"'),
        (lambda c: c['images'][0].pop('height'), 'without "height" in "images"'),
        (lambda c: c['annotations'].insert(0, None), 'not an object in "annotations"'),
        (lambda c: c['annotations'][0].update(image_id={}), 'an invalid "image_id" in "annotations"'),
        (lambda c: c.update(annotations=None), 'no list "annotations"'),
    ],
)
def test_coco_entries_that_are_not_cocos(mini, damage, message):
    path = mini / 'coco' / 'annotations' / 'instances_train2017.json'
    edit(path, damage)
    with pytest.raises(DataError) as error:
        read_coco(path)
    assert message in str(error.value) and str(path) in str(error.value)


def test_annotations_of_a_big_coco_file_are_sampled(mini, monkeypatch):
    import mmlape.datasets.checks.coco as coco_check

    monkeypatch.setattr(coco_check, 'FULL_READ_BYTES', 0)
    summary = check_data(coco_cfg(mini / 'coco'))[0]
    assert summary.sampled and summary.seen == set(range(10)) and summary.images is None
    path = mini / 'coco' / 'annotations' / 'instances_train2017.json'
    edit(path, lambda content: content['annotations'][2].update(category_id=99))
    assert 'category_id 99' in refusal(coco_cfg(mini / 'coco'))


def test_coco_without_images_or_annotations(mini):
    path = mini / 'coco' / 'annotations' / 'instances_train2017.json'
    edit(path, lambda content: content.update(annotations=[]))
    assert 'no annotations to train on' in refusal(coco_cfg(mini / 'coco'))
    edit(path, lambda content: content.pop('annotations'))
    assert 'no annotations to train on' in refusal(coco_cfg(mini / 'coco'))
    edit(path, lambda content: content.update(images=[]))
    assert 'lists no images' in refusal(coco_cfg(mini / 'coco'))


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


def test_coco_two_categories_of_one_name(mini):
    path = mini / 'coco' / 'annotations' / 'instances_train2017.json'
    edit(path, lambda content: content['categories'][3].update(name='two'))
    assert 'more than one category named two' in refusal(coco_cfg(mini / 'coco'))


def test_coco_annotation_of_no_category(mini):
    path = mini / 'coco' / 'annotations' / 'instances_train2017.json'
    edit(path, lambda content: content['annotations'][5].update(category_id=77))
    text = refusal(coco_cfg(mini / 'coco'))
    assert str(path) in text and 'annotation 6 ' in text and 'category_id 77' in text and '1, 2, 3' in text


def test_coco_annotation_without_mask(mini):
    path = mini / 'coco' / 'annotations' / 'instances_train2017.json'
    edit(path, lambda content: content['annotations'][2].pop('segmentation'))
    assert 'annotation 3 has no segmentation' in refusal(coco_cfg(mini / 'coco'))


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
@pytest.mark.parametrize('layout', ['coco', 'ade', 'label map', 'digits'])
def test_broken_image(mini, layout, damage, reason):
    path, cfg = {
        'coco': (mini / 'coco/train2017/000000000003.jpg', coco_cfg(mini / 'coco')),
        'ade': (mini / 'ade/images/validation/ADE_val_00000002.jpg', ade_cfg(mini / 'ade')),
        'label map': (mini / 'ade/annotations/training/ADE_train_00000006.png', ade_cfg(mini / 'ade')),
        'digits': (min((mini / 'digits/train/six').iterdir()), folder_cfg(mini / 'digits')),
    }[layout]
    if layout == 'digits':  # a sample of one a class
        for other in set(path.parent.iterdir()) - {path}:
            other.unlink()
    path.write_bytes(damage(path.read_bytes()))
    text = refusal(cfg)
    assert str(path) in text and reason in text


@pytest.mark.parametrize('layout', ['coco', 'ade', 'digits'])
def test_image_smaller_than_a_patch(mini, layout):
    path, cfg = {
        'coco': (mini / 'coco/val2017/000000000001.jpg', coco_cfg(mini / 'coco')),
        'ade': (mini / 'ade/images/training/ADE_train_00000001.jpg', ade_cfg(mini / 'ade')),
        'digits': (min((mini / 'digits/val/one').iterdir()), folder_cfg(mini / 'digits')),
    }[layout]
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


# ---------------------------------------------------------------- ImageNet layout


def test_folder_layout(mini):
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
    (root / 'list.txt').write_text('\n'.join([*lines[:7], f'{names[0]} 10']))
    assert 'line 8: label 10 is outside the 10 classes' in refusal(cfg)
    (root / 'list.txt').write_text(names[0])
    assert 'line 1' in refusal(cfg)


# ---------------------------------------------------------------- heads


def test_heads_that_differ_from_the_data(mini):
    text = refusal(coco_cfg(mini / 'coco', num_classes=80))
    assert 'model.roi_head.bbox_head.num_classes is 80' in text and 'has 10 classes' in text
    cfg = ade_cfg(mini / 'ade')
    cfg.model.auxiliary_head[0].num_classes = 150
    assert 'model.auxiliary_head[0].num_classes is 150' in refusal(cfg)
    cfg = folder_cfg(mini / 'digits')
    cfg.data_preprocessor.num_classes = 1000
    assert 'data_preprocessor.num_classes is 1000' in refusal(cfg)


# ---------------------------------------------------------------- other data for a config


def test_retarget_coco(mini):
    cfg = coco_cfg('data/coco', classes=None, num_classes=80)
    changes = '\n'.join(retarget_data(cfg, mini / 'coco'))
    assert 'roi_head.bbox_head.num_classes: 80 -> 10' in changes and f'data/coco -> {mini}/coco' in changes
    assert cfg.model.roi_head.mask_head[0].num_classes == 10 and cfg.model.rpn_head.num_classes == 1
    assert cfg.val_evaluator.ann_file == cfg.test_evaluator[0].ann_file
    assert cfg.val_evaluator.ann_file == f'{mini}/coco/annotations/instances_val2017.json'
    check_data(cfg)
    dataset = build(cfg)
    assert dataset.metainfo['classes'] == DIGIT_NAMES and len(dataset) == 12
    assert len(dataset.metainfo['palette']) == 10


def test_retarget_keeps_the_order_of_the_file(mini):
    for split in ('train', 'val'):
        path = mini / f'coco/annotations/instances_{split}2017.json'
        edit(path, lambda content: content['categories'].reverse())
    cfg = coco_cfg('data/coco')
    retarget_data(cfg, mini / 'coco')
    check_data(cfg)
    dataset = build(cfg).dataset
    assert dataset.metainfo['classes'] == DIGIT_NAMES[::-1]
    labels = [instance['bbox_label'] for instance in dataset.get_data_info(0)['instances']]
    stored = json.loads((mini / 'coco/annotations/instances_train2017.json').read_text())['annotations']
    assert labels == [10 - entry['category_id'] for entry in stored if entry['image_id'] == 1]


def test_retarget_below_the_old_root_moves_once(mini):
    cfg = coco_cfg(mini)
    dict.__setitem__(cfg._cfg_dict, 'test_dataloader', cfg.val_dataloader)  # one object under two names
    assert cfg.test_dataloader is cfg.val_dataloader
    retarget_data(cfg, f'{mini}/coco/')
    assert cfg.data_root == cfg.test_dataloader.dataset.data_root.rstrip('/') == f'{mini}/coco'
    check_data(cfg)


def test_retarget_ade(mini):
    cfg = ade_cfg('data/ade', type='mmseg.ADE20KDataset', num_classes=150)
    retarget_data(cfg, mini / 'ade')
    assert cfg.model.decode_head.num_classes == cfg.model.auxiliary_head[0].num_classes == 12
    check_data(cfg)
    dataset = build(cfg)
    assert dataset.metainfo['classes'] == ADE_CLASSES and dataset.reduce_zero_label
    labels = dataset[0]['gt_seg_map']
    stored = np.asarray(Image.open(mini / 'ade/annotations/training/ADE_train_00000001.png'))
    np.testing.assert_array_equal(labels, np.where(stored == 0, 255, stored - 1))


def test_retarget_ade_without_class_list_keeps_the_config(mini):
    (mini / 'ade/classes.txt').unlink()
    cfg = ade_cfg('data/ade', type='ADE20KDataset', num_classes=150)
    assert len(retarget_data(cfg, mini / 'ade')) == 1
    assert cfg.model.decode_head.num_classes == 150 and cfg.train_dataloader.dataset.type == 'ADE20KDataset'


def test_retarget_folders(mini):
    cfg = folder_cfg('data/imagenet', type='ImageNet', num_classes=1000)
    retarget_data(cfg, mini / 'digits')
    assert cfg.model.head.num_classes == cfg.data_preprocessor.num_classes == 10
    check_data(cfg)
    assert build(cfg, 'val').metainfo['classes'] == FOLDERS


def test_a_top_k_that_few_classes_cannot_have_is_left_out(tmp_path):
    for split, name in itertools.product(('train', 'val'), ('cat', 'dog')):
        (tmp_path / split / name).mkdir(parents=True)
    cfg = folder_cfg('data/imagenet', type='ImageNet', num_classes=1000)
    cfg.val_evaluator = dict(type='Accuracy', topk=(1, 5))
    assert 'val_evaluator.topk: (1, 5) -> (1,)' in retarget_data(cfg, tmp_path)
    assert cfg.val_evaluator.topk == (1,)


def test_retarget_refusals(mini, tmp_path):
    with pytest.raises(DataError, match='nowhere does not exist'):
        retarget_data(coco_cfg('data/coco'), tmp_path / 'nowhere')
    with pytest.raises(ConfigError, match='no variable data_root'):
        retarget_data(Config(dict(model=dict())), mini)
    cfg = coco_cfg('data/coco')
    cfg.data_root = 'elsewhere'
    with pytest.raises(ConfigError, match='below its data_root elsewhere'):
        retarget_data(cfg, mini / 'coco')
    edit(mini / 'coco/annotations/instances_val2017.json', lambda content: content['categories'].pop())
    with pytest.raises(DataError, match="train and val data .* different classes: \\['nine'\\]"):
        retarget_data(coco_cfg('data/coco'), mini / 'coco')


# ---------------------------------------------------------------- a format of one's own


@DATASETS.register_module()
class ListedImages:
    """A dataset of a format that the package does not know: a text file of image names."""

    METAINFO = dict(classes=('grey',))


class ListSource(DataSource):
    instructions = 'write images.txt'

    def read_classes(self):
        return ('grey', 'white')


class ListCheck(DatasetCheck):
    def check_structure(self):
        self.require(self.source.ann_file, 'List', os.path.isfile)
        yield from self.match_classes(self.source.read_classes(), self.source.ann_file)
        self.entries = [ImageEntry(os.path.join(self.source.root, name)) for name in read_lines(self.source.ann_file)]

    def check_annotation(self, entry, size, facts):
        if size[0] != size[1]:
            facts.issues.append(DataIssue(WARNING, 'not square', f'{entry.path} is not square.'))


def test_a_format_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setitem(FORMATS, 'ListedImages', ListSource)
    monkeypatch.setitem(CHECKS, ListSource, ListCheck)
    dataset = dict(type='mmlape.ListedImages', data_root='data', ann_file='images.txt')
    model = dict(head=dict(num_classes=1))
    cfg = Config(dict(data_root='data', train_dataloader=dict(dataset=dataset), model=model))
    assert 'List data/images.txt' in refusal(cfg) and 'write images.txt' in refusal(cfg)
    (tmp_path / 'images.txt').write_text('a.png\nb.png\n')
    for name, size in (('a.png', (20, 20)), ('b.png', (20, 30))):
        Image.new('RGB', size).save(tmp_path / name)
    assert 'model.head.num_classes: 1 -> 2' in retarget_data(cfg, tmp_path)
    assert [summary.num_classes for summary in check_data(cfg)] == [2]
    report = full_check(cfg, ['train'], Silent())
    assert [(group.kind, group.count) for group in report.issues] == [('not square', 1)] and report.checked == [2]
    (tmp_path / 'a.png').write_bytes(b'no image')
    assert str(tmp_path / 'a.png') in refusal(cfg)


def test_patch_size_is_the_backbones_own():
    for backbone, size in (
        (dict(type='mmlape.VisionTransformer', patch_size=8), 8),
        (dict(type='mmlape.ViTAdapter'), 16),
        (dict(type='mmpretrain.VisionTransformer', patch_size=(4, 2)), 4),
        (dict(type='mmpretrain.ResNet', depth=50), 1),
        ({}, 1),
    ):
        assert patch_size(Config(dict(model=dict(backbone=backbone)))) == size


# ---------------------------------------------------------------- loading while training


@pytest.mark.parametrize('damage', [lambda data: b'', lambda data: data[:-900], lambda data: b'no image'])
def test_loading_names_the_broken_image(mini, damage):
    path = mini / 'coco/train2017/000000000001.jpg'
    load = TRANSFORMS.build(dict(type='mmlape.LoadImageFromFile', smallest=16))
    assert load(dict(img_path=str(path)))['img'].shape == (64, 64, 3)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match='000000000001.jpg'):
        load(dict(img_path=str(path)))
    with pytest.raises(DataError, match='nowhere.jpg does not exist'):
        load(dict(img_path='nowhere.jpg'))
    Image.new('RGB', (15, 40)).save(path)
    with pytest.raises(DataError, match='15 x 40'):
        load(dict(img_path=str(path)))


def test_truncated_files_are_recognised_by_their_end(mini):
    """OpenCV 4 fills the missing part with grey, without a warning."""
    for path in (mini / 'coco/train2017/000000000001.jpg', min((mini / 'digits/val/one').iterdir())):
        data = path.read_bytes()
        assert not looks_truncated(str(path))
        path.write_bytes(data + b' made by a camera')
        assert not looks_truncated(str(path))
        path.write_bytes(data[:-300])
        assert looks_truncated(str(path))


@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize('what', ['image', 'label map', 'label id'])
def test_guarded_loading_names_the_file_from_a_worker(mini, workers, what):
    from torch.utils.data import DataLoader

    image, label_map = (
        mini / 'ade/images/training/ADE_train_00000005.jpg',
        mini / 'ade/annotations/training/ADE_train_00000005.png',
    )
    cfg = ade_cfg(mini / 'ade')
    guard_loading(cfg)
    loader = DataLoader(build(cfg), batch_size=2, num_workers=workers, collate_fn=len)
    assert sum(loader) == 6
    if what == 'image':
        image.write_bytes(image.read_bytes()[:600])
    elif what == 'label map':
        label_map.write_bytes(b'\x89PNG')
    else:
        labels = np.asarray(Image.open(label_map)).copy()
        labels[0, 0] = 40
        Image.fromarray(labels).save(label_map)
    with pytest.raises(DataError) as caught:
        sum(loader)
    text = str(caught.value)
    assert str(image if what == 'image' else label_map) in text and 'Traceback' not in text and '\n' not in text
    assert what != 'label id' or ('id 40,' in text and 'ids 1 to 12' in text)


def test_guarded_loading_changes_nothing_for_good_data(mini):
    for cfg in (coco_cfg(mini / 'coco'), ade_cfg(mini / 'ade'), folder_cfg(mini / 'digits')):
        plain = build(cfg)[1]
        guard_loading(cfg)
        guard_loading(cfg)
        guarded = build(cfg)[1]
        assert plain.keys() == guarded.keys()
        np.testing.assert_array_equal(plain['img'], guarded['img'])
        for key in ('gt_seg_map', 'gt_bboxes_labels', 'gt_label'):
            np.testing.assert_array_equal(plain.get(key), guarded.get(key))


def test_mini_data_needs_no_torch():
    code = "import sys, mmlape.datasets.mini.make; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, '-c', code]).returncode == 0
