"""What becomes of COCO data with one change each: see contract.py."""

import json
from pathlib import Path

import numpy as np
import torch
from contract import CLASSES, Case, Kind, Perfect, Refused, Warned, edit_json, hold, pixels_of, scene, seen
from each import each
from mmengine import Config
from mmengine.structures import InstanceData
from pycocotools import mask as rle
from scipy import ndimage

# ---------------------------------------------------------------- the data and its perfect model


def make(root: Path) -> None:
    """Write four images a split, with two objects each; masks are polygons."""
    (root / 'annotations').mkdir(parents=True)
    for split in ('train', 'val'):
        (root / split).mkdir()
        images, annotations = [], []
        for index in range(4):
            image, objects = scene(index + 4 * (split == 'val'))
            image.save(root / split / f'{index}.png')
            images.append(dict(id=index + 1, file_name=f'{index}.png', width=image.width, height=image.height))
            for label, x, y, w, h in objects:
                outline = [x, y, x + w / 2, y, x + w / 2, y + h / 2, x + w, y + h / 2, x + w, y + h, x, y + h]
                annotations.append(
                    dict(
                        id=len(annotations) + 1,
                        image_id=index + 1,
                        category_id=label + 1,
                        bbox=[x, y, w, h],
                        area=w * h * 0.75,
                        iscrowd=0,
                        segmentation=[outline],
                    )
                )
        categories = [dict(id=label + 1, name=name) for label, name in enumerate(CLASSES)]
        content = dict(images=images, annotations=annotations, categories=categories)
        (root / 'annotations' / f'{split}.json').write_text(json.dumps(content))


def config(root: Path) -> Config:
    def loader(split):
        annotations = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
        return dict(
            batch_size=2,
            dataset=dict(
                type='CocoDataset',
                data_root=f'{root}/',
                ann_file=f'annotations/{split}.json',
                data_prefix=dict(img=f'{split}/'),
                metainfo=dict(classes=CLASSES),
                test_mode=split == 'val',
                pipeline=[dict(type='LoadImageFromFile'), annotations, dict(type='PackDetInputs')],
            ),
        )

    evaluator = dict(type='mmlape.CocoMetric', ann_file=f'{root}/annotations/val.json', metric=['bbox', 'segm'])
    return Config(
        dict(
            default_scope='mmdet',
            data_root=f'{root}/',
            train_dataloader=loader('train'),
            val_dataloader=loader('val'),
            test_dataloader=loader('val'),
            val_evaluator=evaluator,
            test_evaluator=evaluator,
            model=dict(backbone=dict(type='mmlape.VisionTransformer', patch_size=16), bbox_head=dict(num_classes=3)),
        )
    )


def objects_of(pixels: np.ndarray) -> list[tuple[int, tuple[int, int, int, int], np.ndarray]]:
    """Return (label, box as x1, y1, x2, y2, mask) of every object that an image shows."""
    labels, found = seen(pixels), []
    for label in range(len(CLASSES)):
        parts, _ = ndimage.label(labels == label)
        for number, (rows, columns) in enumerate(ndimage.find_objects(parts), start=1):
            found.append((label, (columns.start, rows.start, columns.stop, rows.stop), parts == number))
    return sorted(found, key=lambda one: one[:2])


def answer(sample: dict):
    objects = objects_of(pixels_of(sample))
    sample['data_samples'].pred_instances = InstanceData(
        bboxes=torch.tensor([box for _, box, _ in objects], dtype=torch.float32).reshape(-1, 4),
        labels=torch.tensor([label for label, _, _ in objects], dtype=torch.long),
        scores=torch.ones(len(objects)),
        masks=[rle.encode(np.asfortranarray(mask.astype(np.uint8))) for _, _, mask in objects],
    )
    return sample['data_samples']


def require_learnt(sample: dict) -> None:
    """Assert that the boxes, labels and masks of a training sample are those of its objects."""
    instances = sample['data_samples'].gt_instances
    size = sample['inputs'].shape[1:]
    masks = instances.masks.to_ndarray() if hasattr(instances.masks, 'polygons') else instances.masks.masks
    rows = zip(instances.labels.tolist(), instances.bboxes.tensor.tolist(), masks, strict=True)
    got = sorted(((label, tuple(box), mask) for label, box, mask in rows), key=lambda one: one[:2])
    wanted = objects_of(pixels_of(sample))
    assert [one[:2] for one in got] == [one[:2] for one in wanted]
    for (_, _, mask), (_, _, shown) in zip(got, wanted):
        assert mask.shape == size and np.array_equal(mask > 0, shown)


