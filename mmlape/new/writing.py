"""The config of `mmlape new` as text that its owner can read and keep."""

from collections.abc import Mapping
from typing import Any

from mmlape.new.found import TASKS, Found, Variable
from mmlape.new.recipe import METRICS, Model, Recipe, choose_regions
from mmlape.weights.plain_config import docstring, write_plain

BASES = {
    'segmentation': ('models/upernet_vit-adapter', 'datasets/segmentation'),
    'boxes': ('models/faster_rcnn_vit-adapter', 'datasets/coco'),
    'masks': ('models/mask_rcnn_vit-adapter', 'datasets/coco'),
    'classes': ('models/deit_digits', 'datasets/mini_digits'),
}
"""Files of `configs/_base_`: what a task's models and loaders have in common; beside them the schedule."""
LINEAR = 'models/linear_timm'
"""The base of a segmentor whose head is linear."""
RATES = {True: 1e-3, False: 1e-2}
"""Of heads over an adapter, and of linear ones (docs/results/real-features.md)."""
FINE_TUNED = dict(rate=1e-4, decay=0.8)
"""The rate of weights that are trained on, in their last layer, and what each layer before it has of that."""
LENGTH = ('schedules/mini', 'default_runtime')
CHANNELS = {True: 64, False: 256}
"""Of heads, over a small ViT and over a large one."""


def config_text(
    found: Found, datasets: Mapping[str, dict], model: Model, recipe: Recipe, command: str, name: str
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
    of_model, of_data = BASES[found.task]
    if found.task == 'segmentation' and not model.has_adapter:
        of_model = LINEAR
    bases = [f'mmlape::_base_/{base}.py' for base in (of_model, of_data, *LENGTH)]
    parts: dict[str, dict[str, Any]] = {
        '': dict(_base_=bases),
        'the classes, in the order of their labels': dict(classes=found.classes),
        'the side of the images, also of an exported graph': dict(img_size=recipe.side),
        'a backbone, and heads for these classes': dict(model=_model(found, model, recipe)),
        'the images, and what is done to them': _data(found, datasets, recipe),
        'the length: change both numbers alike': _schedule(found, model, recipe),
    }
    blocks = []
    for comment, values in parts.items():
        text = write_plain(values)
        blocks.append(f'# {comment}\n{text}' if comment else text)
    return docstring(head) + '\n' + '\n'.join(blocks)


def _model(found: Found, model: Model, recipe: Recipe) -> dict[str, Any]:
    width, count = model.embed_dims, len(found.classes)
    channels = CHANNELS[model.from_scratch and width <= 128]
    images: dict[str, Any] = dict(mean=list(model.normalisation.mean), std=list(model.normalisation.std))
    backbone = dict(_delete_=True, **model.backbone)
    if found.task == 'classes':
        head = dict(type='LinearClsHead', in_channels=width, num_classes=count)
        loss = dict(type='CrossEntropyLoss')
        return dict(
            data_preprocessor=dict(num_classes=count, **images),
            backbone=backbone,
            head=dict(_delete_=True, loss=loss, **head),
        )
    if found.task == 'segmentation':
        weights: dict[str, Any] = dict(class_weight=list(recipe.weights)) if recipe.weights else {}
        if not model.has_adapter:
            head = dict(in_channels=width, channels=width, num_classes=count)
            return dict(
                data_preprocessor=dict(size=(recipe.side, recipe.side), **images),
                backbone=backbone,
                decode_head=head | (dict(loss_decode=weights) if weights else {}),
            )
        decode: dict[str, Any] = dict(in_channels=[width] * 4, channels=channels, num_classes=count)
        auxiliary: dict[str, Any] = dict(in_channels=width, channels=channels, num_classes=count)
        return dict(
            data_preprocessor=dict(size=(recipe.side, recipe.side), **images),
            backbone=backbone,
            decode_head=decode | (dict(loss_decode=weights) if weights else {}),
            auxiliary_head=auxiliary | (dict(loss_decode=weights) if weights else {}),
            test_cfg=dict(_delete_=True, mode='whole'),
        )
    roi_head = dict(
        bbox_roi_extractor=dict(out_channels=channels),
        bbox_head=dict(in_channels=channels, fc_out_channels=4 * channels, num_classes=count),
    )
    if found.task == 'masks':
        roi_head |= dict(
            mask_roi_extractor=dict(out_channels=channels),
            mask_head=dict(in_channels=channels, conv_out_channels=channels, num_classes=count),
        )
    return dict(
        data_preprocessor=images,
        backbone=backbone,
        neck=dict(in_channels=[width] * 4, out_channels=channels),
        rpn_head=dict(in_channels=channels, feat_channels=channels),
        roi_head=roi_head,
        train_cfg=dict(rcnn=dict(sampler=dict(num=choose_regions(found.most_objects)))),
    )


def _data(found: Found, datasets: Mapping[str, dict], recipe: Recipe) -> dict[str, Any]:
    train, val = _PIPELINES[found.task](found, recipe.side)
    # a base of segmentation has no dataset for training, the others have one of theirs
    replaced = {} if found.task == 'segmentation' else dict(_delete_=True)
    dataset: dict[str, Any] = dict(datasets['train'], pipeline=train)
    if found.task in ('boxes', 'masks'):
        dataset['filter_cfg'] = dict(filter_empty_gt=True, min_size=1)
    if recipe.oversample:
        dataset = dict(type='ClassBalancedDataset', oversample_thr=recipe.oversample, dataset=dataset)
    evaluators: dict[str, Any] = {}
    if found.task in ('boxes', 'masks'):
        metric = ['bbox', 'segm'] if found.task == 'masks' else 'bbox'
        evaluator = dict(ann_file=datasets['val']['ann_file'], metric=metric)
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
    )


