"""InstaBoost: on by the recipe, off by one option."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest
from config_helpers import CONFIGS, load

from mmlape.projects.htc import InstaBoost

HTC = next(path for path in CONFIGS if path.stem.startswith('htc_beit-large'))


@pytest.fixture
def package(monkeypatch):
    """A stand-in: every image gets 7 everywhere, every object moves by 2 pixels."""

    def get_new_data(anns, image, config, background):
        moved = [{**ann, 'bbox': [ann['bbox'][0] + 2, *ann['bbox'][1:]]} for ann in anns]
        return moved, np.full_like(image, 7)

    module = ModuleType('instaboostfast')
    module.__spec__ = ModuleSpec('instaboostfast', None)
    module.InstaBoostConfig, module.get_new_data = lambda *options: options, get_new_data
    monkeypatch.setitem(sys.modules, 'instaboostfast', module)


def sample() -> dict:
    instance = dict(bbox=[1.0, 1.0, 3.0, 3.0], bbox_label=0, mask=[[1.0, 1.0, 3.0, 1.0, 3.0, 3.0]], ignore_flag=0)
    return dict(img=np.zeros((8, 8, 3), dtype=np.uint8), instances=[instance])


def test_with_the_package_images_and_objects_change(package):
    cfg = load(HTC)
    options = {key: value for key, value in cfg.train_dataloader.dataset.pipeline[1].items() if key != 'type'}
    boost = InstaBoost(**{**options, 'aug_ratio': 1})
    assert boost.boost.cfg == (('normal', 'horizontal', 'skip'), (1, 0, 0), (0.8, 1.2), 15, 15, (-1, 1), 0.5, False)
    changed = boost(sample())
    assert (changed['img'] == 7).all() and changed['instances'][0]['bbox'] == [3.0, 1.0, 5.0, 3.0]
    assert InstaBoost(**options).boost.aug_ratio == 0.5
