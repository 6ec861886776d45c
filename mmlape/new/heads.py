"""What stands over a backbone, by the task: its base, its rate, and what of it the data decide."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mmlape.errors import ConfigError
from mmlape.new.choices import Choices, ChosenModel
from mmlape.new.found_data import NUM_CLASSES, Found

FEW = 100
"""Images for training, up to which a linear head is taken for segmentation (docs/results/real-features.md)."""
KEPT, PROPOSALS = 100, 1000
"""Objects of an image, and regions proposed for it, that MMDetection keeps by default."""


@dataclass(frozen=True)
class Head:
    """What stands over the backbone for a task.

    Args:
        base: The file of `configs/_base_` that has it.
        rate: Of its weights.
        part: Returns what of ``model`` the data, the backbone and the numbers of a run decide.
    """

    base: str
    rate: float
    part: Callable[[Found, ChosenModel, Choices], dict[str, Any]]


def _classifier(found: Found, model: ChosenModel, recipe: Choices) -> dict[str, Any]:
    head = dict(type='LinearClsHead', in_channels=model.embed_dims, num_classes=NUM_CLASSES)
    return dict(head=dict(_delete_=True, loss=dict(type='CrossEntropyLoss'), **head))


def _weighted(recipe: Choices) -> dict[str, Any]:
    return dict(loss_decode=dict(class_weight=list(recipe.weights))) if recipe.weights else {}


def _linear(found: Found, model: ChosenModel, recipe: Choices) -> dict[str, Any]:
    width = model.embed_dims
    head = dict(in_channels=width, channels=width, num_classes=NUM_CLASSES, **_weighted(recipe))
    return dict(decode_head=head)


def _upernet(found: Found, model: ChosenModel, recipe: Choices) -> dict[str, Any]:
    width = model.embed_dims
    shared = dict(channels=_channels(model), num_classes=NUM_CLASSES, **_weighted(recipe))
    return dict(
        decode_head=dict(in_channels=[width] * 4, **shared),
        auxiliary_head=dict(in_channels=width, **shared),
        test_cfg=dict(_delete_=True, mode='whole'),
    )


def _rcnn(found: Found, model: ChosenModel, recipe: Choices) -> dict[str, Any]:
    channels = _channels(model)
    roi_head = dict(
        bbox_roi_extractor=dict(out_channels=channels),
        bbox_head=dict(in_channels=channels, fc_out_channels=4 * channels, num_classes=NUM_CLASSES),
    )
    if found.task == 'masks':
        roi_head |= dict(
            mask_roi_extractor=dict(out_channels=channels),
            mask_head=dict(in_channels=channels, conv_out_channels=channels, num_classes=NUM_CLASSES),
        )
    objects = found.fullest(recipe.tiling)
    train: dict[str, Any] = dict(rcnn=dict(sampler=dict(num=choose_regions(objects))))
    kept = max_per_img(objects)
    test: dict[str, Any] = dict(rcnn=kept) if kept else {}
    if 2 * objects > PROPOSALS:
        proposals = dict(nms_pre=4 * objects, max_per_img=2 * objects)
        train, test = train | dict(rpn_proposal=proposals), test | dict(rpn=proposals)
    return dict(
        neck=dict(in_channels=[model.embed_dims] * 4, out_channels=channels),
        rpn_head=dict(in_channels=channels, feat_channels=channels),
        roi_head=roi_head,
        train_cfg=train,
        **(dict(test_cfg=test) if test else {}),
    )


def _plain_detr(found: Found, model: ChosenModel, recipe: Choices) -> dict[str, Any]:
    objects = found.fullest(recipe.tiling)
    queries = max(KEPT, 2 * objects)
    head = dict(num_classes=NUM_CLASSES, num_queries=queries, num_aux_queries=3 * queries, num_layers=3)
    return dict(
        bbox_head=dict(head, feedforward_channels=1024, rpb_channels=256),
        test_cfg=dict(max_per_img=max(KEPT, objects)),
    )


def _channels(model: ChosenModel) -> int:
    """Return the channels of heads, fewer over a small ViT."""
    return 64 if model.from_scratch and model.embed_dims <= 128 else 256


def max_per_img(objects: int) -> dict[str, int]:
    """Return how many objects of an image are kept, where some have more than MMDetection keeps by default."""
    return dict(max_per_img=objects) if objects > KEPT else {}


def choose_regions(objects: int) -> int:
    """Return how many regions of an image R-CNN learns from.

    These are sixteen for each object, rounded up to a power of two, within 64 and its own 512.

    Args:
        objects: Of the image or the window that has most of them.
    """
    return int(min(max(2 ** math.ceil(math.log2(16 * max(objects, 1))), 64), 512))


HEADS: dict[str, dict[str, Head]] = {  # rates: docs/results/real-features.md
    'segmentation': {
        'linear': Head('models/linear_timm', 1e-2, _linear),
        'adapter': Head('models/upernet_vit-adapter', 1e-3, _upernet),
    },
    'boxes': {
        'adapter': Head('models/faster_rcnn_vit-adapter', 1e-3, _rcnn),
        'plain-detr': Head('models/plain_detr', 4e-4, _plain_detr),
    },
    'masks': {'adapter': Head('models/mask_rcnn_vit-adapter', 1e-3, _rcnn)},
    'classes': {'linear': Head('models/deit_digits', 1e-3, _classifier)},
}
"""Of each task. An adapter has maps of four strides, a linear head reads the last layer, Plain-DETR four layers."""


def choose_head(task: str, images: int, name: str | None = None) -> str:
    """Return what stands over a ViT of timm's.

    Args:
        task: Of ``HEADS``.
        images: For training.
        name: What is asked for; by default a task's first head, for segmentation by the number of
            images.

    Raises:
        ConfigError: The task has no such head.
    """
    if name not in (None, *HEADS[task]):
        raise ConfigError(f'--head {name} is not for {task}, which has {" or ".join(HEADS[task])}')
    return name or ('adapter' if task == 'segmentation' and images > FEW else next(iter(HEADS[task])))