COCO = Kind(make, config, answer, require_learnt, ('coco/bbox_mAP', 'coco/segm_mAP'))

# ---------------------------------------------------------------- changes


def content(change):
    """A change of the annotation file of a split."""
    return lambda root, split: edit_json(root / 'annotations' / f'{split}.json', change)


def first(**values):
    """A change of the first annotation."""
    return content(lambda coco: coco['annotations'][0].update(values))


def every(change):
    """A change of every annotation, given its number in the file."""

    def of_all(coco):
        for number, annotation in enumerate(coco['annotations']):
            change(annotation, number)

    return content(of_all)


def identify(name):
    """A change of the ids of images, in their records and annotations."""

    def change(coco):
        for image in coco['images']:
            image['id'] = name(image['id'])
        for annotation in coco['annotations']:
            annotation['image_id'] = name(annotation['image_id'])

    return content(change)


def number(name):
    """A change of the ids of categories."""

    def change(coco):
        for category in coco['categories']:
            category['id'] = name(category['id'])
        for annotation in coco['annotations']:
            annotation['category_id'] = name(annotation['category_id'])

    return content(change)


def keep(images):
    """Leave the images of these places, with their annotations."""

    def change(coco):
        coco['images'] = [coco['images'][place] for place in images]
        left = [image['id'] for image in coco['images']]
        coco['annotations'] = [one for one in coco['annotations'] if one['image_id'] in left]

    return content(change)


def wrap(**wrapper):
    """Put the test dataset into a wrapper."""

    def configure(cfg):
        loader = cfg.test_dataloader
        key, inner = (
            ('datasets', [loader.dataset]) if wrapper['type'] == 'ConcatDataset' else ('dataset', loader.dataset)
        )
        loader.dataset = {**wrapper, key: inner}

    return configure


nothing = content(lambda coco: None)
TEST = 'test_dataloader.dataset'
IDS = [
    Case('annotation ids from 0', every(lambda one, k: one.update(id=k)), Perfect()),
    Case('negative annotation ids', every(lambda one, k: one.update(id=-k)), Perfect()),
    Case('annotation ids are texts', every(lambda one, k: one.update(id=f'a{k}')), Perfect()),
    Case('annotation ids are texts and numbers', first(id='a'), Perfect()),
    Case('annotation ids are floats', every(lambda one, k: one.update(id=k + 0.5)), Perfect()),
    Case('annotation ids beyond int64', every(lambda one, k: one.update(id=2**64 + k)), Perfect()),
    Case('image ids are texts', identify(lambda known: f'{known}.png'), Perfect()),
    Case('image ids are texts and numbers', identify(lambda known: known if known % 2 else str(known)), Perfect()),
    Case('image ids from 0', identify(lambda known: known - 1), Perfect()),
    Case('image ids beyond int64', identify(lambda known: known + 2**63 - 2), Perfect()),
    Case('category ids are texts', number(str), Perfect()),
    Case('category ids from 0, in another order', number(lambda known: (known + 1) % 3), Perfect()),
    Case('category ids beyond int64', number(lambda known: known + 2**63 - 2), Perfect()),
]
PARTS = [
    Case('the first two images', nothing, Perfect(), {f'{TEST}.indices': 2}),
    Case('two images by number', nothing, Perfect(), {f'{TEST}.indices': [3, 1]}),
    Case('every image twice', nothing, Perfect(), configure=wrap(type='RepeatDataset', times=2)),
    Case('one dataset of several', nothing, Perfect(), configure=wrap(type='ConcatDataset')),
    Case('rare classes repeated', nothing, Perfect(), configure=wrap(type='ClassBalancedDataset', oversample_thr=0.9)),
    Case('images without objects are left out', content(lambda coco: coco['annotations'].__delitem__(slice(2))),
         Warned(('no object',), 1.0), {f'{TEST}.test_mode': False, f'{TEST}.filter_cfg': dict(filter_empty_gt=True)}),
]  # fmt: skip
CASES = [
    Case('unchanged', nothing, Perfect()),
    *IDS,
    *PARTS,
    Case('a category that is not listed', first(category_id=77), Refused(('.json', 'annotation 1', 'category_id 77'))),
]


def test_the_contract_holds_of_coco(tmp_path):
    for case in each(CASES):
        hold(case, COCO, tmp_path)
