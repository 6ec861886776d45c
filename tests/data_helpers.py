"""Configs of the mini data in each format, and ways to break and to read it."""

import json

import pytest
from mmengine import Config

from mmlape.errors import DataError
from mmlape.lab.datasets.checks import check_data
from mmlape.lab.datasets.mini.make import ADE_CLASSES
from mmlape.lab.datasets.mini.scenes import DIGIT_NAMES

FOLDERS = tuple(sorted(DIGIT_NAMES))


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
                roi_head=dict(
                    bbox_head=dict(num_classes=num_classes),
                    mask_head=[dict(num_classes=num_classes)],
                    semantic_head=dict(num_classes=183),
                ),
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
