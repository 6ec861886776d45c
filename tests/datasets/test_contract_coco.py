"""What becomes of COCO data with one change each: see contract.py."""

import gzip
import json
from pathlib import Path

import numpy as np
import tiny
import torch
from contract import CLASSES, Case, Kind, Perfect, Refused, Warned, edit_json, hold, of_splits, pixels_of, scene, seen
from each import each
from mmengine import Config
from mmengine.structures import InstanceData
from pycocotools import mask as rle
from scipy import ndimage
from tiny import ROOT

from mmlape.lab.datasets.formats import SPLITS
from mmlape.lab.datasets.formats.coco_rules import decode_run_lengths

# ---------------------------------------------------------------- the data and its perfect model


def file_of(root: Path, split: str) -> Path:
    return root / 'annotations' / f'instances_{split}2017.json'


def make(root: Path) -> None:
    """Write four images a split, with two objects each; masks are polygons."""
    (root / 'annotations').mkdir(parents=True)
    for split in ('train', 'val'):
        (root / f'{split}2017').mkdir()
        images, annotations = [], []
        for index in range(4):
            image, objects = scene(index + 4 * (split == 'val'))
            name = f'{split}{index}.png'
            image.save(root / f'{split}2017' / name)
            images.append(dict(id=index + 1, file_name=name, width=image.width, height=image.height))
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
        file_of(root, split).write_text(json.dumps(content))


def config(root: Path) -> Config:
    def loader(split):
        annotations = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
        return dict(
            batch_size=2,
            dataset=dict(
                type='CocoDataset',
                data_root=f'{root}/',
                ann_file=f'annotations/instances_{split}2017.json',
                data_prefix=dict(img=f'{split}2017/'),
                metainfo=dict(classes=CLASSES),
                test_mode=split == 'val',
                pipeline=[dict(type='LoadImageFromFile'), annotations, dict(type='PackDetInputs')],
            ),
        )

    evaluator = dict(type='mmlape.CocoMetric', ann_file=str(file_of(root, 'val')), metric=['bbox', 'segm'])
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
    labels, boxes = instances.labels.tolist(), map(tuple, instances.bboxes.tensor.tolist())
    masks = instances.masks.masks if 'masks' in instances else [None] * len(labels)
    got = sorted(zip(labels, boxes, masks, strict=True), key=lambda one: one[:2])
    wanted = objects_of(pixels_of(sample))
    assert [one[:2] for one in got] == [one[:2] for one in wanted]
    for (_, _, mask), (_, _, shown) in zip(got, wanted):
        assert mask is None or (mask.shape == size and np.array_equal(mask > 0, shown))


COCO = Kind(make, config, answer, require_learnt, ('coco/bbox_mAP', 'coco/segm_mAP'))

# ---------------------------------------------------------------- changes


def content(change):
    """A change of the annotation file of a split."""

    def of_file(coco):
        change(coco)

    return lambda root, split: edit_json(file_of(root, split), of_file)


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


def every_image(change):
    """A change of every image's record."""
    return content(lambda coco: [change(image) for image in coco['images']])


def image(**values):
    """A change of the first image's record."""
    return content(lambda coco: coco['images'][0].update(values))


def without(place, key):
    """A change that takes a field from the first entry of a list."""
    return content(lambda coco: coco[place][0].pop(key))


def mask(make):
    """A change of the first annotation's mask, given its polygon and its (H, W) mask."""

    def change(coco):
        annotation, record = coco['annotations'][0], coco['images'][0]
        polygon = annotation['segmentation'][0]
        found = rle.decode(rle.frPyObjects([polygon], record['height'], record['width']))[..., 0]
        annotation['segmentation'] = make(polygon, found)

    return content(change)


def encoded(found, **values):
    """Run lengths of a mask, compressed."""
    made = rle.encode(np.asfortranarray(found))
    return {'size': made['size'], 'counts': made['counts'].decode(), **values}


