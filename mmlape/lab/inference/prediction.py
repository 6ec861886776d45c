"""A trained model in Python: images in, arrays and names of classes out.

`load` finds the config and the checkpoint of a run; `Model.predict` takes files, folders, arrays
and Pillow's images.
"""

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
from mmengine import Config
from mmengine.structures import BaseDataElement
from torch import nn

from mmlape.console.log import log
from mmlape.errors import ConfigError, DataError, listed
from mmlape.lab.config.config_file import apply_options, name_types, parse_options
from mmlape.lab.config.stored_config import tiles_of
from mmlape.lab.export.graphs import Graph
from mmlape.lab.inference.drawing import Colour, draw_sample, palette_of
from mmlape.lab.inference.images import ImageLike, find_images, to_array
from mmlape.lab.inference.run_model import init_model, predict_batch
from mmlape.lab.inference.tiling import Tiling, Window, objects_of, predict_tiles, tiling_of
from mmlape.lab.inference.trained_model import Trained, open_trained


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


class Model:
    """A trained model with its names of classes and its preparation of images.

    Args:
        module: Of :func:`mmlape.lab.inference.run_model.init_model`.
        checkpoint: The file of its weights.
    """

    def __init__(self, module: nn.Module, checkpoint: Path | None = None) -> None:
        self.module = module
        self.checkpoint = checkpoint
        self.task: str = module.task
        self.classes: tuple[str, ...] = tuple(module.classes)
        self.palette = palette_of(module.cfg, self.classes)
        self._prepare = module.preparation
        self._tiles = tiles_of(module.cfg)
        self._warned: set[int] = set()  # sides of tiles that the pipeline resizes

    def __repr__(self) -> str:
        """Return task, number of classes and file."""
        return f'Model({self.task}, {len(self.classes)} classes, {self.checkpoint})'

    def predict(
        self,
        images: ImageLike | Iterable[ImageLike],
        batch_size: int = 1,
        tile: int | None = None,
        overlap: int | None = None,
    ) -> list[Any]:
        """Predict on images.

        Args:
            images: A file, a folder (with all folders below it), an array, an image of Pillow, or
                several of these. Arrays are RGB or grey, (H, W, 3) or (H, W), uint8.
            batch_size: How many images the model gets at once. Only images of one size after the
                preparation share a batch, so nothing is padded for a neighbour's sake. With
                ``tile`` it is of tiles.
            tile: The side of square tiles, in pixels of the image, each of which is prepared as an
                image of its own; of detectors and segmentors. `mmlape.lab.inference.tiling` says how
                they are merged. Masks are COCO's run lengths then. By default that of the
                config's ``test_cfg``, if it has tiles.
            overlap: Pixels that neighbouring tiles share; of ``tile`` an eighth by default.

        Returns:
            A :class:`Detection`, :class:`Segmentation` or :class:`Classification` for each image,
            in their order.

        Raises:
            ConfigError: There are no such tiles.
            DataError: An image cannot be read; the message names it.
        """
        return list(self.predict_each(images, batch_size, tile=tile, overlap=overlap))

    def predict_each(
        self,
        images: ImageLike | Iterable[ImageLike],
        batch_size: int = 1,
        skipped: list[tuple[ImageLike, str]] | None = None,
        tile: int | None = None,
        overlap: int | None = None,
        watch: Callable[[int, int], None] | None = None,
    ) -> Iterator[Any]:
        """Predict as `predict` does, and yield one result after the other.

        So there may be more images than fit into memory.

        Args:
            images: See `predict`.
            batch_size: See `predict`.
            skipped: Receives each image that cannot be read or is too small, and why, instead of an
                error.
            tile: See `predict`.
            overlap: See `predict`.
            watch: Called with the number of tiles of an image that are done, from 0, and of all.
        """
        if batch_size < 1:
            raise ConfigError(f'batch_size={batch_size} is no number of images: give at least 1')
        tiling = self.tiling(tile, overlap)
        stream = iter(find_images(images))
        if tiling:
            for image in stream:
                yield from self._by_tiles(image, tiling, batch_size, skipped, watch)
            return
        while chunk := list(islice(stream, batch_size)):
            prepared = []
            for image in chunk:
                with _skipping([image], skipped):
                    prepared.append((image, self._prepared(image)))
            for _, alike in groupby(prepared, key=lambda pair: _shape(pair[1])):
                files, inputs = zip(*alike)
                samples: list[BaseDataElement] = []
                with _skipping(files, skipped):  # an image may be smaller than a patch once it is resized
                    samples = predict_batch(self.module, inputs, logits=False)
                for image, sample in zip(files, samples):
                    yield RESULTS[self.task].of(sample, image, self.classes, self.palette)

    def tiling(self, tile: int | None, overlap: int | None = None) -> Tiling | None:
        """Return the tiles of these sizes, else the config's; None without.

        Raises:
            ConfigError: There are none, or the model cannot predict on them.
        """
        own = self._tiles
        if tile is None and not own:
            if overlap is not None:
                raise ConfigError(f'overlap={overlap} is of tiles: give tile, too')
            return None
        if tile is None:
            tile, overlap = own['tile'], own.get('overlap') if overlap is None else overlap
        test_cfg = getattr(self.module, 'test_cfg', None)
        return tiling_of(tile, overlap, self.task, self._prepare.smallest, test_cfg)

    def _by_tiles(
        self,
        image: ImageLike,
        tiling: Tiling,
        batch_size: int,
        skipped: list | None,
        watch: Callable[[int, int], None] | None,
    ) -> Iterator[Prediction]:
        """Predict on an image tile by tile."""

        def predict(windows: Sequence[Window]) -> list[BaseDataElement]:
            batch = [self._prepare.of_array(pixels[window]) for window in windows]
            self._warn_of_scale(pixels[windows[0]].shape[:2], _shape(batch[0])[-2:])
            return predict_batch(self.module, batch)

        with _skipping([image], skipped):
            pixels = to_array(image)
            most = self._tiles.get('max_per_img')
            sample = predict_tiles(self.module, predict, tiling, pixels.shape[:2], batch_size, most, watch)
            yield RESULTS[self.task].of(sample, image, self.classes, self.palette)

    def _warn_of_scale(self, tile: tuple[int, ...], prepared: tuple[int, ...]) -> None:
        """Log once that the pipeline resizes square tiles: a model knows objects at the scale of its training."""
        side = tile[0]
        if side != tile[1] or prepared == tile or side in self._warned:
            return
        self._warned.add(side)
        message = (
            f'tile={side}: the test pipeline resizes each tile to {prepared[0]} x {prepared[1]}, so '
            'objects have another size than in the file'
        )
        if prepared[0] == prepared[1]:
            message += f'; tile={prepared[0]} keeps it'
        log(message, logging.WARNING)

    def _prepared(self, image: ImageLike) -> dict:
        if isinstance(image, str | Path):
            return self._prepare.of_file(image)
        return self._prepare.of_array(to_array(image))


