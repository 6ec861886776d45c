"""A detector that is exact on what it sees completely, and MMEngine's loops with it on images in tiles."""

from types import SimpleNamespace

import numpy as np
import torch
from mmdet.structures import DetDataSample
from mmengine import Config
from mmengine.dataset import DefaultSampler, pseudo_collate
from mmengine.evaluator import Evaluator
from mmengine.structures import InstanceData
from pycocotools import mask as coco_mask
from scipy import ndimage
from torch.utils.data import DataLoader

from mmlape.lab.evaluation import CocoMetric
from mmlape.lab.inference.tiled_loops import TiledTestLoop, TiledValLoop


def squares(rng, size, share=0.7):
    """White rectangles of at most 9 x 9 pixels in cells of 14 x 14, in a share of the cells, on black."""
    image = np.zeros((*size, 3), np.uint8)
    for top, left in np.ndindex(size[0] // 14, size[1] // 14):
        height, width = rng.integers(3, 10, 2)
        y, x = 14 * top + rng.integers(14 - height), 14 * left + rng.integers(14 - width)
        image[y : y + height, x : x + width] = 255 * (rng.random() < share)
    return image


def components(image, every=1):
    """The bright areas of an image (H, W), the more certain the larger, of whose areas ``every`` is a divisor."""
    numbered, count = ndimage.label(image > 200)
    masks = np.array([numbered == number + 1 for number in range(count)]).reshape(-1, *numbered.shape)
    boxes = [[x.start, y.start, x.stop, y.stop] for y, x in ndimage.find_objects(numbered)]
    found = InstanceData(
        bboxes=torch.tensor(boxes).reshape(-1, 4).float(),
        scores=torch.from_numpy(masks.sum((1, 2)) / 1000).float(),
        labels=torch.zeros(count, dtype=torch.long),
        masks=torch.from_numpy(masks.astype(bool)),
    )
    return found[found.masks.sum((1, 2)) % every == 0]


class Components:
    """Finds each bright area."""

    task, classes, cfg = 'detection', ('bright',), Config()
    every = 1

    def eval(self):
        pass

    def test_step(self, batch):
        found = [components(image[0].numpy(), self.every) for image in batch['inputs']]
        shapes = [image.shape[1:] for image in batch['inputs']]
        return [
            DetDataSample(metainfo=dict(ori_shape=shape), pred_instances=objects)
            for shape, objects in zip(shapes, found)
        ]

    val_step = test_step


class Images(list):
    metainfo = dict(classes=Components.classes)


def loop_on(images, split='test', most=None, every=1, **tiles):
    """A loop of a detector, whose ``outputs`` are what its hooks have got."""
    samples = Images()
    for number, image in enumerate(images):
        truth = components(image[..., 0])
        masks = [coco_mask.encode(np.asfortranarray(mask.numpy(), np.uint8)) for mask in truth.masks]
        instances = [
            dict(bbox=box, bbox_label=0, mask=mask, ignore_flag=0) for box, mask in zip(truth.bboxes.tolist(), masks)
        ]
        shape = image.shape[:2]
        meta = dict(img_id=number, img_path=f'{number}.png', ori_shape=shape, img_shape=shape, instances=instances)
        inputs = torch.from_numpy(image.transpose(2, 0, 1).copy())
        samples.append(dict(inputs=inputs, data_samples=DetDataSample(metainfo=meta, gt_instances=truth)))
    loader = DataLoader(samples, 2, sampler=DefaultSampler(samples, shuffle=False), collate_fn=pseudo_collate)
    outputs = []
    runner = SimpleNamespace(
        model=Components(),
        cfg=Config(dict(default_scope='mmdet', model={})),
        visualizer=SimpleNamespace(),
        call_hook=lambda name, **values: outputs.extend(values.get('outputs', ())),
    )
    runner.model.every = every
    evaluator = Evaluator(CocoMetric(metric=['bbox', 'segm'], max_per_img=most))
    loop = dict(val=TiledValLoop, test=TiledTestLoop)[split](runner, loader, evaluator, **tiles)
    loop.outputs = outputs
    return loop
