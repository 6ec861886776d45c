"""Test-time augmentation: each image at several sizes, as it is and flipped.

The scores of all views are averaged.
"""

from collections.abc import Sequence

from mmengine.config import Config

from mmlape.errors import ConfigError
from mmlape.lab.datasets.formats import iter_unwrapped

RATIOS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75)
"""Of ViT-Adapter's figures at several scales."""


def augment(cfg: Config, ratios: Sequence[float] = ()) -> dict:
    """Have the test set give several views of each image.

    Return the config of the model that merges them. They are ``tta_pipeline`` and ``tta_model`` of
    the config, if it has them. A segmentor's are otherwise made of the test pipeline: its
    ``Resize`` at each ratio, but no smaller than the windows, and each also flipped.

    Args:
        cfg: Is changed.
        ratios: Of the sizes; ``RATIOS`` by default.

    Raises:
        ConfigError: The config has one of the two alone, no such pipeline, or is of another task.
    """
    model, pipeline = cfg.get('tta_model'), cfg.get('tta_pipeline')
    if bool(model) != bool(pipeline):
        raise ConfigError(f'{cfg.filename}: --tta needs tta_model and tta_pipeline, or neither')
    if model and ratios:
        raise ConfigError(f'{cfg.filename} has a tta_pipeline: give --tta without ratios')
    if not model and cfg.get('default_scope') != 'mmseg':
        raise ConfigError(f'{cfg.filename}: --tta needs tta_model and tta_pipeline, but for segmentors')
    for dataset in iter_unwrapped(cfg.test_dataloader.dataset):
        dataset['pipeline'] = pipeline or _views(cfg, dataset['pipeline'], ratios or RATIOS)
    return dict(model or dict(type='SegTTAModel'))


def _views(cfg: Config, pipeline: Sequence[dict], ratios: Sequence[float]) -> list[dict]:
    resizes = [i for i, step in enumerate(pipeline) if step['type'] == 'Resize' and step.get('keep_ratio')]
    if len(resizes) != 1 or min(ratios) <= 0:
        raise ConfigError(
            f'{cfg.filename}: --tta takes positive ratios, and a test pipeline with one '
            'Resize(scale=..., keep_ratio=True); or give tta_model and tta_pipeline in the config'
        )
    (at,) = resizes
    scale, window = (pipeline[at]['scale'], min((cfg.model.get('test_cfg') or {}).get('crop_size', (0,))))
    factors = [max(ratio, window / min(scale)) for ratio in ratios]
    sizes = [dict(pipeline[at], scale=tuple(round(side * factor) for side in scale)) for factor in factors]
    flips = [dict(type='RandomFlip', prob=prob) for prob in (0.0, 1.0)]
    views = dict(type='TestTimeAug', transforms=[sizes, flips, *([step] for step in pipeline[at + 1 :])])
    return [*pipeline[:at], views]
