"""Small valid data of each format with their configs, and ways to break and to read what is on disk."""

import hashlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from drawn_data import NAMES, class_folders, coco, maps, shown, write_list
from mmengine import Config
from PIL import Image
from pycocotools.coco import COCO

from mmlape.errors import DataError
from mmlape.lab.datasets.checks import check_data

KEPT = dict(serialize_data=False)
"""Of a dataset: samples as they are, as MMEngine collects garbage wherever it makes bytes of them."""
NUMBERS = {'train': range(4), 'val': range(4, 8)}
LOAD = dict(type='LoadImageFromFile')


def config_of(scope: str, root, dataset, evaluator: dict, **others) -> Config:
    """A config with the dataset that a function of a split returns, whose tests are of the validation data."""
    splits = dict(train='train', val='val', test='val')
    loaders = {f'{split}_dataloader': dict(batch_size=2, dataset=dataset(of)) for split, of in splits.items()}
    evaluators = {f'{split}_evaluator': evaluator for split in ('val', 'test')}
    return Config(dict(default_scope=scope, data_root=str(root), **loaders, **evaluators, **others))


def named(names) -> dict:
    """Options of a dataset with classes of its own."""
    return dict(metainfo=dict(classes=names)) if names else {}


def annotations_of(root: Path, split: str) -> Path:
    return root / 'annotations' / f'instances_{split}2017.json'


def make_coco(root: Path) -> None:
    """Write four images a split, with two objects each; masks are polygons."""
    for split, numbers in NUMBERS.items():
        coco(root, f'annotations/instances_{split}2017.json', f'{split}2017', numbers, True, f'{split}{{}}.png')


def coco_config(root, names=NAMES, count: int = 3) -> Config:
    def dataset(split):
        pipeline = [LOAD, dict(type='LoadAnnotations', with_bbox=True, with_mask=True), dict(type='PackDetInputs')]
        paths = dict(ann_file=f'annotations/instances_{split}2017.json', data_prefix=dict(img=f'{split}2017/'))
        options = dict(paths, data_root=f'{root}/', test_mode=split == 'val', pipeline=pipeline, **KEPT)
        return dict(type='CocoDataset', **options, **named(names))

    file = f'{root}/annotations/instances_val2017.json'
    evaluator = dict(type='mmlape.CocoMetric', ann_file=file, metric=['bbox', 'segm'])
    head = dict(num_classes=count)
    heads = dict(bbox_head=head, mask_head=[dict(head)], semantic_head=dict(num_classes=183))
    backbone = dict(type='mmlape.ViTAdapter')
    model = dict(type='MaskRCNN', backbone=backbone, rpn_head=dict(num_classes=1), roi_head=heads)
    return config_of('mmdet', f'{root}/', dataset, evaluator, model=model)


def make_maps(root: Path) -> None:
    """Write four images a split; the ground has no label, and classes have the ids 1 to 3."""
    for split, numbers in NUMBERS.items():
        maps(
            root, f'images/{split}/{{}}.png', f'labels/{split}/{{}}.png', numbers, ids=lambda number: shown(number) + 1
        )
    write_list(root / 'classes.txt', NAMES)


def maps_config(root, names=NAMES, count: int = 3, **options) -> Config:
    def dataset(split):
        prefix = dict(img_path=f'images/{split}', seg_map_path=f'labels/{split}')
        pipeline = [LOAD, dict(type='LoadAnnotations'), dict(type='PackSegInputs')]
        fixed = dict(type='BaseSegDataset', data_root=str(root), data_prefix=prefix, pipeline=pipeline, **KEPT)
        return dict(fixed, img_suffix='.png', **dict(reduce_zero_label=True, **options), **named(names))

    head = dict(num_classes=count, loss_decode=dict(type='CrossEntropyLoss'))
    backbone = dict(type='mmlape.VisionTransformer', patch_size=16)
    model = dict(backbone=backbone, decode_head=head, auxiliary_head=[dict(num_classes=count)])
    return config_of('mmseg', root, dataset, dict(type='mmlape.IoUMetric', iou_metrics=['mIoU']), model=model)


def make_folders(root: Path) -> None:
    """Write two images of each class and split."""
    class_folders(root, 'train', 'val', count=2, name='{}{}.png')


def folders_config(root, names=NAMES, count: int = 3, **options) -> Config:
    def dataset(split):
        paths = dict(data_root=str(root), data_prefix=split, pipeline=[LOAD, dict(type='PackInputs')], **KEPT)
        return dict(dict(type='CustomDataset', **paths), **options, **named(names))

    head = dict(num_classes=count)
    model = dict(backbone=dict(type='mmlape.VisionTransformer', patch_size=16), head=head)
    return config_of(
        'mmpretrain', root, dataset, dict(type='Accuracy', topk=(1,)), model=model, data_preprocessor=dict(head)
    )


def refusal(cfg, **options):
    with pytest.raises(DataError) as caught:
        check_data(cfg, **options)
    return str(caught.value)


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
