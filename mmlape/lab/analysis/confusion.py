"""What a model takes for what: confusion matrices as those of the MM packages' tools, and how good each image is.

A matrix counts by true class (row) and predicted class (column): pixels of a segmentor, images of a
classifier, boxes of a detector. That of a detector has one more row and column, for no object: a
box that no object is at, an object that is not found.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from mmengine.dataset import BaseDataset
from mmengine.structures import BaseDataElement, InstanceData

from mmlape.errors import ConfigError
from mmlape.lab.inference.tiling import encoded

SCORE, IOU = 0.3, 0.5
"""From which score on a box counts, and from which IoU on it is at an object."""
NOTHING = 'no object'
IGNORED = 255


class Confusion(ABC):
    """The matrix of a test set, image by image.

    Args:
        dataset: Of the test.
    """

    unit: str
    about: str = ''  # how it is counted
    better: str  # what the score of an image is

    def __init__(self, dataset: BaseDataset) -> None:
        self.dataset = dataset
        self.classes = [str(name) for name in dataset.metainfo['classes']]
        self.names = self.classes
        self.matrix = np.zeros((len(self.names),) * 2, np.int64)

    @abstractmethod
    def add(self, sample: BaseDataElement) -> float:
        """Count a predicted sample; return how good the prediction is, in [0, 1]."""

    def drawn(self, sample: BaseDataElement) -> BaseDataElement:
        """Return what of a sample is drawn: truth and prediction, without logits."""
        return sample.cpu()


class PixelConfusion(Confusion):
    """A segmentor's: pixels that are not ignored."""

    unit = 'pixels'
    about = 'Ignored pixels are left out.'
    better = 'mean IoU of the classes in the image'

    def add(self, sample: BaseDataElement) -> float:
        """Count an image's pixels; return the mean IoU of the classes that are in the truth or predicted."""
        if 'gt_sem_seg' not in sample:
            raise ConfigError('the page of a test needs the truth: the test pipeline has no LoadAnnotations')
        truth = sample.gt_sem_seg.data.squeeze(0).cpu()
        predicted = sample.pred_sem_seg.data.squeeze(0).cpu().long()
        valid = truth != IGNORED
        size = len(self.names)
        places = truth[valid].long() * size + predicted[valid]
        counts = torch.bincount(places, minlength=size * size).view(size, size).numpy()
        self.matrix += counts
        union = counts.sum(0) + counts.sum(1) - counts.diagonal()
        if not union.any():
            return 1.0
        shares = counts.diagonal() / np.maximum(union, 1)
        return float(shares[union > 0].mean())

    def drawn(self, sample: BaseDataElement) -> BaseDataElement:
        """Leave out the logits, which take as much memory as there are classes."""
        kept = sample.new()
        if 'seg_logits' in kept:
            del kept.seg_logits
        return kept.cpu()


class ImageConfusion(Confusion):
    """A classifier's: images."""

    unit = 'images'
    better = 'score of the true class'

    def add(self, sample: BaseDataElement) -> float:
        """Count an image; return the score of its class, the largest of several."""
        if 'gt_label' not in sample:
            raise ConfigError('the page of a test needs the truth: the test set has no labels')
        scores = sample.pred_score.cpu()
        for label in sample.gt_label.tolist():
            self.matrix[label, int(scores.argmax())] += 1
        return float(scores[sample.gt_label.cpu()].max())


