"""Large images with small objects in `mmlape new`: windows at native resolution, tiles, and images divided by area."""

import json
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mmdet.structures.bbox import HorizontalBoxes
from mmdet.structures.mask import BitmapMasks, PolygonMasks
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image, TiffImagePlugin
from properties import examples
from pycocotools import mask as coco_mask
from test_new import SHORT

from mmlape.cli import main
from mmlape.lab.datasets.crops import RandomCrop
from mmlape.lab.datasets.transforms import LoadImageFromFile
from mmlape.lab.inference.tiling import Tiling
from mmlape.new.coco import cut_object
from mmlape.new.command import look
from mmlape.new.found_data import divide_area

SIZE = (900, 1000)
RANDOM = np.random.default_rng(3)


def circles(count: int, size=SIZE) -> list[tuple[int, int, int]]:
    """Middle and radius of objects of 12 to 30 pixels, one in the middle of the line that divides the image."""
    places = [(int(RANDOM.integers(20, size[0] - 20)), int(RANDOM.integers(20, size[1] - 20))) for _ in range(count)]
    return [(x, y, int(RANDOM.integers(6, 16))) for x, y in [*places[1:], (size[0] // 2, round(size[1] * 2 / 3))]]


def draw(objects, size=SIZE) -> np.ndarray:
    image = RANDOM.integers(60, 120, (size[1], size[0], 3), dtype=np.uint8)
    for x, y, radius in objects:
        cv2.circle(image, (x, y), radius, (40, 220, 60), -1)
    return image


def corners_of(circle: tuple[int, int, int]) -> tuple[int, int, int, int]:
    x, y, radius = circle
    return x - radius, y - radius, x + radius, y + radius


def photograph(root: Path, count: int = 60, masks: bool = False, size=SIZE) -> list[tuple[int, int, int]]:
    """Write an image with its annotations as LabelMe's file."""
    objects = circles(count, size)
    root.mkdir(exist_ok=True)
    Image.fromarray(draw(objects, size)).save(root / 'wood.png')
    shapes = []
    for x, y, radius in objects:
        left, top, right, low = corners_of((x, y, radius))
        rectangle = dict(shape_type='rectangle', points=[[left, top], [right, low]])
        circle = dict(shape_type='circle', points=[[x, y], [x + radius, y]])
        shapes.append(dict(circle if masks else rectangle, label='tree'))
    (root / 'wood.json').write_text(json.dumps(dict(shapes=shapes, imagePath='wood.png')))
    return objects


def words(out: str) -> str:
    return ' '.join(out.split())


def built(cfg: Config, split: str):
    init_default_scope(cfg.default_scope)
    return DATASETS.build(cfg[f'{split}_dataloader'].dataset)


# what the command writes ---------------------------------------------------------------------------------------------


def test_one_photograph_is_trained_on_and_tested_by_tiles(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    photograph(Path('wood'), masks=True)
    assert main(['new', 'wood', '--model', 'mini', '--iters', '20']) == 0
    printed = words(capsys.readouterr().out)
    assert 'images are not resized: training takes windows of 256 pixels, validation and tests go by tiles' in printed
    assert 'third of wood.png is for validation, and never trained on' in printed
    cfg = Config.fromfile('wood.py')
    assert cfg.val_cfg.tile == cfg.test_cfg.tile == cfg.img_size == 256 and 24 <= cfg.val_cfg.overlap <= 30
    train = built(cfg, 'train')
    assert len(train) == 4 * 3  # windows that cover 900 x 667 pixels
    for place in (0, 5, 11):
        assert train[place]['inputs'].shape == (3, 256, 256)
    few = ['train_cfg.rpn_proposal.max_per_img=50', 'test_cfg.rpn.max_per_img=50', 'test_cfg.rcnn.max_per_img=5']
    few += ['train_cfg.rcnn.sampler.num=16']
    options = ['train_dataloader.batch_size=1', *(f'model.{one}' for one in few)]
    assert main(['train', 'wood.py', *SHORT, *options]) == 0
    record = json.loads(Path('work_dirs/wood/run.json').read_text())
    assert record['state'] == 'finished' and {'coco/bbox_mAP', 'coco/segm_mAP'} <= record['last']['metrics'].keys()
    assert main(['test', 'work_dirs/wood']) == 0


def parts_of(cfg: Config) -> dict[str, tuple[np.ndarray, list]]:
    """Return the pixels and the records of each split."""
    parts = {}
    for split in ('train', 'val'):
        dataset = cfg[f'{split}_dataloader'].dataset
        dataset = dataset.get('dataset', dataset)
        content = json.loads(Path(dataset.ann_file).read_text())
        (record,) = content['images']
        pixels = cv2.imread(dataset.data_prefix.img + record['file_name'])
        assert pixels.shape[:2] == (record['height'], record['width'])
        parts[split] = pixels, content['annotations']
    return parts


@pytest.mark.parametrize(('masks', 'seed'), [(False, 0), (True, 2)])  # the last third, and the first
def test_an_image_is_divided_without_a_shared_pixel(masks, seed, tmp_path, monkeypatch):
    """The parts are the image again, and each object is where it was drawn, in the part that has enough of it."""
    monkeypatch.chdir(tmp_path)
    objects = photograph(Path('wood'), masks=masks)
    assert main(['new', 'wood', '--model', 'mini', '--iters', '20', '--seed', str(seed)]) == 0
    parts = parts_of(Config.fromfile('wood.py'))
    order = [split for split in ('train', 'val') if len(parts[split][0]) == 667]
    assert order == ['train'], 'two thirds are trained on'
    original = cv2.imread('wood/wood.png')
    is_last = np.array_equal(parts['train'][0], original[:667])
    order = ('train', 'val') if is_last else ('val', 'train')
    np.testing.assert_array_equal(np.concatenate([parts[split][0] for split in order]), original)
    cut = len(parts[order[0]][0])
    for split, top, low in ((order[0], 0, cut), (order[1], cut, 1000)):
        expected = set()
        for left, first, right, last in map(corners_of, objects):
            height = min(last, low) - max(first, top)
            if height >= 0.3 * (last - first):
                expected.add((left, max(first, top) - top, right - left, height))
        found = {tuple(np.round(one['bbox']).astype(int).tolist()): one for one in parts[split][1]}
        if masks:  # the cut part of a circle may be narrower
            narrow = {box for box in expected if cut in (top + box[1], top + box[1] + box[3])} - found.keys()
            assert len(narrow) <= 1
            for left, first, width, height in narrow:
                (box,) = found.keys() - expected
                assert left <= box[0] and box[0] + box[2] <= left + width and (box[1], box[3]) == (first, height)
                expected = expected - narrow | {box}
        assert found.keys() == expected
        for box in expected if masks else ():
            mask = coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(found[box]['segmentation'], 1000, 900)))
            assert mask.sum() == pytest.approx(found[box]['area'], rel=0.15)
            ys, xs = mask.nonzero()
            assert abs(ys.max() + 1 - box[1] - box[3]) <= 1 and abs(xs.min() - box[0]) <= 1


def test_large_label_maps_are_divided_and_trained_on_by_windows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    objects = circles(30, (1500, 1200))
    for folder in ('images', 'labels'):
        Path('maps', folder).mkdir(parents=True)
    image, labels = draw(objects, (1500, 1200)), np.zeros((1200, 1500), np.uint8)
    for x, y, radius in objects:
        cv2.circle(labels, (x, y), radius, 7, -1)
    Image.fromarray(image).save('maps/images/a.jpg')
    labels[:40] = 9  # no data, as GDAL's tag says
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[42113] = '9'
    Image.fromarray(labels).save('maps/labels/a.tif', tiffinfo=tags)
    found = look(Path('maps'))
    assert main(['new', 'maps', '--model', 'mini', '--iters', '20']) == 0
    cfg = Config.fromfile('maps.py')
    assert (cfg.img_size, cfg.val_cfg.tile, cfg.val_cfg.overlap) == (128, 128, 42)
    train, val = built(cfg, 'train'), built(cfg, 'val')
    assert len(train) == 8 * 10 and len(val) == 1  # 1000 x 1200 and 500 x 1200 pixels
    assert train[0]['inputs'].shape == (3, 128, 128)
    whole = val[0]['data_samples'].gt_sem_seg.data[0].numpy()
    ends = labels[:, 1000:], labels[:, :500]
    assert any(np.array_equal(whole, np.where(end == 9, 255, end == 7)) for end in ends)
    assert found.counts['id 7'] == (labels == 7).sum()


def test_objects_that_stay_large_enough_are_resized(tmp_path, monkeypatch):
    """The median decides: of 48 pixels and more in 900, resized to 256, above 13; 60 are 17."""
    monkeypatch.chdir(tmp_path)
    Path('wood').mkdir()
    Image.new('RGB', SIZE).save('wood/0.png')
    shape = dict(shape_type='rectangle', points=[[100, 100], [160, 160]], label='tree')
    file = Path('wood/0.json')
    file.write_text(json.dumps(dict(shapes=[shape], imagePath='0.png')))
    assert look(Path('wood')).tiling(256) is None
    file.write_text(file.read_text().replace('160', '150'))
    assert look(Path('wood')).tiling(256) == Tiling(256, 50)


def test_as_many_objects_are_kept_as_the_fullest_tile_and_image_have(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    boxes = photograph(Path('wood'), count=700)
    found = look(Path('wood'))
    assert found.fullest() == 700
    corners = np.array([corners_of(one) for one in boxes])
    counts = []
    for rows, columns in Tiling(256, 30).windows(1000, 900):
        low, high = np.array([columns.start, rows.start]), np.array([columns.stop, rows.stop])
        counts.append(((corners[:, :2] < high) & (corners[:, 2:] > low)).all(1).sum())
    assert found.fullest(Tiling(256, 30)) == max(counts)


@pytest.mark.parametrize('end', ['first', 'last'])
@examples()
@given(width=st.integers(3, 4000), height=st.integers(3, 4000))
def test_parts_cover_an_image_once(end, width, height):
    train, val = divide_area((width, height), end)
    areas = [(right - left) * (low - top) for left, top, right, low in (train, val)]
    assert sum(areas) == width * height and areas[0] == pytest.approx(2 * areas[1], abs=2 * max(width, height))
    assert (train < val) == (end == 'last')


@examples()
@given(st.integers(0, 2**32 - 1))
def test_a_part_of_an_outline_is_the_part_of_its_mask(seed):
    """Of a polygon, however it lies, and of run lengths: the pixels that the complete mask has there."""
    random = np.random.default_rng(seed)
    corners = random.integers(0, 60, (6, 2)).astype(float)
    (low, high) = corners.min(0), corners.max(0)
    part = (10, 5, 45, 38)
    runs = coco_mask.merge(coco_mask.frPyObjects([corners.ravel().tolist()], 60, 60))
    mask = coco_mask.decode(runs)[5:38, 10:45]
    box = [*low.tolist(), *(high - low).tolist()]
    for outline in ([corners.ravel().tolist()], dict(size=[60, 60], counts=runs['counts'])):
        cut = cut_object(dict(bbox=box, area=1.0, iscrowd=0, segmentation=outline), part, (60, 60))
        inside = np.minimum(high, (45, 38)) - np.maximum(low, (10, 5))
        too_little = inside.clip(0).prod() < 0.3 * (high - low).prod()
        assert (cut is None) == too_little or not mask.any()
        if cut is None:
            continue
        found = cut['segmentation']
        shapes = [found] if isinstance(found, dict) else coco_mask.frPyObjects(found, 33, 35)
        drawn = coco_mask.decode(coco_mask.merge(shapes))
        assert np.abs(drawn.astype(int) - mask).sum() <= (33 + 35 + 6) * (found is not outline)  # of edges
        extent = [*extent_of(found)] if isinstance(found, list) else coco_mask.toBbox(shapes[0])
        np.testing.assert_allclose(cut['bbox'], extent)


def extent_of(polygons):
    """Left, top, width and height of polygons."""
    points = np.concatenate([np.reshape(one, (-1, 2)) for one in polygons])
    return *points.min(0), *np.ptp(points, axis=0)


# transforms ----------------------------------------------------------------------------------------------------------


def sample_of(boxes: np.ndarray, masks=None, size=(90, 120)) -> dict:
    image = np.arange(size[0] * size[1], dtype=np.int32).reshape(*size, 1)
    return dict(
        img=image,
        gt_bboxes=HorizontalBoxes(torch.tensor(boxes, dtype=torch.float32)),
        gt_bboxes_labels=np.arange(len(boxes)),
        gt_ignore_flags=np.zeros(len(boxes), bool),
        **({} if masks is None else dict(gt_masks=masks)),
    )


@examples()
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([0.0, 1.0]))
def test_a_crop_keeps_what_has_enough_inside(seed, min_kept, around):
    """Boxes and masks by a second computation, pixel by pixel of the window."""
    random = np.random.default_rng(seed)
    corners = random.integers((0, 0), (100, 70), (8, 2))
    boxes = np.concatenate((corners, corners + random.integers(4, 20, (8, 2))), 1)
    # each a box, of which every second one lacks a corner
    polygons = [[np.array([a, b, c, b, c, d, a, d][: 8 - 2 * (n % 2)], float)] for n, (a, b, c, d) in enumerate(boxes)]
    masks = PolygonMasks(polygons, 90, 120)
    results = []
    for one in (masks, masks.to_bitmap()):
        np.random.seed(seed)
        results.append(RandomCrop((40, 32), min_kept, around)(sample_of(boxes, one)))
    pixels = results[0]['img'][..., 0]
    top, left = divmod(int(pixels[0, 0]), 120)
    assert pixels.shape == results[0]['img_shape'] == (32, 40)
    kept, shown = [], masks.to_bitmap().masks[:, top : top + 32, left : left + 40]
    for number, (a, b, c, d) in enumerate(boxes):
        complete = np.zeros((90, 120), int)
        complete[b:d, a:c] = 1
        share = complete[top : top + 32, left : left + 40].sum() / complete.sum()
        if share >= min_kept and shown[number].any():
            kept.append(number)
    for result in results:
        assert result['gt_bboxes_labels'].tolist() == kept and len(result['gt_bboxes']) == len(kept)
        assert isinstance(result['gt_masks'], BitmapMasks) and len(result['gt_masks']) == len(kept)
        for mask, wanted, box in zip(result['gt_masks'].masks, shown[kept], result['gt_bboxes'].tensor.tolist()):
            assert (mask != wanted).sum() <= 2 * (32 + 40)  # a cut polygon is drawn anew, along its edges
            rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            assert box == [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    if around == 1.0 and min_kept == 0.0:
        centres = (boxes[:, :2] + boxes[:, 2:]) // 2 - (left, top)
        assert ((centres >= 0) & (centres < (40, 32))).all(1).any()


def test_ignored_objects_stay_whatever_is_left_and_small_images_as_they_are():
    boxes = np.array([[0, 0, 120, 90]])
    sample = sample_of(boxes)
    sample['gt_ignore_flags'][:] = True
    assert len(RandomCrop((30, 30))(sample)['gt_bboxes']) == 1
    assert len(RandomCrop((30, 30))(sample_of(boxes))['gt_bboxes']) == 0
    whole = RandomCrop((200, 200))(sample_of(boxes))
    assert whole['img_shape'] == (90, 120) and whole['gt_bboxes'].tensor.tolist() == boxes.tolist()


def test_images_stay_decoded_as_far_as_the_memory_goes(tmp_path, monkeypatch):
    """What is returned may be changed; a file that does not fit is read again."""
    for number in range(3):
        Image.fromarray(np.full((300, 400, 3), number, np.uint8)).save(tmp_path / f'{number}.png')
    load = LoadImageFromFile(cache_mib=1)  # two of 352 KiB
    reads = []
    decode = load.loader.load
    load.loader = SimpleNamespace(load=lambda path, seen: reads.append(path) or decode(path))
    for number in (0, 1, 0, 2, 0, 1):
        image = load(dict(img_path=str(tmp_path / f'{number}.png')))['img']
        assert (image == number).all()
        image += 50
    assert [int(Path(path).stem) for path in reads] == [0, 1, 2, 1]
