"""`mmlape test` and `mmlape predict` on complete models of the released layouts, and detectors' outputs by hand.

No released file can be had here: tiny models with random weights are written under the public names.
"""

import json
import re

import numpy as np
import pytest
import tiny
import torch
from checkpoint_helpers import save
from mmengine.config import Config

from mmlape.checkpoint.opening import open_file
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data
from mmlape.lab.inference.run_model import init_model, predict
from mmlape.lab.training.optim import build_model

DETECTOR = 'mmlape::mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco'
COMMON = ('model.backbone.init_cfg=None', 'model.backbone.pe_joining=default')
BEIT = tuple(
    f'model.backbone.{value}'
    for value in ('pe_type=beit', 'qkv_bias=qv', 'layer_scale_init_value=0.1', 'window_padding=before-qkv')
)


@pytest.fixture(scope='module')
def mini(tmp_path_factory):
    root = tmp_path_factory.mktemp('data') / 'mini'
    make_mini_data(root, MiniOptions(train=2, val=2, digits=0, size=(96, 96), per_scene=(2, 3), digit_size=(20, 40)))
    return root


def released(cfg: Config) -> tuple[dict, dict]:
    """The tensors of a random model under our names, and under the public ones, with what a public file has more."""
    torch.manual_seed(0)
    model = build_model(cfg)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.03 * torch.randn_like(value))
        for name, value in model.named_buffers():
            if '_head' in name and value.is_floating_point():  # the norms' means and variances
                value.add_(torch.rand_like(value))
    own = model.state_dict()
    public = {re.sub(r'\.gamma([12])$', r'.gamma_\1', name): value for name, value in own.items()}
    public |= {f'backbone.blocks.{i}.attn.relative_position_index': torch.zeros(16, 16).long() for i in range(4)}
    return own, public


def run(name: str, words: list, options: list[str], folder) -> str:
    return tiny.run(*tiny.MMLAPE, name, *words, '--cfg-options', *options, cwd=folder)


def test_the_commands_take_a_released_file(mini, tmp_path):
    options = [*COMMON, 'test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False', *BEIT]
    options += [f'data_root={mini}/coco', 'model.test_cfg.rcnn.score_thr=0.0', 'model.test_cfg.rcnn.max_per_img=5']
    image = next((mini / 'coco' / 'val2017').iterdir())
    own, public = released(load_config(DETECTOR, options))
    assert set(own) != set(public)
    file = save(tmp_path / 'public.pth.tar', public, 'state_dict', meta=dict(mmcv_version='1.4.2', epoch=36))
    model = init_model(DETECTOR, open_file(save(tmp_path / 'own.pth', own, 'state_dict')), 'cpu', options)
    expected = sorted(predict(model, image).pred_instances.scores.tolist())
    assert len(expected) == 5

    words = [DETECTOR, file, '--out', 'metrics.json', '--save-pred', 'saved', '--work-dir', 'run']
    run('test', words, options, tmp_path)
    rows = json.loads((tmp_path / 'saved' / 'predictions.json').read_text())
    annotations = json.loads((mini / 'coco' / 'annotations' / 'instances_val2017.json').read_text())
    (number,) = (row['id'] for row in annotations['images'] if row['file_name'] == image.name)
    np.testing.assert_allclose(sorted(row['score'] for row in rows if row['image_id'] == number), expected, atol=1e-5)

    run('predict', [DETECTOR, file, image, '--out', 'predicted', '--device', 'cpu'], options, tmp_path)
    assert (tmp_path / 'predicted' / 'overlays' / image.name).is_file()
    found = json.loads((tmp_path / 'predicted' / 'predictions.json').read_text())['annotations']
    np.testing.assert_allclose(sorted(row['score'] for row in found), expected, atol=1e-5)
