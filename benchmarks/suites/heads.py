"""Mask2Former of transformers over our adapters beside the same over its own Swin-T, on synthetic objects.

It needs transformers 5 and no OpenMMLab: `pip install '.[transformers,experiments]' psutil`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.comparison import Comparison, Settings, Side
from benchmarks.models import arch_of, prepared
from benchmarks.suites.foundation import NAMES

CLASSES = 150
WORKS = ('forward', 'training step')


def swin(settings: Settings) -> nn.Module:
    """Build Mask2Former as its configuration has it: over Swin-T."""
    from transformers import Mask2FormerConfig, Mask2FormerForUniversalSegmentation

    return Mask2FormerForUniversalSegmentation(Mask2FormerConfig(num_labels=CLASSES))


def over(name: str, options: Callable[[Settings], dict]) -> Callable[[Settings], nn.Module]:
    """Return what builds Mask2Former over one of our adapters, with random weights."""

    def build(settings: Settings) -> nn.Module:
        from transformers import Mask2FormerConfig, Mask2FormerForUniversalSegmentation

        from mmlape.integrations.transformers import PyramidConfig

        config = Mask2FormerConfig(backbone_config=PyramidConfig(name, options(settings)), num_labels=CLASSES)
        return Mask2FormerForUniversalSegmentation(config)

    return build


def plain(settings: Settings) -> dict:
    return dict(arch=arch_of(settings), pe_joining='lape', img_size=max(settings.sizes))


def frozen(settings: Settings) -> dict:
    arch = arch_of(settings)
    vit = dict(model_name=NAMES.get(settings.arch, NAMES['deit-small']), frozen=True)
    if settings.arch in NAMES:
        return dict(vit=vit, mode='read-only')
    vit['model_args'] = dict(embed_dim=arch['embed_dims'], depth=arch['num_layers'], num_heads=arch['num_heads'])
    return dict(vit=vit, mode='read-only', deform_num_heads=4)


SIDES = {
    "transformers' Swin-T": swin,
    'ViT-Adapter, LaPE': over('ViTAdapter', plain),
    'frozen DINOv3, read-only adapter': over('TimmViTAdapter', frozen),
}


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per size, dtype and work."""
    return [
        Comparison(
            suite='heads',
            case=f'Mask2Former of transformers, {settings.arch}',
            work=work,
            shape=settings.shape(size),
            dtype=dtype,
            sides=[Side(name, _side(build, size, dtype, work, settings)) for name, build in SIDES.items()],
            items=settings.images(size),
            memory=work == 'training step',
            note='the heads are equal, the backbones differ in size; all weights are random',
        )
        for size in settings.sizes
        for dtype in settings.dtypes
        for work in WORKS
    ]


def objects(settings: Settings, size: int) -> dict[str, list[Tensor]]:
    """Return the masks (8, size, size) of eight rectangles and their classes (8) for each image."""
    generator = torch.Generator().manual_seed(0)
    masks, classes = [], []
    for _ in range(settings.images(size)):
        mask = torch.zeros(8, size, size)
        for one in mask:
            top, left = torch.randint(size // 2, (2,), generator=generator).tolist()
            height, width = torch.randint(size // 8, size // 2, (2,), generator=generator).tolist()
            one[top : top + height, left : left + width] = 1
        masks.append(mask.to(settings.device))
        classes.append(torch.randint(CLASSES, (8,), generator=generator).to(settings.device))
    return dict(mask_labels=masks, class_labels=classes)


def _side(build: Callable, size: int, dtype: str, work: str, settings: Settings) -> Callable:
    def prepare() -> Callable[[], object]:
        torch.manual_seed(0)
        model, images = prepared(build(settings), settings), settings.inputs(size)
        if work == 'forward':
            model.eval()

            def forward() -> object:
                with torch.inference_mode(), settings.autocast(dtype):
                    return model(pixel_values=images).masks_queries_logits

            return forward
        model.train()
        truth = objects(settings, size)
        optimiser = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-6)

        def step() -> None:
            optimiser.zero_grad(set_to_none=True)
            with settings.autocast(dtype):
                loss = model(pixel_values=images, **truth).loss
            loss.backward()
            optimiser.step()

        return step

    return prepare