class BoxConfusion(Confusion):
    """A detector's: boxes with a score of at least `SCORE`, at objects by an IoU of at least `IOU`."""

    unit = 'boxes'
    about = (
        f'A box counts from a score of {SCORE:g} on, for each object that it overlaps by an IoU of {IOU:g} or more. '
        f'{NOTHING.capitalize()} as a row: boxes at no object; as a column: objects that no box of their class is at.'
    )
    better = f'F1 of the boxes, score {SCORE:g} or more, at IoU {IOU:g}'

    def __init__(self, dataset: BaseDataset) -> None:
        super().__init__(dataset)
        self.names = [*self.classes, NOTHING]
        self.matrix = np.zeros((len(self.names),) * 2, np.int64)
        self.places: dict[Any, int] = {}

    def add(self, sample: BaseDataElement) -> float:
        """Count an image's boxes, each for every object it is at.

        Return the F1 of pairs of box and object.
        """
        from mmdet.evaluation.functional import bbox_overlaps

        found = sample.pred_instances.cpu()
        found = found[found.scores >= SCORE]
        truth = self.truth(sample)
        labels, true_labels = found.labels.numpy(), truth.labels.numpy()
        at = bbox_overlaps(found.bboxes.numpy(), truth.bboxes.numpy()) >= IOU  # (boxes, objects)
        for box, true in zip(*at.nonzero()):
            self.matrix[true_labels[true], labels[box]] += 1
        np.add.at(self.matrix, (-1, labels[~at.any(1)]), 1)
        right = at & (labels[:, None] == true_labels)
        np.add.at(self.matrix, (true_labels[~right.any(0)], -1), 1)
        return _f1(right, found.scores.numpy())

    def truth(self, sample: BaseDataElement) -> InstanceData:
        """Return the objects of the annotation file, in pixels of the original image, without crowds."""
        if not self.places:
            self.places = {self.dataset.get_data_info(i)['img_id']: i for i in range(len(self.dataset))}
        instances = self.dataset.get_data_info(self.places[sample.img_id])['instances']
        objects = [one for one in instances if not one.get('ignore_flag')]
        boxes = np.array([one['bbox'] for one in objects], np.float32).reshape(-1, 4)
        labels = torch.tensor([one['bbox_label'] for one in objects], dtype=torch.long)
        truth = InstanceData(bboxes=torch.from_numpy(boxes), labels=labels)
        if objects and all(one.get('mask') for one in objects):
            truth.masks = [one['mask'] for one in objects]  # as they are in the file
        return truth

    def drawn(self, sample: BaseDataElement) -> BaseDataElement:
        """Draw the objects of the annotation file: those of the pipeline may be resized. Masks are run lengths."""
        size = sample.ori_shape[:2]
        found = sample.pred_instances.cpu()
        found = found[found.scores >= SCORE]
        if 'masks' in found and not isinstance(found.masks, list):
            found = encoded(found, (slice(0, size[0]), slice(0, size[1])), size)
        return type(sample)(metainfo=sample.metainfo, gt_instances=self.truth(sample), pred_instances=found)


def _f1(right: np.ndarray, scores: np.ndarray) -> float:
    """Return the F1 of boxes and objects, (boxes, objects) bool.

    Only the best box of an object is right.
    """
    taken = np.zeros(right.shape[1], bool)
    for box in np.argsort(-scores, kind='stable'):
        free = np.flatnonzero(right[box] & ~taken)
        taken[free[:1]] = True
    total = sum(right.shape)
    return 2 * float(taken.sum()) / total if total else 1.0


CONFUSIONS: dict[str, type[Confusion]] = {
    'pred_sem_seg': PixelConfusion,
    'pred_instances': BoxConfusion,
    'pred_label': ImageConfusion,
}
"""By what a predicted sample has."""


def confusion_of(sample: BaseDataElement, dataset: BaseDataset) -> Confusion:
    """Return an empty matrix for the test set of a model that predicts such samples.

    Raises:
        ConfigError: The model is of another kind, or the test set has no names of classes.
    """
    if not (getattr(dataset, 'metainfo', None) or {}).get('classes'):
        raise ConfigError('drawings of a test need the names of the classes: set metainfo=dict(classes=...)')
    for field, confusion_class in CONFUSIONS.items():
        if field in sample:
            return confusion_class(dataset)
    raise ConfigError(f'there are no drawings of a test whose samples have {", ".join(sample.keys())}')
