"""Necks of the public ViT-Adapter code, beside PyTorch's own layers, and HTC++'s masks in a prediction."""

import pytest
import torch
import torch.nn.functional as F
from mmdet.registry import MODELS
from mmengine.config import ConfigDict
from mmengine.registry import init_default_scope
from model_helpers import randomise
from torch import nn

from mmlape.lab.config.config_file import load_config
from mmlape.projects import ChannelMapperWithPooling, ExtraAttention


def test_pooling_halves_the_last_output():
    neck = ChannelMapperWithPooling([3, 4], 5, num_outs=4)
    randomise(neck)
    maps = torch.randn(2, 3, 9, 12), torch.randn(2, 4, 5, 6)
    outs = neck(maps)
    expected = [F.conv2d(m, conv.conv.weight, conv.conv.bias).relu() for m, conv in zip(maps, neck.convs)]
    expected += [F.max_pool2d(expected[1], 2)]
    expected += [F.max_pool2d(expected[2], 2)]
    assert [tuple(out.shape[-2:]) for out in outs] == [(9, 12), (5, 6), (2, 3), (1, 1)]
    for out, other in zip(outs, expected, strict=True):
        torch.testing.assert_close(out, other)
    assert set(neck.state_dict()) == {f'convs.{i}.conv.{leaf}' for i in (0, 1) for leaf in ('weight', 'bias')}
    assert len(ChannelMapperWithPooling([3, 4], 5)(maps)) == 2


def reference(neck: ExtraAttention, x: torch.Tensor) -> torch.Tensor:
    """PyTorch's encoder layer with the norm first, then a norm, on the same weights."""
    dims = neck.in_channels[-1]
    layer = nn.TransformerEncoderLayer(
        dims, neck.attn.num_heads, 4 * dims, 0.0, 'gelu', batch_first=True, norm_first=True, dtype=x.dtype
    )
    own = neck.state_dict()
    names = {
        'self_attn.in_proj_': 'attn.qkv.',
        'self_attn.out_proj.': 'attn.proj.',
        'linear1.': 'ffn.fc1.',
        'linear2.': 'ffn.fc2.',
        'norm1.': 'norm1.',
        'norm2.': 'norm2.',
    }
    layer.load_state_dict({a + leaf: own[b + leaf] for a, b in names.items() for leaf in ('weight', 'bias')})
    tokens = layer.train()(x.flatten(2).mT)
    return neck.final_norm(tokens).mT.reshape(x.shape)


@pytest.mark.parametrize('with_cp', [False, True])
def test_attention_is_on_the_last_map_alone(with_cp):
    neck = MODELS.build(dict(type='mmlape.ExtraAttention', in_channels=[4, 8], num_head=2, with_cp=with_cp)).double()
    randomise(neck)
    first, last = torch.randn(2, 4, 6, 8).double(), torch.randn(2, 8, 3, 4).double().requires_grad_()
    outs = neck((first, last))
    assert outs[0] is first and isinstance(outs, tuple)
    expected = reference(neck, last)
    torch.testing.assert_close(outs[1], expected, atol=1e-12, rtol=0)
    gradients = [torch.autograd.grad(out.square().sum(), last)[0] for out in (outs[1], expected)]
    torch.testing.assert_close(*gradients, atol=1e-10, rtol=0)


WIDTHS = {256: 8, 80: 3, 183: 5}


def narrow(value):
    """Return a config with few channels and classes."""
    if isinstance(value, dict):
        return {key: narrow(item) for key, item in value.items()}
    return [narrow(item) for item in value] if isinstance(value, list) else WIDTHS.get(value, value)


@torch.no_grad()
def test_a_prediction_has_the_masks_of_every_stage_as_it_is_trained():
    init_default_scope('mmdet')
    cfg = load_config('mmlape::htc/htc_beit-large-adapter_16xb1-3x_coco').model
    roi_head = narrow(dict(cfg.roi_head, train_cfg=cfg.train_cfg.rcnn, test_cfg=cfg.test_cfg.rcnn))
    head = randomise(MODELS.build(ConfigDict(roi_head))).eval()
    maps = [torch.randn(1, 8, side, side) for side in (32, 16, 8, 4)]
    semantic = torch.randn(1, 8, 16, 16)
    boxes = torch.tensor([[0.0, 3, 5, 40, 61], [0, 20, 10, 90, 77]])
    predicted = head._mask_forward(-1, maps, boxes, semantic, training=False)['mask_preds']
    trained = [head._mask_forward(stage, maps, boxes, semantic)['mask_preds'] for stage in range(3)]
    assert type(head).__module__.startswith('mmlape.') and all(masks.std() > 1e-3 for masks in trained)
    torch.testing.assert_close(predicted, trained)
