"""What a model predicts on an image, for each task: arrays, a drawing, a line of JSON, and files of many images.

<out>/labels/NAME.png      segmentation: the label of each pixel, a place in the list of the classes
<out>/classes.json         segmentation: the classes
<out>/predictions.json     detection: images, categories and annotations, as COCO's files have them
<out>/predictions.json     classification: for each image its class, its score, and the five most likely classes
"""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from pycocotools import mask as coco_mask

from mmlape.errors import ConfigError, listed
from mmlape.files import write_json, write_text
from mmlape.lab.evaluation.saved import object_rows, row_lines, save_label_map, write_rows
from mmlape.lab.inference.drawing import Colour, draw_sample
from mmlape.lab.inference.images import ImageLike, to_array
from mmlape.lab.inference.tiling import objects_of

Write = Callable[[Path, Any], None]
"""Writes what is predicted on an image, whose path is that in its folder."""


@dataclass(frozen=True, eq=False)
class Prediction(ABC):
    """What a model predicts on an image."""

    path: Path | None  # the image file; None for an image in memory
    size: tuple[int, int]  # height and width of the image in pixels
    classes: tuple[str, ...]  # the name of each label
    sample: BaseDataElement  # the same as OpenMMLab's data sample
    image: ImageLike  # as it was given
    palette: Sequence[Colour] | None = field(default=None, kw_only=True)  # the colour of each label

    @classmethod
    def of(
        cls, sample: BaseDataElement, image: ImageLike, classes: Sequence[str], palette: Sequence[Colour] | None = None
    ) -> 'Prediction':
        """Build the prediction from a model's output."""
        height, width = sample.ori_shape[:2]
        return cls(
            path=Path(image) if isinstance(image, str | Path) else None,
            size=(int(height), int(width)),
            classes=tuple(classes),
            sample=sample,
            image=image,
            palette=palette,
            **cls.arrays(sample),
        )

    @staticmethod
    @abstractmethod
    def arrays(sample: BaseDataElement) -> dict[str, Any]:
        """Return the fields that a task adds."""

    @abstractmethod
    def row(self) -> dict[str, Any]:
        """Return what is predicted as JSON's values; masks as COCO's run lengths."""

    @staticmethod
    @abstractmethod
    def sample_of(row: dict[str, Any], classes: Sequence[str]) -> BaseDataElement:
        """Return the data sample of a row, as far as it is drawn."""

    def draw(self, score_thr: float = 0.3, labels: bool = True) -> np.ndarray:
        """Draw the prediction on its image; a small one is enlarged to a legible size.

        Return (H, W, 3), RGB, uint8, with the legend below.

        Args:
            score_thr: Objects with a lower score are left out.
            labels: Whether to write the names of classes.
        """
        image = to_array(self.image)
        return draw_sample(image, self.sample, self.classes, self.palette, score_thr, ('pred',), labels=labels)


@dataclass(frozen=True, eq=False)
class Detection(Prediction):
    """Objects in an image, the most certain first."""

    boxes: np.ndarray  # (N, 4), float32: left, top, right and bottom in pixels
    scores: np.ndarray  # (N,), float32, in [0, 1]
    labels: np.ndarray  # (N,), int64, places in ``classes``
    # (N, H, W), bool; of tiles (N,), COCO's run lengths; None if the model predicts boxes only
    masks: np.ndarray | None

    @staticmethod
    def arrays(sample: BaseDataElement) -> dict[str, Any]:
        """Return boxes, scores, labels and masks."""
        found = objects_of(sample)
        order = np.argsort(-found.scores.numpy(), kind='stable')
        return dict(
            boxes=np.asarray(found.bboxes)[order],
            scores=np.asarray(found.scores)[order],
            labels=np.asarray(found.labels)[order],
            masks=np.asarray(found.masks)[order] if 'masks' in found else None,
        )

    def row(self) -> dict[str, Any]:
        """Return the objects: class, box (x, y, width, height), score and mask."""
        keys, found = ('bbox', 'score', 'segmentation'), object_rows(self.sample.pred_instances, 0, None)
        return dict(
            objects=[
                {'class': self.classes[one['category_id']], **{key: one[key] for key in keys if key in one}}
                for one in found
            ]
        )

    @staticmethod
    def sample_of(row: dict[str, Any], classes: Sequence[str]) -> BaseDataElement:
        """Return the objects."""
        found = row['objects']
        boxes = torch.tensor([one['bbox'] for one in found]).reshape(-1, 4)
        objects = InstanceData(
            bboxes=torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1),
            scores=torch.tensor([one['score'] for one in found]),
            labels=torch.tensor([classes.index(one['class']) for one in found], dtype=torch.long),
        )
        masks: Sequence[dict] = [one['segmentation'] for one in found if 'segmentation' in one]
        if found and len(masks) == len(found):
            objects.masks = masks
        return BaseDataElement(pred_instances=objects)

    @property
    def names(self) -> list[str]:
        """The class of each object."""
        return [self.classes[label] for label in self.labels]

    def above(self, score: float) -> 'Detection':
        """Return the objects with at least this score."""
        kept = self.scores >= score
        masks = None if self.masks is None else self.masks[kept]
        return replace(self, boxes=self.boxes[kept], scores=self.scores[kept], labels=self.labels[kept], masks=masks)


