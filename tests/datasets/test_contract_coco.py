"""What becomes of COCO data with one change each: see contract.py."""

import itertools
import json
from pathlib import Path

import numpy as np
import torch
from contract import Case, Kind, Perfect, Refused, Warned, edit_json, hold, of_splits, pixels_of
from data_helpers import annotations_of, coco_config, make_coco
from drawn_data import NAMES, seen
from each import each
from mmengine.structures import InstanceData
from properties import VALUES, places, with_value
from pycocotools import mask as rle
from scipy import ndimage
from told import assert_told

from mmlape.errors import DataError
from mmlape.lab.datasets.formats import SPLITS, iter_sources
from mmlape.lab.datasets.formats.coco_file import are_outlines
from mmlape.new.command import look

# ---------------------------------------------------------------- the data and its perfect model


def objects_of(pixels: np.ndarray) -> list[tuple[int, tuple[int, int, int, int], np.ndarray]]:
    """Return (label, box as x1, y1, x2, y2, mask) of every object that an image shows."""
    labels, found = seen(pixels), []
    for label in range(len(NAMES)):
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
    assert [one[0] for one in got] == [one[0] for one in wanted]
    np.testing.assert_allclose([one[1] for one in got], [one[1] for one in wanted], atol=1e-4)
    for (_, _, mask), (_, _, shown) in zip(got, wanted):
        assert mask is None or (mask.shape == size and np.array_equal(mask > 0, shown))


COCO = Kind(make_coco, coco_config, answer, require_learnt, ('coco/bbox_mAP', 'coco/segm_mAP'))

# ---------------------------------------------------------------- changes


def content(change):
    """A change of the annotation file of a split."""

    def of_file(coco):
        change(coco)

    return lambda root, split: edit_json(annotations_of(root, split), of_file)


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


def rename_categories(coco):
    for category, name in zip(coco['categories'], UNSORTED):
        category['name'] = name


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


def written(write):
    """A change of the bytes of the annotation file."""

    def change(root, split):
        path = annotations_of(root, split)
        path.write_bytes(write(path.read_bytes()))

    return change


def exchange_sides(coco):
    """Exchange width and height, and keep the objects that fit either."""
    for record in coco['images']:
        record.update(width=record['height'], height=record['width'])
    del coco['annotations'][1::2]


def moved(root, split):
    """Name images by absolute paths, and by '..'."""

    def change(coco):
        for number, record in enumerate(coco['images']):
            record['file_name'] = (f'../{split}2017/' if number % 2 else f'{root}/{split}2017/') + record['file_name']

    edit_json(annotations_of(root, split), change)


def corners(box):
    x, y, w, h = box
    return [x, y, x + w, y + h]


def boxes_only(cfg):
    """A config that neither loads nor evaluates masks."""
    for split in ('train', 'val', 'test'):
        cfg[f'{split}_dataloader'].dataset.pipeline[1].with_mask = False
    cfg.val_evaluator.metric = cfg.test_evaluator.metric = 'bbox'


def of_other_file(cfg):
    """A config whose evaluators have the annotation file of the training data."""
    cfg.val_evaluator.ann_file = cfg.test_evaluator.ann_file = str(annotations_of(Path(cfg.data_root), 'train'))


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
nan = float('nan')
TEST = 'test_dataloader.dataset'
ONE = ('2017.json: annotation 1 ',)  # how each error of an annotation begins
VAL = ('val',)
UNSORTED = ('hat', 'cat', 'dog')

