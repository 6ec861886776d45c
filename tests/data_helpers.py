"""Configs of the mini data in each format, and ways to break and to read it."""

import hashlib
import json

import cv2
import numpy as np
import pytest
from mmengine import Config
from PIL import Image
from pycocotools.coco import COCO

from mmlape.errors import DataError
from mmlape.lab.datasets.checks import check_data
from mmlape.lab.datasets.mini.make import ADE_CLASSES
from mmlape.lab.datasets.mini.scenes import DIGIT_NAMES

FOLDERS = tuple(sorted(DIGIT_NAMES))


KEPT = dict(serialize_data=False)
"""Of a dataset: samples as they are, as MMEngine collects garbage wherever it makes bytes of them."""


def config_of(scope: str, root, dataset, evaluator: dict, **others) -> Config:
    """A config with the dataset that a function of a split returns, whose tests are of the validation data."""
    splits = dict(train='train', val='val', test='val')
    loaders = {f'{split}_dataloader': dict(batch_size=2, dataset=dataset(of)) for split, of in splits.items()}
    evaluators = {f'{split}_evaluator': evaluator for split in ('val', 'test')}
    return Config(dict(default_scope=scope, data_root=str(root), **loaders, **evaluators, **others))


def coco_dataset(root, split: str, *more: dict, **options) -> dict:
    """A dataset of COCO's layout, whose pipeline loads images, boxes and masks."""
    load = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations', with_bbox=True, with_mask=True), *more]
    return dict(
        type='CocoDataset',
        data_root=f'{root}/',
        ann_file=f'annotations/instances_{split}2017.json',
        data_prefix=dict(img=f'{split}2017/'),
        test_mode=split == 'val',
        pipeline=load,
        **KEPT,
        **options,
    )


def coco_cfg(root, classes=DIGIT_NAMES, num_classes=10):
    named = dict(metainfo=dict(classes=classes)) if classes else {}

    def dataset(split):
        one = coco_dataset(root, split, **named)
        return dict(type='RepeatDataset', times=2, dataset=one) if split == 'train' else one

    evaluator = dict(type='CocoMetric', ann_file=f'{root}/annotations/instances_val2017.json')
    heads = dict(
        bbox_head=dict(num_classes=num_classes),
        mask_head=[dict(num_classes=num_classes)],
        semantic_head=dict(num_classes=183),
    )
    backbone = dict(type='mmlape.ViTAdapter')
    model = dict(type='MaskRCNN', backbone=backbone, rpn_head=dict(num_classes=1), roi_head=heads)
    cfg = config_of('mmdet', f'{root}/', dataset, evaluator, model=model)
    cfg.test_evaluator = [evaluator]
    return cfg


def seg_dataset(root, prefix: dict, *more: dict, **options) -> dict:
    """A dataset of images and label maps."""
    load = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), *more]
    fixed = dict(type='BaseSegDataset', data_root=str(root), data_prefix=prefix, pipeline=load, **KEPT)
    return dict(fixed, **options)


def ade_cfg(root, type='BaseSegDataset', num_classes=12, **options):
    if type == 'BaseSegDataset':
        options = dict(dict(metainfo=dict(classes=ADE_CLASSES), reduce_zero_label=True), **options)

    def dataset(split):
        folder = dict(train='training', val='validation')[split]
        prefix = dict(img_path=f'images/{folder}', seg_map_path=f'annotations/{folder}')
        return seg_dataset(root, prefix, type=type, **options)

    head, backbone = dict(num_classes=num_classes), dict(type='mmlape.VisionTransformer', patch_size=16)
    model = dict(backbone=backbone, decode_head=head, auxiliary_head=[head])
    return config_of('mmseg', root, dataset, dict(type='IoUMetric'), model=model)


def folder_dataset(root, split: str, *more: dict, **options) -> dict:
    """A dataset of a folder for each class."""
    load = [dict(type='LoadImageFromFile'), *more]
    return dict(dict(type='CustomDataset', data_root=str(root), data_prefix=split, pipeline=load, **KEPT), **options)


def folder_cfg(root, type='CustomDataset', num_classes=10, **options):
    def dataset(split):
        return folder_dataset(root, split, type=type, **options)

    head = dict(num_classes=num_classes)
    model = dict(backbone=dict(type='VisionTransformer'), head=head)
    return config_of('mmpretrain', root, dataset, dict(type='Accuracy'), model=model, data_preprocessor=head)


def refusal(cfg, **options):
    with pytest.raises(DataError) as caught:
        check_data(cfg, **options)
    return str(caught.value)


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


def digest(root) -> dict[str, str]:
    """The hash of each file below a folder."""
    files = sorted(path for path in root.rglob('*') if path.is_file())
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def coco_of(root, split):
    return COCO(root / 'coco' / 'annotations' / f'instances_{split}2017.json')


def scenes_of(root, split, classes: int, border: int):
    """Yield record, objects and the labels around them of each scene, which both layouts have alike."""
    coco, folder = coco_of(root, split), dict(train='training', val='validation')[split]
    maps = sorted((root / 'ade' / 'annotations' / folder).glob('*.png'))
    for record, path in zip(coco.loadImgs(coco.getImgIds()), maps, strict=True):
        file = root / 'coco' / f'{split}2017' / record['file_name']
        assert file.read_bytes() == (root / 'ade' / 'images' / folder / f'{path.stem}.jpg').read_bytes()
        assert cv2.imread(str(file)).shape == (record['height'], record['width'], 3)
        labels, objects = np.asarray(Image.open(path)), coco.loadAnns(coco.getAnnIds([record['id']]))
        painted = np.zeros(labels.shape, np.uint8)
        for one in objects:
            mask = coco.annToMask(one).astype(bool)
            assert not painted[mask].any(), 'objects do not overlap'
            painted[mask] = one['category_id']
            rows, cols = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
            box = [cols[0], rows[0], cols[-1] - cols[0] + 1, rows[-1] - rows[0] + 1]
            assert (one['bbox'], one['area'], one['iscrowd']) == (box, mask.sum(), 0)
        np.testing.assert_array_equal(np.where(labels <= classes, labels, 0), painted)
        near = cv2.dilate(painted, np.ones((2 * border + 1,) * 2)) > 0
        assert not labels[near & (painted == 0)].any() and (near & (painted == 0)).any(), 'an unlabelled border'
        yield record, objects, labels[~near]