@dataclass(frozen=True, eq=False)
class Segmentation(Prediction):
    """The class of each pixel of an image."""

    labels: np.ndarray  # (H, W), int64, places in ``classes``

    @staticmethod
    def arrays(sample: BaseDataElement) -> dict[str, Any]:
        """Return the labels."""
        return dict(labels=sample.pred_sem_seg.data[0].numpy())

    def row(self) -> dict[str, Any]:
        """Return the mask of each class that occurs."""
        masks = {}
        for label in np.unique(self.labels):
            encoded = coco_mask.encode(np.asfortranarray(self.labels == label, np.uint8))
            masks[self.classes[label]] = dict(encoded, counts=encoded['counts'].decode())
        return dict(classes=masks)

    @staticmethod
    def sample_of(row: dict[str, Any], classes: Sequence[str]) -> BaseDataElement:
        """Return the label map."""
        labels = np.zeros(next(iter(row['classes'].values()))['size'], np.uint16)
        for name, mask in row['classes'].items():
            labels[coco_mask.decode(mask) > 0] = classes.index(name)
        return BaseDataElement(pred_sem_seg=PixelData(data=labels[None]))

    @property
    def shares(self) -> dict[str, float]:
        """The share of the pixels of each class that occurs, the largest first."""
        labels, counts = np.unique(self.labels, return_counts=True)
        pairs = sorted(zip(labels, counts / counts.sum()), key=lambda pair: -pair[1])
        return {self.classes[label]: float(share) for label, share in pairs}

    def mask(self, name: str) -> np.ndarray:
        """Return the pixels of a class, (H, W), bool; ConfigError if there is no such class."""
        if name not in self.classes:
            raise ConfigError(f'no class {name!r}; there are: {listed(self.classes, 20)}')
        return self.labels == self.classes.index(name)


@dataclass(frozen=True, eq=False)
class Classification(Prediction):
    """The class of an image."""

    scores: np.ndarray  # (K,), float32, of each class

    @staticmethod
    def arrays(sample: BaseDataElement) -> dict[str, Any]:
        """Return the scores."""
        return dict(scores=sample.pred_score.numpy())

    def row(self) -> dict[str, Any]:
        """Return the class, its score, and the five most likely classes."""
        return {'class': self.name, 'score': self.score, 'top': dict(self.top())}

    @staticmethod
    def sample_of(row: dict[str, Any], classes: Sequence[str]) -> BaseDataElement:
        """Return the class."""
        label, score = classes.index(row['class']), torch.tensor([row['score']])
        return BaseDataElement(pred_label=torch.tensor([label]), pred_score=score)

    @property
    def label(self) -> int:
        """The place in ``classes`` of the most likely class."""
        return int(self.scores.argmax())

    @property
    def name(self) -> str:
        """The name of the most likely class."""
        return self.classes[self.label]

    @property
    def score(self) -> float:
        """The score of the most likely class."""
        return float(self.scores.max())

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """Return the names and scores of the most likely classes."""
        order = np.argsort(-self.scores, kind='stable')[:count]
        return [(self.classes[label], float(self.scores[label])) for label in order]


RESULTS: dict[str, type[Prediction]] = dict(
    detection=Detection, segmentation=Segmentation, classification=Classification
)


@contextmanager
def write_label_maps(out: Path, classes: Sequence[str], names: Sequence[Path]) -> Iterator[Write]:
    """Write segmentations as PNG files, and the names of the labels; ``names`` are those of all images."""
    files = map_names(names)
    write_json(out / 'classes.json', list(classes))

    def write(name: Path, prediction: Any) -> None:
        labels = torch.from_numpy(prediction.labels)
        save_label_map(out / 'labels' / files[name], labels, len(classes), False, prediction.palette)

    yield write


def map_names(names: Sequence[Path]) -> dict[Path, Path]:
    """Return the label map of each image: NAME.png, or NAME.jpg.png where another could have that name.

    Names that differ in case only count as one: some disks do not tell them apart.
    """
    short = {name: name.with_suffix('.png') for name in names}
    long = {name: Path(f'{name}.png') for name in names}
    taken = Counter(str(file).casefold() for file in [*short.values(), *long.values()])
    return {name: short[name] if taken[str(short[name]).casefold()] == 1 else long[name] for name in names}


@contextmanager
def write_coco(out: Path, classes: Sequence[str], names: Sequence[Path]) -> Iterator[Write]:
    """Write detections as one COCO file, whose categories are numbered from 1, a row a line."""
    categories = [dict(id=number, name=name) for number, name in enumerate(classes, 1)]
    images: list[dict] = []
    annotations: list[dict] = []

    def write(name: Path, prediction: Any) -> None:
        height, width = prediction.size
        images.append(dict(id=len(images) + 1, file_name=name.as_posix(), width=width, height=height))
        for row in object_rows(prediction.sample.pred_instances, len(images), range(1, len(classes) + 1)):
            mask = row.get('segmentation')
            area = float(row['bbox'][2] * row['bbox'][3]) if mask is None else int(coco_mask.area(mask))
            annotations.append(dict(id=len(annotations) + 1, **row, area=area, iscrowd=0))

    try:
        yield write
    finally:  # also what was found before an interrupt
        parts = dict(images=images, categories=categories, annotations=annotations)
        text = ',\n'.join(f'{json.dumps(name)}: {row_lines(rows)}' for name, rows in parts.items())
        if images:
            write_text(out / 'predictions.json', f'{{\n{text}\n}}\n')


@contextmanager
def write_classes(out: Path, classes: Sequence[str], names: Sequence[Path]) -> Iterator[Write]:
    """Write classifications as one JSON file, an image a line."""
    rows: list[dict] = []
    try:
        yield lambda name, prediction: rows.append(dict(image=name.as_posix(), **prediction.row()))
    finally:
        if rows:
            write_rows(out / 'predictions.json', rows)


WRITERS = dict(detection=write_coco, segmentation=write_label_maps, classification=write_classes)