def plain(found, **values):
    """Run lengths of a mask, as numbers."""
    flat = found.ravel(order='F')
    ends = [*(np.flatnonzero(np.diff(flat)) + 1).tolist(), len(flat)]
    counts = np.diff([0, *ends]).tolist()
    return {'size': list(found.shape), 'counts': [0] * int(flat[0]) + counts, **values}


def written(write):
    """A change of the bytes of the annotation file."""

    def change(root, split):
        path = file_of(root, split)
        path.write_bytes(write(path.read_bytes()))

    return change


def exchange_sides(coco):
    """Exchange width and height, and keep the objects that fit either."""
    for record in coco['images']:
        record.update(width=record['height'], height=record['width'])
    del coco['annotations'][1::2]


def exchanged(old, new):
    """A change of the first such text."""
    return written(lambda data: data.replace(old, new, 1))


def moved(root, split):
    """Name images by absolute paths, and by '..'."""

    def change(coco):
        for number, record in enumerate(coco['images']):
            record['file_name'] = (f'../{split}2017/' if number % 2 else f'{root}/{split}2017/') + record['file_name']

    edit_json(file_of(root, split), change)


def corners(box):
    x, y, w, h = box
    return [x, y, x + w, y + h]


def folder(root, split):
    path = file_of(root, split)
    path.unlink()
    path.mkdir()


def circle(root, split):
    path = file_of(root, split)
    path.unlink()
    path.symlink_to(path)


def boxes_only(cfg):
    """A config that neither loads nor evaluates masks."""
    for split in ('train', 'val', 'test'):
        cfg[f'{split}_dataloader'].dataset.pipeline[1].with_mask = False
    cfg.val_evaluator.metric = cfg.test_evaluator.metric = 'bbox'


def filtering(side):
    """A config that trains on boxes of such a side only, in images of up to 160 pixels."""

    def configure(cfg):
        resize = dict(type='RandomChoice', transforms=[[dict(type='Resize', scale=(160, 160), keep_ratio=True)]])
        keep = dict(type='FilterAnnotations', min_gt_bbox_wh=(side, 1), keep_empty=False)
        cfg.train_dataloader.dataset.pipeline[2:2] = [resize, keep]

    return configure


def of_other_file(cfg):
    """A config whose evaluators have the annotation file of the training data."""
    cfg.val_evaluator.ann_file = cfg.test_evaluator.ann_file = str(file_of(Path(cfg.data_root), 'train'))


def of_two_files(cfg):
    """A config that tests on two files at once, with the evaluator of one of them."""
    for loader in (cfg.val_dataloader, cfg.test_dataloader):
        other = {**loader.dataset, 'ann_file': cfg.train_dataloader.dataset.ann_file}
        other['data_prefix'] = cfg.train_dataloader.dataset.data_prefix
        loader.dataset = dict(type='ConcatDataset', datasets=[loader.dataset, other])


def by_mmdet(cfg):
    """A config with MMDetection's metric."""
    cfg.val_evaluator.type = cfg.test_evaluator.type = 'CocoMetric'
    cfg.val_evaluator.metric = cfg.test_evaluator.metric = 'bbox'


