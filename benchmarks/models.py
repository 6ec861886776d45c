"""The models that are measured: our backbones, and complete detectors and segmentors with synthetic images."""

import torch
from torch import nn

from benchmarks.comparison import Settings

MINI = dict(embed_dims=48, num_layers=4, num_heads=3, feedforward_channels=96)
"""`--arch mini`, for a trial."""


def arch_of(settings: Settings) -> dict:
    """Return the widths and the depth of the measured ViT."""
    from mmlape.models.vit.model import ARCHS

    return dict({**ARCHS, 'mini': MINI}[settings.arch])


def heads_of(settings: Settings) -> int:
    """Return the heads of the adapter's deformable attention."""
    return 3 if settings.arch == 'mini' else 6


def prepared(model: nn.Module, settings: Settings) -> nn.Module:
    """Move a model to the device, with plain BatchNorm: SyncBN needs a process group."""
    return plain_batch_norm(model).to(settings.device)


def plain_batch_norm(model: nn.Module) -> nn.Module:
    """Replace every SyncBN inside a model by BatchNorm with its weights, in place; returns the model."""
    for parent in list(model.modules()):
        for name, norm in parent.named_children():
            if isinstance(norm, nn.SyncBatchNorm):
                plain = nn.BatchNorm2d(norm.num_features, norm.eps, norm.momentum, norm.affine)
                plain.load_state_dict(norm.state_dict())
                setattr(parent, name, plain.train(norm.training))
    return model


def vit(settings: Settings, **changes) -> nn.Module:
    """Build our plain ViT."""
    from mmlape.models import VisionTransformer

    torch.manual_seed(0)
    arguments = dict(arch=arch_of(settings), img_size=settings.size, out_type='featmap') | changes
    return prepared(VisionTransformer(**arguments), settings)


def adapter(settings: Settings, **changes) -> nn.Module:
    """Build our ViT-Adapter, with the public detection code's windows."""
    from mmlape.models import ViTAdapter

    torch.manual_seed(0)
    arch = arch_of(settings)
    arguments = dict(arch=arch, img_size=224, init_values=0.1, deform_num_heads=heads_of(settings))
    arguments |= windows(arch['num_layers']) | changes
    return prepared(ViTAdapter(**arguments), settings)


def timm_vit(settings: Settings, weights: dict[str, torch.Tensor]) -> nn.Module:
    """Build timm's ViT with the weights of ours; it returns all tokens."""
    from timm.models.vision_transformer import VisionTransformer

    arch = arch_of(settings)
    model = VisionTransformer(
        img_size=settings.size, embed_dim=arch['embed_dims'], depth=arch['num_layers'], num_heads=arch['num_heads'],
        mlp_ratio=arch['feedforward_channels'] / arch['embed_dims'], num_classes=0, global_pool='',
    )  # fmt: skip
    model.load_state_dict(weights)
    return prepared(model, settings)


def without_dropout(model: nn.Module) -> nn.Module:
    """Set the rate of every dropout to 0, so that gradients can be compared; returns the model."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def random_offsets(model: nn.Module) -> str:
    """Give deformable attention random sampling offsets, the same for the same names; returns what to say about it.

    Fresh ones are integers, and then many samples lie on the border of two cells, where the gradient of the place is
    that of either side.
    """
    generator = torch.Generator().manual_seed(4)
    for name, parameter in sorted(model.named_parameters()):
        if '.sampling_offsets.' in name:
            spread = 0.02 if parameter.ndim == 2 else 2.0
            parameter.data.copy_(spread * torch.randn(parameter.shape, generator=generator))
    return ', with random sampling offsets'


def windows(num_layers: int) -> dict:
    """Return windows of 14 in all layers but the last of each quarter."""
    quarter = num_layers // 4
    return dict(window_attn=[(layer + 1) % quarter != 0 for layer in range(num_layers)], window_size=14)


def complete_model(config: str, joining: str, settings: Settings) -> tuple[nn.Module, dict, object]:
    """Build the model of a config with random weights, synthetic data for it, and its optimiser wrapper.

    Args:
        config: Path below `configs`.
        joining: Replaces its backbone's ``pe_joining``.

    Returns:
        The model, a batch as the data loader gives it, and the wrapper.
    """
    from mmengine.optim import build_optim_wrapper

    from mmlape.lab.config.config_file import load_config
    from mmlape.lab.training.optim import build_model, quiet_logger

    torch.manual_seed(0)
    cfg = load_config(f'mmlape::{config}')
    cfg.model.backbone.update(init_cfg=None, pe_joining=joining)
    if 'size' in cfg.model.data_preprocessor:
        cfg.model.data_preprocessor.size = (settings.size, settings.size)
    model = prepared(build_model(cfg), settings)
    with quiet_logger():
        wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    count, size = settings.images, settings.size
    if cfg.default_scope == 'mmdet':
        head = cfg.model.get('roi_head', cfg.model).bbox_head
        return model, _detection_data(count, size, head.num_classes), wrapper
    return model, _segmentation_data(count, size, cfg.model.decode_head.num_classes), wrapper


def _images(count: int, size: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return list(torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator))


def _metainfo(size: int) -> dict:
    shape = (size, size)
    return dict(img_shape=shape, ori_shape=shape, pad_shape=shape, batch_input_shape=shape, scale_factor=(1.0, 1.0))


def _segmentation_data(count: int, size: int, classes: int) -> dict:
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample

    generator = torch.Generator().manual_seed(2)
    samples = []
    for _ in range(count):
        sample = SegDataSample(metainfo=_metainfo(size))
        sample.gt_sem_seg = PixelData(data=torch.randint(0, classes, (1, size, size), generator=generator))
        samples.append(sample)
    return dict(inputs=_images(count, size), data_samples=samples)


def _detection_data(count: int, size: int, classes: int) -> dict:
    """Return a batch with ten rectangles per image."""
    import numpy as np
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks
    from mmengine.structures import InstanceData

    random = np.random.RandomState(2)
    samples = []
    for _ in range(count):
        corner = random.uniform(0, size * 0.6, (10, 2))
        boxes = np.concatenate([corner, corner + random.uniform(size * 0.05, size * 0.4, (10, 2))], axis=1)
        masks = np.zeros((10, size, size), np.uint8)
        for mask, (x0, y0, x1, y1) in zip(masks, boxes.astype(int)):
            mask[y0:y1, x0:x1] = 1
        sample = DetDataSample(metainfo=_metainfo(size))
        sample.gt_instances = InstanceData(
            bboxes=torch.tensor(boxes, dtype=torch.float32),
            labels=torch.tensor(random.randint(0, classes, 10)),
            masks=BitmapMasks(masks, size, size),
        )
        sample.ignored_instances = InstanceData(bboxes=torch.zeros(0, 4))
        samples.append(sample)
    return dict(inputs=_images(count, size), data_samples=samples)