def _segmentation(found: Found, side: int) -> tuple[list[dict], list[dict]]:
    load: dict[str, Any] = dict(type='LoadImageFromFile')
    labels: dict[str, Any] = dict(type='LoadAnnotations')
    scale = (4 * side, side)  # the longer side at most, the shorter side
    train = [
        load,
        labels,
        dict(type='RandomResize', scale=scale, ratio_range=(0.5, 2.0), keep_ratio=True),
        dict(type='RandomCrop', crop_size=(side, side), cat_max_ratio=0.75),
        dict(type='RandomFlip', prob=0.5),
        dict(type='PhotoMetricDistortion'),
        dict(type='PackSegInputs'),
    ]
    resize = dict(type='Resize', scale=scale, keep_ratio=True)
    return train, [load, resize, labels, dict(type='PackSegInputs')]


def _detection(found: Found, side: int) -> tuple[list[dict], list[dict]]:
    load: dict[str, Any] = dict(type='LoadImageFromFile')
    boxes = dict(type='LoadAnnotations', with_bbox=True, with_mask=found.task == 'masks')
    scales = [(2 * side, side * part // 8) for part in (6, 7, 8, 9, 10)]
    train = [
        load,
        boxes,
        dict(type='RandomChoiceResize', scales=scales, keep_ratio=True),
        dict(type='RandomFlip', prob=0.5),
        dict(type='PackDetInputs'),
    ]
    keys = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')
    resize = dict(type='Resize', scale=(2 * side, side), keep_ratio=True)
    return train, [load, resize, boxes, dict(type='PackDetInputs', meta_keys=keys)]


def _classification(found: Found, side: int) -> tuple[list[dict], list[dict]]:
    load: dict[str, Any] = dict(type='LoadImageFromFile')
    train = [
        load,
        dict(type='RandomResizedCrop', scale=side, crop_ratio_range=(0.5, 1.0)),
        dict(type='RandomFlip', prob=0.5, direction='horizontal'),
        dict(type='PackInputs'),
    ]
    shorter = dict(type='ResizeEdge', scale=side * 8 // 7, edge='short')
    return train, [load, shorter, dict(type='CenterCrop', crop_size=side), dict(type='PackInputs')]


_PIPELINES = {'segmentation': _segmentation, 'boxes': _detection, 'masks': _detection, 'classes': _classification}


def _schedule(found: Found, model: Model, recipe: Recipe) -> dict[str, Any]:
    metric = METRICS[found.task]
    warmup = min(100, recipe.iterations // 10)
    rate = RATES[model.has_adapter or found.task == 'classes']
    values: dict[str, Any] = dict(
        train_cfg=dict(max_iters=recipe.iterations, val_interval=recipe.interval),
        param_scheduler=[
            dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=warmup),
            dict(type='PolyLR', power=1.0, eta_min=0.0, by_epoch=False, begin=warmup),
        ],
        optim_wrapper=dict(optimizer=dict(lr=rate), paramwise_cfg=_groups(model, rate)),
        default_hooks=dict(checkpoint=dict(interval=recipe.interval, save_best=metric, rule='greater')),
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


def _groups(model: Model, rate: float) -> dict[str, Any]:
    """Return the groups of the optimiser: weights that are trained on have a rate of their own, by layer."""
    frozen = model.backbone.get('frozen') or model.backbone.get('vit', {}).get('frozen')
    if frozen or model.from_scratch:  # what is frozen is left out of itself
        return dict(custom_keys=dict(backbone=dict(lr_mult=1.0)))
    share = FINE_TUNED['rate'] / rate
    return dict(custom_keys=dict(backbone=dict(lr_mult=round(share, 6))), layer_decay_rate=FINE_TUNED['decay'])