nothing = content(lambda coco: None)
nan, infinite = float('nan'), float('inf')
TEST = 'test_dataloader.dataset'
ONE = ('2017.json: annotation 1 ',)  # how each error of an annotation begins
VAL = ('val',)

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
    Case('no annotation id', every(lambda one, k: one.pop('id')), Refused(('number 1 of the list', 'own'))),
    Case('one annotation id is missing', without('annotations', 'id'), Refused(('number 1 of the list', 'own'))),
    Case('an annotation id is null', first(id=None), Refused(('number 1 of the list', 'the id None'))),
    Case('an annotation id is true', first(id=True), Refused(('the id True',))),
    Case('an annotation id is NaN', first(id=nan), Refused(('the id nan',))),
    Case('an annotation id is a list', first(id=[1]), Refused(('an invalid "id" in "annotations"',))),
    Case('an annotation id twice', first(id=2), Refused(('the annotation id 2 more than once',))),
    Case('an image id twice', image(id=2), Refused(('the image id 2 more than once',))),
    Case('no image id', without('images', 'id'), Refused(('without "id" in "images"',))),
    Case('an image id is a float', image(id=1.5), Refused(('1.5 is not a whole number or a text',))),
    Case('a category id twice', content(lambda coco: coco['categories'][0].update(id=2)),
         Refused(('the category id 2 more than once',))),
    Case('a category name twice', content(lambda coco: coco['categories'][0].update(name='tree')),
         Refused(('more than one category named tree',))),
    Case('no category name', without('categories', 'name'), Refused(('without "name" in "categories"',))),
    Case('a category that is not listed', first(category_id=77), Refused((*ONE, 'category_id 77', 'ids 1, 2, 3'))),
    Case('no category', without('annotations', 'category_id'), Refused((*ONE, 'category_id None'))),
    Case('categories are numbers, those of annotations texts', every(lambda one, k: one.update(category_id='1')),
         Refused((*ONE, "category_id '1'", 'ids 1, 2, 3', "'1' and 1 are not the same"))),
    Case('images are numbers, those of annotations texts', every(lambda one, k: one.update(image_id='1')),
         Refused(('has nothing to', '8 of images that are not listed'))),
    Case('an annotation of another image', first(image_id=77), Warned((*ONE, 'of image 77', 'used nowhere'))),
    Case('no image of an annotation', without('annotations', 'image_id'), Refused((*ONE, 'has no image_id'))),
    Case('classes are a text', nothing, Refused(("is the text 'ship'", "dict(classes=['ship'])")),
         {f'{split}_dataloader.dataset.metainfo.classes': ('ship') for split in SPLITS}),
    Case('an unused category of an exporter', content(lambda coco: coco['categories'].insert(
        0, dict(id=0, name='objects', supercategory='none'))), Perfect()),
    Case("annotation ids from 0 in MMDetection's metric", every(lambda one, k: one.update(id=k)),
         Refused(('annotation 0 ', "type='mmlape.CocoMetric'"), splits=VAL), configure=by_mmdet),
    Case("no iscrowd in MMDetection's metric", without('annotations', 'iscrowd'),
         Refused((*ONE, 'iscrowd None', "type='mmlape.CocoMetric'"), splits=VAL), configure=by_mmdet),
]  # fmt: skip
FLAGS = [
    Case('iscrowd is null', first(iscrowd=None), Perfect()),
    Case('iscrowd is false', first(iscrowd=False), Perfect()),
    Case('no iscrowd', every(lambda one, k: one.pop('iscrowd')), Perfect()),
    Case('a crowd', first(iscrowd=1), Perfect(complete=False)),
    Case('iscrowd is true', first(iscrowd=True), Perfect(complete=False)),
    Case('iscrowd is 1.0', first(iscrowd=1.0), Perfect(complete=False)),
    Case('iscrowd is a text', first(iscrowd='false'), Refused((*ONE, "iscrowd 'false'", 'write 0 or 1'))),
    Case('iscrowd is an empty text', first(iscrowd=''), Refused((*ONE, "iscrowd ''"))),
    Case('iscrowd is 2', first(iscrowd=2), Refused((*ONE, 'iscrowd 2'))),
    Case('iscrowd is NaN', first(iscrowd=nan), Refused((*ONE, 'iscrowd nan'))),
    Case('iscrowd is a list', first(iscrowd=[]), Refused((*ONE, 'iscrowd []'))),
    Case('ignore', first(ignore=1), Warned((*ONE, 'training leaves it out, but AP counts it'), 1.0)),
    Case('ignore is 0', first(ignore=0), Perfect()),
    Case('ignore is a text', first(ignore='0'), Refused((*ONE, "ignore '0'"))),
]
IMAGES = [
    Case('absolute paths, and some with ..', moved, Perfect()),
    Case('a file name twice', content(lambda coco: coco['images'][0].update(file_name=coco['images'][1]['file_name'])),
         Refused(("1.png' more than once", 'one record'))),
    Case('no file name', without('images', 'file_name'), Refused(('without "file_name" in "images"',))),
    Case('an empty file name', image(file_name=''), Refused(("('' is not a text)",))),
    Case('a file name is null', image(file_name=None), Refused(('(None is not a text)',))),
    Case('a folder as an image', lambda root, split: (root / f'{split}2017/{split}0.png').rename(root / 'x') and
         (root / f'{split}2017/{split}0.png').mkdir(),
         Refused(('1 of 4 images', '0.png'))),
    Case('sides are floats', every_image(lambda one: one.update(width=float(one['width']))), Perfect()),
    Case('no images', content(lambda coco: coco.update(images=[])), Refused(('lists no images',))),
    Case('images without objects', content(lambda coco: coco['annotations'].__delitem__(slice(2))),
         Warned(('1 of 4 images', 'have no object', '0.png'), 7 / 9)),
    Case('width and height exchanged', content(exchange_sides),
         Refused(('0.png', 'exchanged'), in_images=True)),
    *(
        Case(f'a width is {value!r}', image(width=value), Refused((f'{value!r} is not a number of pixels',)))
        for value in (None, 0, -64, '64', 64.5, nan, infinite, True, [64])
    ),
    Case('no height', without('images', 'height'), Refused(('without "height" in "images"',))),
]  # fmt: skip
BOXES = [
    *(
        Case(f'a box is {value!r}', first(bbox=value), Refused((*ONE, words)))
        for value, words in (
            ([0, 8, nan, 16], 'not four finite numbers'),
            ([0, 8, infinite, 16], 'not four finite numbers'),
            ([0, 8, '24', 16], "[0, 8, '24', 16], not four finite"),
            ([0, 8, 24], 'not four finite numbers'),
            ([0, 8, 24, 16, 0], 'not four finite numbers'),
            ([[0, 8], [24, 16]], 'not four finite numbers'),
            ('0 8 24 16', 'not four finite numbers'),
            ({}, 'not four finite numbers'),
            ([24, 24, -24, -16], 'negative width'),
            ([0, 8, 1e9, 16], 'so much larger'),
            ([-1e9, 8, 1e9 + 24, 16], 'so much larger'),
            ([900, 8, 24, 16], 'completely outside'),
            ([0, 8, 0, 0], 'its mask spans'),
        )
        if value != [0, 8, 0, 0]
    ),
    Case('a box is null', first(bbox=None), Refused((*ONE, 'has no bbox'))),
    Case('no box', without('annotations', 'bbox'), Refused((*ONE, 'has no bbox'))),
    Case('a box without width', first(bbox=[4, 8, 0, 16]), Warned((*ONE,))),
    Case('a flat object, as COCO has two',
         first(bbox=[4, 8, 1.03, 0.0], area=0.0, segmentation=[[4, 8, 5, 8, 5, 8, 5, 8]]),
         Warned((*ONE, 'and the area 0.0'))),
    Case('a box partly outside', first(bbox=[-6, 8, 30, 16]), Warned((*ONE, 'where AP expects predictions'))),
    Case('boxes are corners', every(lambda one, k: one.update(bbox=corners(one['bbox']))),
         Refused(('x1, y1, x2, y2', 'COCO has x, y, width, height'))),
    Case('boxes are corners, without masks', every(lambda one, k: one.update(bbox=corners(one['bbox']))),
         Refused(('x1, y1, x2, y2', 'subtract')), configure=boxes_only),
    Case('boxes are fractions', every(lambda one, k: one.update(bbox=[0.1, 0.2, 0.3, 0.4])),
         Refused(('fractions of the image', 'multiply')), configure=boxes_only),
    Case('an object twice', content(lambda coco: coco['annotations'].append({**coco['annotations'][0], 'id': 99})),
         Warned(('1 objects more than once', 'AP counts the others as missed'))),
    Case('a box that is not of its mask', first(bbox=[30, 2, 20, 12]), Warned((*ONE, 'its mask spans'))),
    Case('no area', without('annotations', 'area'), Refused((*ONE, 'has no area'))),
    Case('an area is null', first(area=None), Refused((*ONE, 'has no area'))),
    Case('an area is 0', first(area=0), Warned((*ONE, 'and the area 0'), 1.0)),
    Case('areas of another scale', every(lambda one, k: one.update(area=one['area'] * 100)),
         Warned(('8 of 8 areas',), 1.0)),
    *(
        Case(f'an area is {value!r}', first(area=value), Refused((*ONE, 'not a number of pixels')))
        for value in ('288', nan, infinite, -288, True)
    ),
]  # fmt: skip
MASKS = [
    Case('compressed run lengths', mask(lambda polygon, found: encoded(found)), Perfect()),
    Case('run lengths', mask(lambda polygon, found: plain(found)), Perfect()),
    Case('a polygon of two points beside another', mask(lambda polygon, found: [[1, 2, 3, 4], polygon]), Perfect()),
    Case('a point beside a polygon', mask(lambda polygon, found: [polygon, [1, 2]]), Perfect()),
    *(
        Case(f'a mask of {name}', mask(make), Refused((*ONE, words)))
        for name, words, make in (
            ('null', 'has no segmentation', lambda polygon, found: None),
            ('no polygon', 'has no segmentation', lambda polygon, found: []),
            ('nothing', 'has no segmentation', lambda polygon, found: {}),
            ('an empty polygon', 'no polygon of three points', lambda polygon, found: [[]]),
            ('four numbers', 'no polygon of three points', lambda polygon, found: [[1, 2, 3, 4]]),
            ('one list', 'one list of numbers: COCO has', lambda polygon, found: polygon),
            ('pairs', 'a list of points', lambda polygon, found: np.reshape(polygon, (-1, 2)).tolist()),
            ('pairs in a list', 'lists of points', lambda polygon, found: [np.reshape(polygon, (-1, 2)).tolist()]),
            ('an odd number', '11 coordinates, an odd number', lambda polygon, found: [polygon[:-1]]),
            ('texts', 'not of numbers', lambda polygon, found: [list(map(str, polygon))]),
            ('a text', 'neither polygons nor run lengths', lambda polygon, found: str(polygon)),
            ('NaN', 'not finite', lambda polygon, found: [[*polygon[:-1], nan]]),
            ('infinity', 'not finite', lambda polygon, found: [[*polygon[:-1], infinite]]),
            ('a large number', 'far outside', lambda polygon, found: [[*polygon[:-1], 1e9]]),
            ('a small number', 'far outside', lambda polygon, found: [[*polygon[:-1], -1e9]]),
            ('no counts', 'has no "counts"', lambda polygon, found: dict(size=list(found.shape))),
            ('counts of null', 'has no "counts"', lambda polygon, found: encoded(found, counts=None)),
            ('garbage', 'no run lengths', lambda polygon, found: encoded(found, counts='abc')),
            ('other letters', 'no run lengths', lambda polygon, found: encoded(found, counts='\u00e9 {}')),
            ('cut counts', 'its image has', lambda polygon, found: encoded(found[:, :-5], size=list(found.shape))),
            ('long counts', 'its image has', lambda polygon, found: encoded(np.pad(found, 1), size=list(found.shape))),
            ('no counts at all', 'no run lengths', lambda polygon, found: encoded(found, counts='')),
            ('few run lengths', 'of 60 pixels, but', lambda polygon, found: plain(found, counts=[10, 20, 30])),
            ('negative run lengths', 'no run lengths', lambda polygon, found: plain(found, counts=[-40, 2600])),
            ('run lengths of floats', 'whole numbers', lambda polygon, found: plain(found, counts=[10.5, 2549.5])),
            ('no pixel', 'is empty', lambda polygon, found: encoded(0 * found)),
            ('the other size', '(height, width) [64, 40]', lambda polygon, found: encoded(found.T)),
            ('no size', '(height, width) None', lambda polygon, found: dict(counts=encoded(found)['counts'])),
            ('a list of run lengths', 'not a list of lists', lambda polygon, found: [encoded(found)]),
        )
    ),
    Case('no segmentation', without('annotations', 'segmentation'), Refused((*ONE, 'has no segmentation'))),
    Case('boxes only', every(lambda one, k: one.pop('segmentation')),
         Refused(('boxes and no masks', 'with_mask=False', 'mask_head=None', "metric='bbox'"))),
    Case('boxes only, for boxes', every(lambda one, k: one.pop('segmentation')), Perfect(), configure=boxes_only),
    Case('masks that nobody reads', mask(lambda polygon, found: 'x'), Perfect(), configure=boxes_only),
]  # fmt: skip
NOTHING = [
    Case('crowds only', every(lambda one, k: one.update(iscrowd=1)), Refused(('has nothing to', '8 crowds'))),
    Case('ignored objects only', every(lambda one, k: one.update(ignore=1)),
         Refused(('has nothing to learn', '8 with "ignore": 1'), splits=('train',))),
    Case('no area at all', every(lambda one, k: one.update(area=0)),
         Refused(('has nothing to learn', '8 box without area'), splits=('train',))),
    Case('no annotations', content(lambda coco: coco.update(annotations=[])), Refused(('has no annotations',))),
    Case('no list of annotations', content(lambda coco: coco.pop('annotations')),
         Refused(('has no annotations',))),
    Case('annotations is null', content(lambda coco: coco.update(annotations=None)),
         Refused(('no list "annotations"',))),
    Case('no categories', content(lambda coco: coco.pop('categories')), Refused(('no list "categories"',))),
    Case('objects of other classes only', content(lambda coco: (coco['categories'].append(dict(id=9, name='x')),
         [one.update(category_id=9) for one in coco['annotations']])),
         Refused(('has nothing to', '8 of classes that the config does not have'))),
    Case('boxes that the pipeline filters', nothing,
         Refused(('has nothing to learn', '8 below min_gt_bbox_wh'), splits=('train',)), configure=filtering(100)),
    Case('boxes that the pipeline keeps', nothing, Perfect(complete=False), configure=filtering(50)),
    Case('images below the smallest', nothing, Refused(('keeps none of the 4 images',), splits=('train',)),
         {'train_dataloader.dataset.filter_cfg': dict(min_size=90)}),
]  # fmt: skip
PARTS = [
    Case('the first two images', nothing, Perfect(), {f'{TEST}.indices': 2}),
    Case('two images by number', nothing, Perfect(), {f'{TEST}.indices': [3, 1]}),
    Case('an image that does not exist', nothing, Refused(('indices', '4 images to choose from'), splits=VAL),
         {f'{TEST}.indices': [7], 'val_dataloader.dataset.indices': [7]}),
    *(Case(f'indices {value!r}', nothing, Refused(('indices of the ', words), splits=VAL),
           {f'{TEST}.indices': value, 'val_dataloader.dataset.indices': value})
      for value, words in ((0, 'no image'), ([], 'no image'), ('2', 'a list'), (2.0, 'a list'), ([0.5], 'a list'))),
    Case('filter_cfg of a test, which keeps all', nothing, Perfect(), {f'{TEST}.filter_cfg': dict(min_size=90)}),
    Case('every image twice', nothing, Perfect(), configure=wrap(type='RepeatDataset', times=2)),
    Case('one dataset of several', nothing, Perfect(), configure=wrap(type='ConcatDataset')),
    Case('rare classes repeated', nothing, Perfect(), configure=wrap(type='ClassBalancedDataset', oversample_thr=0.9)),
    Case('images without objects are left out', content(lambda coco: coco['annotations'].__delitem__(slice(2))),
         Warned(('no object',), 1.0), {f'{TEST}.test_mode': False, f'{TEST}.filter_cfg': dict(filter_empty_gt=True)}),
]  # fmt: skip
FILES = [
    Case('lines of Windows', written(lambda data: data.replace(b', ', b',\r\n')), Perfect()),
    Case('other keys', content(lambda coco: coco.update(info=None, licenses=[1e308, nan])), Perfect()),
    *(
        Case(f'a file of {name}', change, Refused(('.json', words)))
        for name, words, change in (
            ('a byte order mark', 'a byte order mark', written(lambda data: b'\xef\xbb\xbf' + data)),
            ('UTF-16', 'save it as UTF-8', written(lambda data: data.decode().encode('utf-16'))),
            ('UTF-16 without a mark', 'save it as UTF-8', written(lambda data: data.decode().encode('utf-16-le'))),
            ('UTF-32', 'save it as UTF-8', written(lambda data: data.decode().encode('utf-32'))),
            ('Latin-1', 'Latin-1', written(lambda data: data.replace(b'ship', b'\xe9'))),
            ('gzip', 'compressed (gzip): unpack it', written(gzip.compress)),
            ('nothing', 'is empty', written(lambda data: b'')),
            ('spaces', 'is empty', written(lambda data: b' \n')),
            ('half', 'not valid JSON', written(lambda data: data[: len(data) // 2])),
            ('two objects', 'not valid JSON', written(lambda data: data + data)),
            ('a list', 'as a file of predictions is', written(lambda data: b'[' + data + b']')),
            ('a text', 'a str, not an object', written(lambda data: b'"x"')),
            ('a key twice', 'key "images" twice', written(lambda data: b'{"images": [], ' + data[1:])),
            ('a field twice', 'key "id" twice', exchanged(b'"id": 1,', b'"id": 1, "id": 9,')),
            ('an infinite number', 'not four finite', exchanged(b', 8, 24, 16]', b', 1e400, 24, 16]')),
            ('a folder', 'is a folder', folder),
            ('a link to itself', 'does not exist', circle),
            ('numbers', 'not an object in "annotations"', content(lambda coco: coco.update(annotations=[1]))),
        )
    ),
    Case('two files in one test', nothing,
         Refused(('4 of 4 images', 'val2017.json, the ann_file of'), splits=VAL), configure=of_two_files),
    Case('an evaluator with the file of other images', nothing,
         Refused(('4 of 4 images', 'train2017.json, the ann_file of'), splits=VAL), configure=of_other_file),
]  # fmt: skip
CASES = [Case('unchanged', nothing, Perfect()), *IDS, *FLAGS, *IMAGES, *BOXES, *MASKS, *NOTHING, *PARTS, *FILES]


MINI = ROOT / 'configs/mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py'


@tiny.in_a_fork
def test_the_commands_refuse_with_one_line(tmp_path, python):
    """The check as processes call it: of all errors one line, with what else there is."""
    make(tmp_path / 'data')
    for split in ('train', 'val'):
        every(lambda one, k: one.update(iscrowd='0', area=-1 if k else 9))(tmp_path / 'data', split)
    torch.save({'state_dict': {'x': torch.zeros(1)}}, tmp_path / 'empty.pth')
    wanted = "2017.json: annotation 1 has iscrowd '0', which counts as true: write 0 or 1. (and 7 more)"
    options = ('--work-dir', tmp_path / 'run', '--cfg-options', f'data_root={tmp_path}/data')
    for words in (('train', MINI, '--seed', 1), ('test', MINI, tmp_path / 'empty.pth')):
        printed = tiny.run(*tiny.MMLAPE, *words, *options, cwd=tmp_path, status=1, **python)
        assert len(errors := [line for line in printed.splitlines() if 'mmlape: error' in line]) == 1
        assert wanted in errors[0] and 'Traceback' not in printed
    quiet = ('check-data', MINI, '--quiet', *options[2:])
    printed = tiny.run(*tiny.MMLAPE, *quiet, cwd=tmp_path, status=1, **python).splitlines()
    assert [line for line in printed if line.startswith('mmlape: error: ')] == [*printed] != []
    assert sum("annotation 1 has iscrowd '0'" in line and '(the first of 8)' in line for line in printed) == 2


def test_run_lengths_are_those_of_pycocotools():
    """Of random masks, from empty to full."""
    random = np.random.default_rng(0)
    for height, width in ((1, 1), (7, 40), (300, 500)):
        for density in (0, 0.001, 0.5, 1):
            found = (random.random((height, width)) < density).astype(np.uint8)
            lengths = decode_run_lengths(encoded(found)['counts'])
            assert lengths.tolist() == plain(found)['counts']


@of_splits
def test_the_contract_holds_of_coco(tmp_path, every_split):
    for case in each(CASES):
        hold(case, COCO, tmp_path, every_split)
