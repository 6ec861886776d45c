"""The linear decoder's recipe (DPN, section 6.3 and appendix G), and what the decoder computes."""

import pytest
import torch
import torch.nn.functional as F
from config_helpers import CONFIGS, build, load
from mmengine.registry import PARAM_SCHEDULERS
from torch import nn

RECIPES = [path for path in CONFIGS if path.stem.startswith('linear_vit-')]


def test_rate_has_no_warm_up_and_ends_at_zero():
    """3e-5 (1 - t / T)^0.9, on a schedule of 51 steps; MMEngine's T is the last step."""
    (schedule,) = load(RECIPES[0]).param_scheduler
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=3e-5)
    scheduler = PARAM_SCHEDULERS.build(dict(schedule, end=51), default_args=dict(optimizer=optimizer))
    rates = []
    for _ in range(51):
        rates.append(optimizer.param_groups[0]['lr'])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([3e-5 * (1 - step / 50) ** 0.9 for step in range(51)])


def test_logits_are_one_linear_map_of_the_last_layer_s_patches():
    cfg = load(next(path for path in CONFIGS if path.stem.startswith('linear_deit-mini-dpn'))).copy()
    cfg.merge_from_dict({'model.backbone.init_cfg': None})
    model = build(cfg).eval()
    images = torch.randn(1, 3, 128, 128)
    with torch.no_grad():
        (tokens,) = model.backbone(images)
        weight, bias = model.decode_head.conv_seg.weight[:, :, 0, 0], model.decode_head.conv_seg.bias
        expected = torch.einsum('bdhw,kd->bkhw', tokens, weight) + bias[None, :, None, None]
        expected = F.interpolate(expected, (128, 128), mode='bilinear', align_corners=False)
        found = model.encode_decode(images, [dict(img_shape=(128, 128))])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
