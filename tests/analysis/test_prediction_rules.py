"""What a prediction means, by models made by hand: boxes on the original image, thresholds, files."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from each import each
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData
from PIL import Image
from pycocotools import mask as coco_mask

from mmlape.errors import DataError
from mmlape.lab.inference.drawing import resized
from mmlape.lab.inference.images import to_array
from mmlape.lab.inference.predicted_files import predict_files
from mmlape.lab.inference.prediction import Model
from mmlape.lab.inference.results import Detection

CLASSES = ('bright', 'dark', 'none')
HEIGHT, WIDTH = 24, 40


def brightest(image: np.ndarray) -> InstanceData:
    """Find what is brighter than 200 as one object, and what is darker than 50 as another."""
    found = []
    for label, mask in enumerate((image[..., 0] > 200, image[..., 0] < 50)):
        rows, columns = np.nonzero(mask)
        if len(rows):
            box = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            found.append((box, 0.25 + 0.5 * label, label, mask))
    boxes, scores, labels, masks = zip(*found) if found else ([], [], [], np.zeros((0, *image.shape[:2])))
    return InstanceData(
        bboxes=torch.tensor(np.array(boxes, np.float32).reshape(-1, 4)),
        scores=torch.tensor(scores).float(),
        labels=torch.tensor(labels, dtype=torch.long), masks=torch.from_numpy(np.array(masks, bool)),
    )  # fmt: skip


class Preparation:
    """Images as they are."""

    smallest = 1

    def of_file(self, path):
        return self.of_array(to_array(path))

    def of_array(self, image):
        return dict(inputs=torch.from_numpy(image.transpose(2, 0, 1).copy()))


class Finder:
    """A detector made by hand."""

    task, classes, preparation, cfg = 'detection', CLASSES, Preparation(), {}

    def test_step(self, batch):
        images = [one.permute(1, 2, 0).numpy() for one in batch['inputs']]
        return [
            DetDataSample(metainfo=dict(ori_shape=image.shape[:2]), pred_instances=brightest(image))
            for image in images
        ]


model = Model(Finder())


def scene(box=(5, 2, 30, 10), dark=(10, 15, 12, 20)):
    image = np.full((HEIGHT, WIDTH, 3), 120, np.uint8)
    for value, (left, top, right, bottom) in ((255, box), (0, dark)):
        image[top:bottom, left:right] = value
    return image


def test_objects_are_by_falling_score_and_the_threshold_is_one_of_them():
    (found,) = model.predict(scene())
    assert found.size == (HEIGHT, WIDTH) and found.names == ['dark', 'bright']
    np.testing.assert_array_equal(found.boxes, [[10, 15, 12, 20], [5, 2, 30, 10]])
    assert found.scores.tolist() == [0.75, 0.25] and found.masks.sum((1, 2)).tolist() == [10, 200]
    assert found.above(0.25).names == found.names and found.above(0.75).names == ['dark']
    assert found.above(0.7500001).names == [] and found.above(0.5).masks.sum() == 10


def test_the_coco_file_has_the_areas_of_masks_or_boxes(tmp_path):
    ring = scene(dark=(0, 0, 0, 0))
    ring[3:9, 7:28] = 120
    for folder in ('masks', 'boxes'):
        (tmp_path / folder).mkdir()
        Image.fromarray(ring).save(tmp_path / folder / 'a.png')
    assert predict_files(model, tmp_path / 'masks', tmp_path / 'out', overlays=False) == (1, [])
    (row,) = json.loads((tmp_path / 'out' / 'predictions.json').read_text())['annotations']
    assert row['bbox'] == [5, 2, 25, 8] and row['area'] == 200 - 6 * 21 == coco_mask.area(row['segmentation'])
    without = Finder()
    without.test_step = lambda batch: [_without_masks(one) for one in Finder.test_step(without, batch)]
    predict_files(Model(without), tmp_path / 'boxes', tmp_path / 'other', overlays=False)
    content = json.loads((tmp_path / 'other' / 'predictions.json').read_text())
    (row,) = content['annotations']
    assert row['area'] == 200 and 'segmentation' not in row and row['category_id'] == 1 and row['score'] == 0.25
    assert content['images'] == [dict(id=1, file_name='a.png', width=WIDTH, height=HEIGHT)]


def _without_masks(sample):
    del sample.pred_instances.masks
    return sample


def test_skipped_images_are_told_and_others_are_predicted_on(tmp_path):
    """Whichever tile of an image fails, the image is skipped; the files of images in one tile are those without."""
    images, names = tmp_path / 'images', ['a.png', 'c.png']
    images.mkdir()
    for name in ('a.png', 'b.PNG', 'c.png'):
        image = scene()
        image[-1, -1] += name == 'b.PNG'
        Image.fromarray(image).save(images / name, 'PNG')
    (images / 'd.png').write_bytes(b'no image')

    class Broken(Preparation):
        def of_array(self, image):
            if image[-1, -1, 0] == 121:
                raise DataError('too small')
            return super().of_array(image)

    finder, texts = Finder(), {}
    finder.preparation = Broken()
    for tile, batch_size in each(product((None, WIDTH, 20), (1, 2, 5))):
        out = tmp_path / f'out {tile} {batch_size}'
        done, skipped = predict_files(Model(finder), images, out, batch_size=batch_size, tile=tile)
        assert done == 2 and skipped[0] == (images / 'b.PNG', f'{images}/b.PNG: too small')
        assert [path for path, _ in skipped[1:]] == [images / 'd.png'] and skipped[1][1].count('d.png') == 1
        texts[tile, batch_size] = (out / 'predictions.json').read_text()
        content = json.loads(texts[tile, batch_size])
        assert [(image['id'], image['file_name']) for image in content['images']] == [*enumerate(names, 1)]
        counts = [len(found.names) for found in model.predict([images / name for name in names], tile=tile)]
        assert [row['image_id'] for row in content['annotations']] == [1] * counts[0] + [2] * counts[1]
        assert [row['id'] for row in content['annotations']] == [*range(1, sum(counts) + 1)]
        assert all(row['segmentation']['size'] == [HEIGHT, WIDTH] for row in content['annotations'])
        assert sorted(path.name for path in (out / 'overlays').iterdir()) == names
    assert len({*texts.values()}) == 2 and texts[None, 1] == texts[WIDTH, 5] != texts[20, 1]


def test_a_stream_is_read_no_further_than_a_batch():
    def images() -> Iterator[np.ndarray]:
        for number in range(9):
            read.append(number)
            yield scene()

    read: list[int] = []
    stream = model.predict_each(images(), batch_size=2)
    assert isinstance(next(stream), Detection) and read == [0, 1]
    assert len(list(stream)) == 8 and len(read) == 9
    with pytest.raises(ValueError, match='batch_size=0'):
        model.predict(scene(), batch_size=0)


def test_overlays_are_drawn_on_the_image_that_was_given(tmp_path):
    """A file of 16 bits and its image of Pillow, with nothing to draw."""
    values = np.linspace(51 * 256, 199 * 256, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / 'deep.png')
    expected = resized(np.repeat((values >> 8).astype(np.uint8)[..., None], 3, axis=2))
    for image in (Path(tmp_path / 'deep.png'), Image.fromarray(values), values):
        sample = DetDataSample(metainfo=dict(ori_shape=(HEIGHT, WIDTH)), pred_instances=brightest(expected[:1, :1]))
        drawn = Detection.of(sample, image, CLASSES).draw()
        assert drawn.shape == expected.shape and np.abs(drawn.astype(int) - expected).max() <= 1
