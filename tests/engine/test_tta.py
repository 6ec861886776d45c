"""Test-time augmentation: labels beside views that are made and merged by hand."""

import mmcv
import numpy as np
import pytest
import tiny
import torch
import torch.nn.functional as F
from model_helpers import randomise
from PIL import Image

from mmlape.checkpoint.opening import open_file
from mmlape.lab.config.config_file import load_config
from mmlape.lab.inference import evaluator
from mmlape.lab.inference.evaluator import RATIOS, augment
from mmlape.lab.inference.prediction import init_model, predict_batch
from mmlape.lab.training.optim import build_model

RESIZE = """
test_pipeline.insert(1, dict(type='Resize', scale=(96, 48), keep_ratio=True))
"""


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp('tta')
    return tiny.write_config(folder, tiny.write_data(folder / 'data', val=2), RESIZE)


def predicted(model, file):
    return predict_batch(model, [model.preparation.of_file(file)])[0]


def test_labels_are_those_of_the_mean_of_all_views(config, tmp_path):
    cfg = load_config(config)
    torch.manual_seed(0)
    torch.save(dict(state_dict=randomise(build_model(cfg)).state_dict()), tmp_path / 'm.pth')
    result = evaluator.test(cfg, tmp_path / 'm.pth', tmp_path, save_pred=True, show=False, tta=(1.0, 1.5))
    assert result['tta'] == [1.0, 1.5]
    del cfg.test_dataloader.dataset.pipeline[1]  # views by hand have their size
    model, differ = init_model(cfg, open_file(tmp_path / 'm.pth'), 'cpu'), 0
    for file in sorted((config.parent / 'data' / 'images' / 'validation').iterdir()):
        image, total = mmcv.imread(str(file)), 0
        for side in (48, 72):
            for flip in (False, True):
                view = mmcv.imrescale(image, (2 * side, side))
                mmcv.imwrite(np.ascontiguousarray(view[:, ::-1] if flip else view), str(tmp_path / 'view.png'))
                logits = predicted(model, tmp_path / 'view.png').seg_logits.data[None]
                logits = logits.flip(-1) if flip else logits
                total = total + F.interpolate(logits, image.shape[:2], mode='bilinear').softmax(1)
        labels = np.asarray(Image.open(next((tmp_path / 'predictions').rglob(file.name)))) - 1
        assert (labels == total[0].argmax(0).numpy()).mean() > 0.995
        differ += (labels != predicted(model, file).pred_sem_seg.data[0].numpy()).sum()
    assert differ > 100


def test_sizes_are_no_smaller_than_the_windows(config):
    cfg = load_config(config, ['model.test_cfg.crop_size=(40,40)'])
    assert augment(cfg) == dict(type='SegTTAModel')
    first, views = cfg.test_dataloader.dataset.pipeline
    sizes, flips, *rest = views['transforms']
    assert first['type'] == 'LoadImageFromFile' and [step[0]['type'] for step in rest] == [
        'LoadAnnotations', 'PackSegInputs',
    ]  # fmt: skip
    assert [size['scale'] for size in sizes] == [(80, 40), (80, 40), (96, 48), (120, 60), (144, 72), (168, 84)]
    cfg = load_config(config)
    augment(cfg, (1.2,))  # 115.2 x 57.6
    assert cfg.test_dataloader.dataset.pipeline[1]['transforms'][0][0]['scale'] == (115, 58)
    assert len(RATIOS) == 6 and [flip['prob'] for flip in flips] == [0.0, 1.0]
