"""Complete detectors and segmentors of the configurations, LaPE beside default PE, on synthetic images and objects."""

from collections.abc import Callable

from benchmarks.comparison import Comparison, Settings, Side
from benchmarks.models import complete_model, images_of

MINI = (
    'segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade.py',
    'upernet/upernet_deit-mini-adapter-lape_1xb4-200i_mini-ade.py',
    'mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py',
)
RECIPES = (
    'segmenter/segmenter_{arch}-lape_4xb2-160k_ade20k.py',
    'upernet/upernet_{arch}-adapter-lape_4xb2-160k_ade20k.py',
    'mask_rcnn/mask-rcnn_{arch}-adapter-lape_4xb2-3x_coco.py',
)


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per configuration, dtype and work, at one size: the largest on a GPU, the smallest on the CPU.

    DeiT-B and larger ones have no recipes of this kind.
    """
    if settings.arch in ('deit-base', 'deit-large'):
        return []
    size = max(settings.sizes) if settings.device == 'cuda' else min(settings.sizes)
    configs = MINI if settings.arch == 'mini' else [path.format(arch=settings.arch) for path in RECIPES]
    return [
        _comparison(settings, size, dtype, config, work)
        for config in configs
        for dtype in settings.dtypes
        for work in ('training step', 'inference')
    ]


def _comparison(settings: Settings, size: int, dtype: str, config: str, work: str) -> Comparison:
    def side(joining: str) -> Callable:
        def build():
            return _work(config, joining, settings, size, dtype, work)

        return build

    images = images_of(settings)
    return Comparison(
        suite='models',
        case=config.rpartition('/')[2].removesuffix('.py').split('_4xb')[0],
        work=work,
        shape=f'{images} x 3 x {size} x {size}',
        dtype=dtype,
        sides=[Side('default', side('default')), Side('LaPE', side('lape'))],
        items=images,
        memory=work == 'training step',
        note='test-time settings of the recipe, random weights' if work == 'inference' else '',
    )


def _work(config: str, joining: str, settings: Settings, size: int, dtype: str, work: str) -> Callable:
    import torch

    model, batch, wrapper = complete_model(config, joining, settings, size)
    if work == 'inference':
        model.eval()

        def infer():
            with torch.inference_mode(), settings.autocast(dtype):
                return model(**model.data_preprocessor(batch, False), mode='predict')

        return infer
    model.train()

    def step():
        with settings.autocast(dtype):
            data = model.data_preprocessor(batch, True)
            loss, _ = model.parse_losses(model(**data, mode='loss'))
        wrapper.update_params(loss)

    return step
