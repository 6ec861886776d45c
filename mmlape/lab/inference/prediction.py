"""A trained model in Python: images in, arrays and names of classes out.

`load` finds the config and the checkpoint of a run; `Model.predict` takes files, folders, arrays
and Pillow's images.
"""

import copy
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import torch
from mmengine import Config
from mmengine.dataset import pseudo_collate
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DATASETS, init_default_scope
from mmengine.structures import BaseDataElement
from torch import nn

from mmlape.checkpoint.opening import OpenedFile
from mmlape.console.log import log
from mmlape.errors import ConfigError, DataError, listed
from mmlape.lab.config.config_file import apply_options, name_types, parse_options
from mmlape.lab.config.stored_config import classes_of, tiles_of
from mmlape.lab.datasets.formats import CocoSource, SegmentationSource
from mmlape.lab.datasets.retarget import iter_heads, set_num_classes
from mmlape.lab.datasets.transforms import loads
from mmlape.lab.export.graphs import Graph, install_graph
from mmlape.lab.inference import TASKS
from mmlape.lab.inference.drawing import draw_sample, palette_of, write_image
from mmlape.lab.inference.images import ImageLike, Preparation, find_images, to_array
from mmlape.lab.inference.results import RESULTS, Prediction
from mmlape.lab.inference.tiling import Tiling, Window, predict_tiles, tiling_of
from mmlape.lab.inference.trained_model import Trained, open_trained
from mmlape.lab.model_weights import load_model, other_names
from mmlape.lab.training.optim import build_model


class Model:
    """A trained model with its names of classes and its preparation of images.

    Args:
        module: Of `init_model`.
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
            A `Detection`, `Segmentation` or `Classification` of `mmlape.lab.inference.results` for
            each image, in their order.

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
        module = init_model(trained.config, trained.file or Graph(checkpoint), device)
    return Model(module, Path(checkpoint))


def init_model(config: Config, checkpoint: OpenedFile | Graph | None, device: str | None = None) -> nn.Module:
    """Build a config's model for inference, with attributes ``cfg``, ``task``, ``classes`` and others.

    Args:
        config: Left as it is. The checkpoint's class names, if it has any, replace the config's.
        checkpoint: Its weights, opened, or a graph of it; None for an untrained model.
        device: Such as 'cpu'; None for a GPU if there is one.

    Raises:
        ConfigError: The config is of no known task, or there is no such device.
        CheckpointError: The weights are not this model's.
    """
    cfg = copy.deepcopy(config)
    name_types(cfg)
    scope = cfg.get('default_scope')
    if scope not in TASKS:
        raise ConfigError(f'default_scope={scope!r}: inference is for models of {", ".join(TASKS)}')
    device, names = _device(device), None
    if checkpoint is not None:
        stored = checkpoint.classes if isinstance(checkpoint, Graph) else classes_of(checkpoint.meta)
        names = _adopt_classes(cfg, stored)
    model = revert_sync_batchnorm(build_model(cfg))
    names = names or _class_names(cfg)
    if isinstance(checkpoint, Graph):
        install_graph(model, checkpoint, cfg, names)
    elif checkpoint is None:
        model.init_weights()
    else:
        load_model(model, checkpoint)
    model.cfg, model.task, model.classes = cfg, TASKS[scope], names
    # an image to predict on has no annotations to load
    steps = cfg.test_dataloader.dataset.pipeline
    model.annotation_steps = [step for step in steps if loads(step, scope, 'Annotations')]
    cfg.test_pipeline = [step for step in steps if step not in model.annotation_steps]
    cfg.test_dataloader.dataset.pipeline = cfg.test_pipeline
    model.preparation = Preparation(cfg)
    return model.to(device).eval()


def predict_batch(model: nn.Module, inputs: Sequence[dict], logits: bool = True) -> list[BaseDataElement]:
    """Run a model of `init_model` on the inputs that its ``preparation`` has made.

    Args:
        model: It has the attributes that `init_model` sets.
        inputs: One for each image.
        logits: Whether to keep those of a segmentor, classes x height x width floats.
    """
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter('ignore')
        samples = model.test_step(pseudo_collate(list(inputs)))
    for sample in samples:
        if 'seg_logits' in sample and not logits:
            del sample.seg_logits
    return [sample.cpu() for sample in samples]


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split('\n')[0]
        raise ConfigError(f'device {name!r} cannot be used on this machine ({reason}): try --device cpu') from error
    return device


def _adopt_classes(cfg: Config, names: Sequence[str] | None) -> list[str] | None:
    """Return class names of weights, if they have any.

    Set the heads' numbers of outputs to theirs.
    """
    if not names:
        return None
    others = (cfg.test_dataloader.dataset.get('metainfo') or {}).get('classes') or ()
    if pairs := other_names(names, others):
        text = f'predictions have the names of classes of the checkpoint, not those of the config: {listed(pairs)}'
        log(text, logging.WARNING)
    for head in iter_heads(cfg):
        set_num_classes(*head, len(names))
    return list(names)


def _class_names(cfg: Config) -> list[str]:
    """Return the class names of a config's test set, without reading its files."""
    dataset_cfg = dict(copy.deepcopy(cfg.test_dataloader.dataset), lazy_init=True)
    if 'type' in dataset_cfg:
        names = DATASETS.build(dataset_cfg).metainfo.get('classes')
    else:  # of a published file, which has no data
        names = dataset_cfg.get('metainfo', {}).get('classes')
    if names is None:
        raise ConfigError('the test dataset has no class names: set metainfo=dict(classes=...) in its config')
    return list(names)


def compare_on_dataset(model: nn.Module, indices: Iterable[int], out_dir: str | Path) -> list[Path]:
    """Draw predictions on images of the test set, those of a score of 0.3 and more, beside their ground truth.

    Return the drawings' paths.

    Args:
        model: A detector or segmenter from `init_model`.
        indices: Of images in the test set.
        out_dir: The folder of the drawings, named like their images.

    Raises:
        ConfigError: The model is a classifier, or its test set has no annotations.
    """
    if model.task == 'classification' or not model.annotation_steps:
        raise ConfigError('no ground truth to draw: use a detector or segmenter with LoadAnnotations')
    init_default_scope(model.cfg.default_scope)
    dataset_cfg = copy.deepcopy(model.cfg.test_dataloader.dataset)
    pack = (CocoSource if model.task == 'detection' else SegmentationSource).pack_transform
    dataset_cfg.pipeline = [dict(type='mmlape.LoadImageFromFile'), *model.annotation_steps, dict(type=pack)]
    dataset = DATASETS.build(dataset_cfg)
    paths = []
    for index in indices:
        sample = dataset[index]
        truth, image = sample['data_samples'], sample['inputs'].numpy()[::-1].transpose(1, 2, 0)
        predicted = 'pred_instances' if model.task == 'detection' else 'pred_sem_seg'
        (prediction,) = predict_batch(model, [model.preparation.of_array(image)])
        truth.set_field(prediction.get(predicted), predicted)
        paths.append(Path(out_dir) / f'{Path(truth.img_path).stem}.png')
        drawn = draw_sample(image, truth, model.classes, palette_of(model.cfg, model.classes), 0.3)
        write_image(drawn, paths[-1])
    return paths
