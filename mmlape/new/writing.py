"""The config of `mmlape new` as text that its owner can read and keep, with the heads of each task."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mmlape.checkpoint.plain_config import docstring, write_plain
from mmlape.errors import ConfigError
from mmlape.lab.inference.tiling import Tiling
from mmlape.new.choices import METRICS, Choices, ChosenModel
from mmlape.new.found_data import MIN_KEPT, NUM_CLASSES, TASKS, Found, Variable

_CLASSES = dict(
    segmentation='the classes, in the order of the numbers in label maps',
    boxes='the classes, as the files of annotations name them',
    masks='the classes, as the files of annotations name them',
    classes='the classes, in the order of the numbers in the lists of images',
)
DATA = {
    'segmentation': 'datasets/segmentation',
    'boxes': 'datasets/coco',
    'masks': 'datasets/coco',
    'classes': 'datasets/mini_digits',
}
"""Files of `configs/_base_`: the loaders of a task. Beside them stand those of its head and of the schedule."""
FINE_TUNED = dict(rate=1e-4, decay=0.8)
"""The rate of weights that are trained on, in their last layer, and what each layer before it has of that."""
LENGTH = ('schedules/mini', 'default_runtime')
IMG_SIZE, MAX_ITERS, INTERVAL = Variable('img_size'), Variable('max_iters'), Variable('val_interval')
CACHE = 256
"""MiB of decoded images of each worker, of which windows are cropped."""
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


def config_text(
    found: Found, datasets: Mapping[str, dict], model: ChosenModel, recipe: Choices, command: str, name: str
) -> str:
    """Return the text of a config.

    Args:
        found: The data.
        datasets: Of 'train' and 'val', from ``Found.prepare``.
        model: Of the task.
        recipe: Of the run.
        command: That wrote it.
        name: Of its file.
    """
    counts = found.images()
    head = (
        f'{TASKS[found.task].capitalize()} in {found.form}: {len(found.classes)} classes, '
        f'{sum(counts.values())} images; {model.note}.\n\n'
        f'Written by `{command}`; it is yours to change. Train it: mmlape train {name}\n'
    )
    over = HEADS[found.task][model.head]
    bases = [f'mmlape::_base_/{base}.py' for base in (over.base, DATA[found.task], *LENGTH)]
    side = f'the side of the {"windows" if recipe.tiling else "images"} in training, also of an exported graph'
    parts: dict[str, dict[str, Any]] = {
        '': dict(_base_=bases),
        _CLASSES[found.task]: dict(classes=found.classes),
        **({'their colours in drawings': dict(palette=found.palette)} if found.palette else {}),
        side: dict(img_size=recipe.side),
        'the length of the run, and what lies between two validations, in iterations': dict(
            max_iters=recipe.iterations, val_interval=recipe.interval
        ),
        'a backbone, and heads for these classes': dict(
            model=dict(
                data_preprocessor=_preprocessor(found, model),
                backbone=dict(_delete_=True, **model.backbone),
                **over.part(found, model, recipe),
            )
        ),
        'the images, and what is done to them': _data(found, datasets, recipe),
        'rates, and what is kept': _schedule(found, model, recipe, over.rate),
    }
    blocks = []
    for comment, values in parts.items():
        text = write_plain(values)
        blocks.append(f'# {comment}\n{text}' if comment else text)
    return docstring(head) + '\n' + '\n'.join(blocks)


def _preprocessor(found: Found, model: ChosenModel) -> dict[str, Any]:
    of_task: dict[str, dict[str, Any]] = dict(
        segmentation=dict(size=(IMG_SIZE, IMG_SIZE)), classes=dict(num_classes=NUM_CLASSES)
    )
    images = dict(mean=list(model.normalisation.mean), std=list(model.normalisation.std))
    return of_task.get(found.task, {}) | images


def _data(found: Found, datasets: Mapping[str, dict], recipe: Choices) -> dict[str, Any]:
    train, val = _PIPELINES[found.task](found, recipe)
    # a base of segmentation has no dataset for training, the others have one of theirs
    replaced = {} if found.task == 'segmentation' else dict(_delete_=True)
    dataset: dict[str, Any] = dict(datasets['train'], pipeline=train)
    if found.task in ('boxes', 'masks'):
        dataset['filter_cfg'] = dict(filter_empty_gt=False, min_size=1)
    if recipe.oversample:
        dataset = dict(type='ClassBalancedDataset', oversample_thr=recipe.oversample, dataset=dataset)
    if recipe.tiling:
        dataset = dict(type='mmlape.WindowDataset', side=IMG_SIZE, dataset=dataset)
    evaluators: dict[str, Any] = {}
    if found.task in ('boxes', 'masks'):
        metric = ['bbox', 'segm'] if found.task == 'masks' else 'bbox'
        evaluator = dict(ann_file=datasets['val']['ann_file'], metric=metric, **max_per_img(found.fullest()))
        evaluators = dict(val_evaluator=evaluator, test_evaluator=Variable('val_evaluator'))
    validation = dict(
        batch_size=recipe.batch if found.task == 'classes' else 1,
        num_workers=2,
        dataset=dict(datasets['val'], pipeline=val, test_mode=True, **replaced),
    )
    return dict(
        train_dataloader=dict(batch_size=recipe.batch, num_workers=2, dataset=dict(dataset, **replaced)),
        val_dataloader=validation,
        test_dataloader=Variable('val_dataloader'),
        **evaluators,
        **_loops(found, recipe.tiling),
    )


def _loops(found: Found, tiling: Tiling | None) -> dict[str, Any]:
    """Return the loops of validation and test, which go by tiles where there are windows."""
    if tiling is None:
        return {}
    shared = 'img_size // 3' if found.task == 'segmentation' else f'min({tiling.overlap}, img_size // 2)'
    tiles = dict(tile=IMG_SIZE, overlap=Variable(shared))
    loops = ('val', 'Val'), ('test', 'Test')
    return {f'{split}_cfg': dict(type=f'mmlape.Tiled{name}Loop', **tiles) for split, name in loops}


def _segmentation(found: Found, recipe: Choices) -> tuple[list[dict], list[dict]]:
    load: dict[str, Any] = dict(type='LoadImageFromFile')
    labels: dict[str, Any] = dict(type='LoadAnnotations')
    scale = (_sides('4 *'), IMG_SIZE)  # the longer side at most, the shorter side
    resized = dict(type='RandomResize', scale=scale, ratio_range=(0.5, 2.0), keep_ratio=True)
    train = [
        *([_LOAD_KEPT, labels] if recipe.tiling else [load, labels, resized]),
        dict(type='RandomCrop', crop_size=(IMG_SIZE, IMG_SIZE), cat_max_ratio=0.75),
        dict(type='RandomFlip', prob=0.5),
        dict(type='PhotoMetricDistortion'),
        dict(type='PackSegInputs'),
    ]
    resize = [] if recipe.tiling else [dict(type='Resize', scale=scale, keep_ratio=True)]
    return train, [load, *resize, labels, dict(type='PackSegInputs')]


def _detection(found: Found, recipe: Choices) -> tuple[list[dict], list[dict]]:
    load: dict[str, Any] = dict(type='LoadImageFromFile')
    boxes: dict[str, Any] = dict(type='LoadAnnotations', with_bbox=True, with_mask=found.task == 'masks')
    if recipe.tiling and found.task == 'masks' and found.has_polygons:
        boxes['poly2mask'] = False  # masks of large images would fill the memory
    longer = _sides('2 *')  # at most
    scales = [(longer, _sides(f'{part} *', '// 8')) for part in (6, 7, 8, 9, 10)]
    changed = [load, boxes, dict(type='RandomChoiceResize', scales=scales, keep_ratio=True)]
    if recipe.tiling:
        crop = dict(type='mmlape.RandomCrop', crop_size=(IMG_SIZE, IMG_SIZE), min_kept=MIN_KEPT)
        changed = [_LOAD_KEPT, boxes, crop]
    train = [*changed, dict(type='RandomFlip', prob=0.5), dict(type='PackDetInputs')]
    keys = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')
    resize = [] if recipe.tiling else [dict(type='Resize', scale=(longer, IMG_SIZE), keep_ratio=True)]
    return train, [load, *resize, boxes, dict(type='PackDetInputs', meta_keys=keys)]


def _classification(found: Found, recipe: Choices) -> tuple[list[dict], list[dict]]:
    load: dict[str, Any] = dict(type='LoadImageFromFile')
    train = [
        load,
        dict(type='RandomResizedCrop', scale=IMG_SIZE, crop_ratio_range=(0.5, 1.0)),
        dict(type='RandomFlip', prob=0.5, direction='horizontal'),
        dict(type='PackInputs'),
    ]
    shorter = dict(type='ResizeEdge', scale=_sides('8 *', '// 7'), edge='short')
    return train, [load, shorter, dict(type='CenterCrop', crop_size=IMG_SIZE), dict(type='PackInputs')]


def _sides(before: str, behind: str = '') -> Variable:
    """Return a multiple of the side as it stands in a config."""
    return Variable(f'{before} img_size {behind}'.strip())


_LOAD_KEPT: dict[str, Any] = dict(type='mmlape.LoadImageFromFile', cache_mib=CACHE)
_PIPELINES = {'segmentation': _segmentation, 'boxes': _detection, 'masks': _detection, 'classes': _classification}


def _schedule(found: Found, model: ChosenModel, recipe: Choices, rate: float) -> dict[str, Any]:
    metric, warmup = METRICS[found.task], Variable('min(100, max_iters // 10)')
    values: dict[str, Any] = dict(
        train_cfg=dict(max_iters=MAX_ITERS, val_interval=INTERVAL),
        param_scheduler=[
            dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=warmup),
            dict(type='PolyLR', power=1.0, eta_min=0.0, by_epoch=False, begin=warmup),
        ],
        optim_wrapper=dict(optimizer=dict(lr=rate), paramwise_cfg=_groups(model, rate)),
        default_hooks=dict(checkpoint=dict(interval=INTERVAL, save_best=metric, rule='greater')),
        auto_scale_lr=dict(base_batch_size=recipe.batch),
    )
    if recipe.patience:
        stop = dict(
            type='mmlape.EarlyStoppingHook',
            monitor=metric,
            rule='greater',
            min_delta=0.0,  # 0.1 by default, which is ten points of AP
            patience=recipe.patience,
        )
        values['custom_hooks'] = [stop]
    return values


def _groups(model: ChosenModel, rate: float) -> dict[str, Any]:
    """Return the groups of the optimiser: weights that are trained on have a rate of their own, by layer."""
    frozen = model.backbone.get('frozen') or model.backbone.get('vit', {}).get('frozen')
    if frozen or model.from_scratch:  # what is frozen is left out of itself
        return dict(custom_keys=dict(backbone=dict(lr_mult=1.0)))
    share = FINE_TUNED['rate'] / rate
    return dict(custom_keys=dict(backbone=dict(lr_mult=round(share, 6))), layer_decay_rate=FINE_TUNED['decay'])