RIGHT = [
    ('nothing', nothing),
    ('annotation ids from 0', every(lambda one, k: one.update(id=k))),
    ('annotation ids are texts and numbers', first(id='a')),
    ('image ids are texts and numbers', identify(lambda known: known if known % 2 else str(known))),
    ('image ids from 0', identify(lambda known: known - 1)),
    ('category ids are texts', number(str)),
    ('category ids from 0, in another order', number(lambda known: (known + 1) % 3)),
    ('an unused category of an exporter', content(lambda coco: coco['categories'].insert(0, dict(id=0, name='all')))),
    ('iscrowd is false', first(iscrowd=False)),
    ('no iscrowd', every(lambda one, k: one.pop('iscrowd'))),
    ('absolute paths, and some with ..', moved),
    ('sides are floats', every_image(lambda one: one.update(width=float(one['width'])))),
    ('run lengths', mask(lambda polygon, found: encoded(found))),
    ('a polygon of two points beside another', mask(lambda polygon, found: [[1, 2, 3, 4], polygon])),
    ('lines of Windows', written(lambda data: data.replace(b', ', b',\r\n'))),
]
"""Names and changes of data that are trained on and evaluated as they are."""
WRONG_MASKS = {
    'no polygon': lambda polygon, found: [],
    'four numbers': lambda polygon, found: [[1, 2, 3, 4]],
    'a large number': lambda polygon, found: [[*polygon[:-1], 1e9]],
    'one list': lambda polygon, found: polygon,
    'pairs in a list': lambda polygon, found: [np.reshape(polygon, (-1, 2)).tolist()],
    'an odd number': lambda polygon, found: [polygon[:-1]],
    'NaN': lambda polygon, found: [[*polygon[:-1], nan]],
    'run lengths of another size': lambda polygon, found: encoded(found.T),
    'run lengths that are short': lambda polygon, found: encoded(found, counts=[5]),
    'a negative run length': lambda polygon, found: encoded(found, counts=[found.size + 5, -5]),
    'run lengths that are floats': lambda polygon, found: encoded(found, counts=[float(found.size)]),
    'run lengths that are null': lambda polygon, found: encoded(found, counts=None),
    'a text that is cut': lambda polygon, found: encoded(found, counts=encoded(found)['counts'][:-1]),
    'another text': lambda polygon, found: encoded(found, counts='no run lengths'),
}
WRONG = [
    ('an annotation id twice', first(id=2)),
    ('no annotation id', without('annotations', 'id')),
    ('an image id twice', image(id=2)),
    ('a category id twice', content(lambda coco: coco['categories'][0].update(id=2))),
    ('a category name twice', content(lambda coco: coco['categories'][0].update(name='dog'))),
    ('a file name twice', content(lambda coco: coco['images'][0].update(file_name=coco['images'][1]['file_name']))),
    ('a category that is not listed', first(category_id=77)),
    ('categories are numbers, those of annotations texts', every(lambda one, k: one.update(category_id='1'))),
    ('images are numbers, those of annotations texts', every(lambda one, k: one.update(image_id='1'))),
    *((f'no {key} in {place}', without(place, key))
      for place, key in (('images', 'id'), ('images', 'file_name'), ('images', 'height'), ('categories', 'name'))),
    *((f'no {key}', without('annotations', key)) for key in ('image_id', 'bbox', 'area', 'segmentation')),
    ('iscrowd is a text', first(iscrowd='false')),
    ('a folder as an image', lambda root, split: (root / f'{split}2017/{split}0.png').rename(root / 'x') and
     (root / f'{split}2017/{split}0.png').mkdir()),
    ('no images', content(lambda coco: coco.update(images=[]))),
    *((f'a width is {value!r}', image(width=value)) for value in (0, '64', nan)),
    *((f'a box is {value!r}', first(bbox=value)) for value in ([0, 8, nan, 16], [0, 8, '24', 16], [0, 8, 24])),
    ('a box is negative', first(bbox=[24, 24, -24, -16])),
    ('a box is huge', first(bbox=[0, 8, 1e9, 16])),
    ('a box is elsewhere', first(bbox=[900, 8, 24, 16])),
    ('boxes are corners', every(lambda one, k: one.update(bbox=corners(one['bbox'])))),
    ('boxes are fractions', every(lambda one, k: one.update(bbox=[0.1, 0.2, 0.3, 0.4]))),
    *((f'a mask of {name}', mask(make)) for name, make in WRONG_MASKS.items()),
    ('boxes only', every(lambda one, k: one.pop('segmentation'))),
    ('crowds only', every(lambda one, k: one.update(iscrowd=1))),
    ('no list of annotations', content(lambda coco: coco.pop('annotations'))),
    ('no categories', content(lambda coco: coco.pop('categories'))),
    ('objects of other classes only', content(lambda coco: (coco['categories'].append(dict(id=9, name='x')),
     [one.update(category_id=9) for one in coco['annotations']]))),
    ('a file of a list', written(lambda data: b'[' + data + b']')),
]  # fmt: skip
"""Names and changes of data that are refused."""
CASES = [
    *(Case(name, change, Perfect()) for name, change in RIGHT),
    *(Case(name, change, Refused()) for name, change in WRONG),
    *(Case(f'a file of {name}', written(change), Refused(('.json', 'not JSON in UTF-8', reason)))
      for name, reason, change in (
        ('a byte order mark', 'BOM', lambda data: b'\xef\xbb\xbf' + data),
        ('Latin-1', "can't decode", lambda data: data.replace(b'cat', b'\xe9')),
        ('nothing', 'char 0', lambda data: b''),
        ('half', 'line 1', lambda data: data[: len(data) // 2]))),
    Case('classes of another dataset', nothing, Refused(),
         {f'{split}_dataloader.dataset.metainfo': {'_delete_': True} for split in SPLITS}),
    # MMDetection takes labels in the file's order whatever the config says: names would be exchanged silently
    Case('classes in another order', nothing, Refused(),
         {f'{split}_dataloader.dataset.metainfo.classes': NAMES[::-1] for split in SPLITS}),
    Case('a category of another name', content(lambda coco: coco['categories'][1].update(name='bush')), Refused()),
    Case('width and height exchanged', content(exchange_sides), Refused(in_images=True)),
    Case('classes are a text', nothing, Refused(),
         {f'{split}_dataloader.dataset.metainfo.classes': ('cat') for split in SPLITS}),
    Case("annotation ids from 0 in MMDetection's metric", every(lambda one, k: one.update(id=k)),
         Refused(splits=VAL), configure=by_mmdet),
    Case("no iscrowd in MMDetection's metric", without('annotations', 'iscrowd'), Refused(splits=VAL),
         configure=by_mmdet),
    Case('boxes only, for boxes', every(lambda one, k: one.pop('segmentation')), Perfect(), configure=boxes_only),
    Case('boxes are corners, without masks', every(lambda one, k: one.update(bbox=corners(one['bbox']))), Refused(),
         configure=boxes_only),
    Case('ignored objects only', every(lambda one, k: one.update(ignore=1)), Refused(splits=('train',))),
    Case('no area at all', every(lambda one, k: one.update(area=0)), Refused(splits=('train',))),
    Case('images below the smallest', nothing, Refused(splits=('train',)),
         {'train_dataloader.dataset.filter_cfg': dict(min_size=90)}),
    Case('a crowd', first(iscrowd=1), Perfect(complete=False)),
    Case('an annotation of another image', first(image_id=77), Warned((*ONE, 'of image 77', 'used nowhere'))),
    Case('an object twice', content(lambda coco: coco['annotations'].append(dict(coco['annotations'][0], id=99))),
         Warned(('1 objects more than once', 'image 1', 'remove the copies'))),
    Case('a box beside its outline', first(bbox=[10, 8, 24, 16]),
         Warned((*ONE, 'and an outline in the box', 'correct the one'))),
    Case('images without objects', content(lambda coco: coco['annotations'].__delitem__(slice(2))),
         Warned(('1 of 4 images', 'have no object', '0.png'), 7 / 9)),
    Case('a flat object, as COCO has two',
         first(bbox=[4, 8, 1.03, 0.0], area=0.0, segmentation=[[4, 8, 5, 8, 5, 8, 5, 8]]),
         Warned((*ONE, 'and the area 0.0'))),
    Case('an area is 0', first(area=0), Warned((*ONE, 'and the area 0'), 1.0)),
    Case('names that are not sorted', content(rename_categories), Perfect(),
         {f'{split}_dataloader.dataset.metainfo.classes': UNSORTED for split in SPLITS}),
    Case('two images by number', nothing, Perfect(), {f'{TEST}.indices': [3, 1]}),
    Case('every image twice', nothing, Perfect(), configure=wrap(type='RepeatDataset', times=2)),
    Case('one dataset of several', nothing, Perfect(), configure=wrap(type='ConcatDataset')),
    Case('two files in one test', nothing, Refused(splits=VAL), configure=of_two_files),
    Case('an evaluator with the file of other images', nothing, Refused(splits=VAL), configure=of_other_file),
]  # fmt: skip


def test_run_lengths_are_those_of_pycocotools():
    """As a list and as a text: a mask that is read is what was written, of any size."""
    for seed in each(range(30)):
        random = np.random.default_rng(seed)
        shown = random.random(random.integers(1, 90, 2)) < random.choice([0, 0.02, 0.5, 1])
        text = encoded(shown.astype(np.uint8))
        flat = np.r_[0, shown.ravel(order='F'), -1]
        changes = np.flatnonzero(np.diff(flat))
        counts = np.diff(np.r_[0, changes]).tolist()
        assert are_outlines([text, dict(text, counts=counts)])
        assert not are_outlines([dict(text, size=[text['size'][0] + 1, text['size'][1]])])
        assert rle.frPyObjects(dict(text, counts=counts), *text['size'])['counts'].decode() == text['counts']


def test_any_value_in_any_field_is_read_or_named(tmp_path, monkeypatch):
    """By the check and by `mmlape new` alike: no traceback, and the line has file and field."""
    monkeypatch.chdir(tmp_path)
    make_coco(tmp_path)
    file = annotations_of(tmp_path, 'train')
    original = json.loads(file.read_text())
    del original['images'][1:], original['annotations'][1:]
    cfg = coco_config(tmp_path)
    for place, value in each(itertools.product(places(original), VALUES)):
        file.write_text(json.dumps(with_value(original, place, value)))
        issues = list(next(iter_sources(cfg)).structure_issues(complete=False))
        errors = [issue.message for issue in issues if issue.severity == 'error']
        for message in errors:
            assert 'train2017' in message and '\n' not in message, message
        try:
            found = look(Path('annotations/instances_train2017.json'))
            assert all(found.cut(sample, (0, 0, 20, 20)) for sample in found.of_split['train'])
        except DataError as error:
            assert '\n' not in str(error)


@of_splits
def test_the_contract_holds_of_coco(tmp_path, every_split):
    told = [line for case in each(CASES) for line in hold(case, COCO, tmp_path, every_split)]
    assert_told('refused-coco', '\n'.join(told))
