"""Complete training steps of the recipes, data loading included, beside the same recipe over a public backbone.

A step is the recipe's own: batch from the mini data by its pipeline, forward, losses, backward, clipping where the
recipe clips, optimiser. On the CPU all sizes of the pipeline are those of the recipe times the smallest of `--sizes`
over 512, and one process does everything; on a GPU the sizes and the workers are the recipe's.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.comparison import Comparison, Settings, Side
from benchmarks.models import arch_of, images_of, prepared, windows
from benchmarks.suites.loading import mini_data

RECIPES = {
    'Segmenter': ('ade', 'segmenter/segmenter_deit-tiny_4xb2-160k_ade20k.py', 'mmseg.VisionTransformer'),
    'UperNet': ('ade', 'upernet/upernet_deit-tiny-adapter_4xb2-160k_ade20k.py', 'mmseg.VisionTransformer'),
    'Mask2Former': (
        'ade', 'mask2former/mask2former_deit-small-adapter_8xb2-160k_ade20k.py', 'mmseg.SwinTransformer',
    ),
    'Mask R-CNN': ('coco', 'mask_rcnn/mask-rcnn_deit-tiny-adapter_4xb2-3x_coco.py', 'mmdet.SwinTransformer'),
}  # fmt: skip
"""The mini data, the config, whose size `--arch` replaces, and the public backbone."""
NOTE = (
    "mini data, the recipe's classes. Segmenter over mmseg.VisionTransformer is MMSegmentation's own, UperNet over it "
    'has the MultiLevelNeck; Swin is Swin-T, from deit-small on Swin-S, where ours is ViT-Adapter. SyncBN is BatchNorm'
)
SIZES = ('scale', 'scales', 'crop_size')
"""What of a pipeline's transforms is in pixels."""


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per recipe and dtype."""
    images = images_of(settings)
    factor = 1.0 if settings.device == 'cuda' else min(settings.sizes) / 512
    return [
        Comparison(
            suite='recipes', case=f'{name}, {settings.arch}', work='training step with data loading',
            shape=f'{images} images, {factor:.3g} of the recipe\'s sizes', dtype=dtype,
            sides=[Side(side, _side(settings, name, side, factor, dtype)) for side in (public, 'default', 'LaPE')],
            items=images, counted=False, memory=True, note=NOTE,
        )
        for name, (_, _, public) in RECIPES.items()
        for dtype in settings.dtypes
    ]  # fmt: skip


def _side(settings: Settings, name: str, side: str, factor: float, dtype: str) -> Callable:
    def build() -> Callable[[], None]:
        import torch
        from mmengine.optim import build_optim_wrapper

        from mmlape.lab.engine.optim import build_model, quiet_logger

        torch.manual_seed(0)
        cfg = recipe(settings, name, side, factor)
        model = prepared(build_model(cfg), settings)
        with quiet_logger():
            wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
        model.train()
        batches = endless_batches(cfg)

        def step() -> None:
            with settings.autocast(dtype):
                data = model.data_preprocessor(next(batches), True)
                loss, _ = model.parse_losses(model(**data, mode='loss'))
            wrapper.update_params(loss)

        return step

    return build


def recipe(settings: Settings, name: str, side: str, factor: float):
    """Return the config of a recipe over a backbone: a public one by its type, or ours, 'default' or 'LaPE'."""
    from mmlape.lab.datasets.retarget import iter_heads, set_num_classes
    from mmlape.lab.engine.config import load_config

    data, path, public = RECIPES[name]
    cfg = load_config(f'mmlape::{path}', [f'data_root={mini_data(settings) / data}/', 'model.backbone.init_cfg=None'])
    for head, (_, own, key) in zip(iter_heads(cfg), iter_heads(load_config(f'mmlape::{path}'))):
        set_num_classes(*head, own[key])
    arch = arch_of(settings)
    width, ours = arch['embed_dims'], side != public
    if ours:
        cfg.model.backbone.update(arch=arch, pe_joining=side.lower())
        if 'window_attn' in cfg.model.backbone:
            cfg.model.backbone.update(windows(arch['num_layers']))
        channels: Any = [width] * 4
    elif public == 'mmseg.VisionTransformer':
        cfg.model.backbone, channels = _vit(arch, cfg, name), [width] * 4
        if name == 'UperNet':
            cfg.model.neck = dict(
                type='MultiLevelNeck', in_channels=channels, out_channels=width, scales=[4, 2, 1, 0.5]
            )
    else:
        cfg.model.backbone, channels = _swin(public, settings)
    if name == 'Mask R-CNN':
        cfg.model.neck.in_channels = channels
    elif name == 'Segmenter':
        cfg.model.decode_head.update(in_channels=width, channels=width, embed_dims=width, num_heads=arch['num_heads'])
    else:
        cfg.model.decode_head.in_channels = channels
        if 'auxiliary_head' in cfg.model:
            cfg.model.auxiliary_head.in_channels = channels[2]
    if not ours:  # whose layers only the backbone's own classes name
        for key in ('layer_decay_rate', 'layer_decay_first'):
            cfg.optim_wrapper.get('paramwise_cfg', {}).pop(key, None)
    loader = cfg.train_dataloader
    _scale(loader.dataset.pipeline, factor)
    if 'size' in cfg.model.data_preprocessor:
        cfg.model.data_preprocessor.size = tuple(round(factor * side) for side in cfg.model.data_preprocessor.size)
    loader.batch_size = images_of(settings)
    if settings.device == 'cpu':
        loader.update(num_workers=0, persistent_workers=False)
    return cfg


def _vit(arch: dict, cfg: Any, name: str) -> dict:
    """Return MMSegmentation's ViT of an arch; of UperNet after each quarter of the layers."""
    layers = arch['num_layers']
    return dict(
        type='mmseg.VisionTransformer', img_size=512, embed_dims=arch['embed_dims'], num_layers=layers,
        num_heads=arch['num_heads'], mlp_ratio=arch['feedforward_channels'] // arch['embed_dims'],
        drop_path_rate=cfg.model.backbone.drop_path_rate, norm_cfg=dict(type='LN', eps=1e-6), final_norm=True,
        out_indices=[layers * quarter // 4 - 1 for quarter in (1, 2, 3, 4)] if name == 'UperNet' else -1,
    )  # fmt: skip


def _swin(kind: str, settings: Settings) -> tuple[dict, list[int]]:
    """Return a public Swin that goes by the size of the measured ViT, and the widths of its maps."""
    arch = dict(embed_dims=96, depths=(2, 2, 6, 2), num_heads=(3, 6, 12, 24))
    if settings.arch == 'mini':
        arch = dict(embed_dims=12, depths=(1, 1, 2, 1), num_heads=(1, 2, 4, 8))
    elif settings.arch != 'deit-tiny':
        arch['depths'] = (2, 2, 18, 2)
    return dict(type=kind, drop_path_rate=0.2, **arch), [arch['embed_dims'] * 2**stage for stage in range(4)]


def _scale(node: Any, factor: float) -> None:
    """Multiply all sizes in pixels below a pipeline by a factor, in place."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if key in SIZES:
            node[key] = _times(value, factor)
        elif isinstance(value, (dict, list)):
            _scale(value, factor)


def _times(value: Any, factor: float) -> Any:
    return round(value * factor) if isinstance(value, (int, float)) else type(value)(_times(v, factor) for v in value)


def endless_batches(cfg: Any) -> Iterator:
    """Yield training batches for ever; the n-th is the same for every side: n sets the pipeline's random state."""
    import numpy as np
    import torch
    from mmengine.registry import init_default_scope
    from mmengine.runner import Runner

    init_default_scope(cfg.default_scope)
    loader, number = Runner.build_dataloader(cfg.train_dataloader, seed=0), 0
    while True:
        batches = iter(loader)
        while True:
            number += 1
            random.seed(number), np.random.seed(number), torch.manual_seed(number)
            try:
                batch = next(batches)
            except StopIteration:
                break
            yield batch
