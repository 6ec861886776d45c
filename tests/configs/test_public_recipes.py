"""What ViT-Adapter's public configs resolve to, beside the arms and configs that quote its figures."""

import re
from functools import cache

from config_helpers import CONFIGS, ROOT, load
from mmengine.config import Config

from mmlape.engine.config import apply_options, resolve_path
from mmlape.engine.study_file import read_study


@cache
def arms(name: str) -> dict[str, Config]:
    """The config of each arm of ``studies/vit-adapter-NAME.yml``; its bases are read once."""
    configs = {}
    for arm in read_study(ROOT / 'studies' / f'vit-adapter-{name}.yml').arms:
        configs[arm.name] = load(resolve_path(arm.base))
        apply_options(configs[arm.name], dict(arm.overrides))
    return configs


def matching(name: str, pattern: str) -> set[str]:
    """The arms of a study whose names match, with LaPE and without."""
    return {arm for arm in arms(name) if re.fullmatch(f'({pattern})(-lape)?', arm)}


def test_the_detectors_of_augreg_have_the_mean_that_its_weights_expect():
    """Mask R-CNN in both schedules, in training and in tests; HTC++ has ImageNet's."""
    halves, found = [127.5] * 3, set()
    for name, cfg in arms('coco').items():
        pre = cfg.model.data_preprocessor
        found |= {name} if pre.mean == halves and pre.std == halves else set()
    assert found == matching('coco', 'mask-rcnn-large|mask-rcnn-large-1x|mask-rcnn-vit-large')


STRETCH = dict(type='ResizeToMultiple', size_divisor=32)


def test_segmentors_are_tested_on_stretched_sides():
    """All with a public figure but Cityscapes'; LaPE's UperNet, whose settings are the original ones, too."""
    files = [path for path in CONFIGS if re.match('upernet_deit-(tiny|small)-adapter', path.stem)]
    cfgs = {path.stem: load(path) for path in files} | arms('segmentation')
    plain = matching('segmentation', 'cityscapes|m2f-small|m2f-dinov3-7b')
    for name, cfg in cfgs.items():
        for split in ('train', 'val', 'test'):
            steps = list(cfg[f'{split}_dataloader'].dataset.pipeline)
            wanted = [2] if split != 'train' and name not in plain else []
            assert [place for place, step in enumerate(steps) if step == STRETCH] == wanted, (name, split)
    assert len(files) == 4