@contextmanager
def _skipping(images: Sequence[ImageLike], skipped: list | None) -> Iterator[None]:
    """Keep images that cannot be predicted on, with the reason; without a list, raise it. It names the file."""
    try:
        yield
    except DataError as error:
        reasons = [_reason(image, error) for image in images]
        if skipped is None:
            raise DataError(reasons[0]) from error
        skipped.extend(zip(images, reasons))


def _reason(image: ImageLike, error: DataError) -> str:
    named = not isinstance(image, str | Path) or str(image) in str(error)
    return str(error) if named else f'{image}: {error}'


def _shape(inputs: dict) -> tuple[int, ...]:
    return tuple(inputs['inputs'].shape)


def load(
    run: str | Path | Config,
    checkpoint: str | Path | None = None,
    *,
    device: str | None = None,
    cfg_options: list[str] | dict | None = None,
) -> Model:
    """Load a trained model for :meth:`Model.predict`.

    Args:
        run: The folder of a run; or a file that holds its config: a checkpoint of a run, or one that
            `mmlape checkpoint publish` has written, also on the hub, 'hf://OWNER/NAME'; or a config,
            by file, name or value.
        checkpoint: The weights of a config. Of a run, by default those of the best validation, else
            the newest.
        device: Such as 'cpu' or 'cuda:1'; by default a GPU if there is one.
        cfg_options: Changes of the config, as ``--cfg-options``.

    Raises:
        ConfigError: The folder is no run, or the config cannot be used.
        CheckpointError: There are no weights, or they are not this model's.
    """
    if isinstance(run, Config):
        if checkpoint is None:
            raise ConfigError(f'{run.filename} is a config: give its checkpoint with it')
        cfg = copy.deepcopy(run)
        name_types(cfg)
        apply_options(cfg, parse_options(cfg_options))
        return model_of(Trained(cfg, str(checkpoint)), device)
    words = [run] if checkpoint is None else [run, checkpoint]
    return model_of(open_trained(words, cfg_options), device)


def model_of(trained: Trained, device: str | None = None) -> Model:
    """Build what a user has named."""
    checkpoint = trained.weights()
    with trained.building():
        return Model(init_model(trained.config, trained.file or Graph(checkpoint), device), Path(checkpoint))
