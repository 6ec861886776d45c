"""Run by `tests/floors.sh` and `tests/newest.sh`: three recipes train, validate and resume with their own workers."""

import sys

import pytest
import tiny
from mmengine.config import Config

from mmlape.openmmlab.mim import config_path

RECIPES = (
    'mmlape::mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco',
    'mmlape::segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade',
    'mmlape::deit/deit-mini-lape_1xb32-5e_mini-digits',
)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('recipes')
    counts = ('--train', 40, '--val', 4, '--digits', 200)
    tiny.run(sys.executable, *tiny.MMLAPE, 'make-mini-data', 'data/mini', *counts, cwd=folder, **tiny.REAL)
    return folder


@pytest.mark.parametrize('name', RECIPES)
def test_a_recipe_trains_validates_and_resumes(name, folder):
    assert Config.fromfile(config_path(name)).train_dataloader.num_workers > 0
    options = ('--smoke', '--cfg-options', 'model.backbone.init_cfg=None')
    printed = tiny.run(sys.executable, *tiny.MMLAPE, 'train', name, *options, cwd=folder, **tiny.REAL)
    assert 'resume' in printed
