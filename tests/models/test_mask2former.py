"""Mask2Former: our pixel decoder beside mmdetection's, windows of padded images, resize before or after sigmoid."""

import pytest
import torch
import torch.nn.functional as F
from mask2former_helpers import ATTENTION, CLASSES, DECODER, DIMS, HEAD, config, head
from mmcv.cnn.bricks.transformer import FFN
from mmcv.ops import MultiScaleDeformableAttention as PlainAttention
from mmdet.models.layers import MSDeformAttnPixelDecoder as PlainDecoder
from mmengine.config import ConfigDict
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import PixelData
from mmseg.models.decode_heads import Mask2FormerHead as PlainHead
from mmseg.structures import SegDataSample
from model_helpers import randomise

from mmlape.projects import MSDeformAttnPixelDecoder, MultiScaleDeformableAttention


def pair(ours: type, theirs: type, **kwargs):
    """Both modules with the same random weights."""
    found = ours(**config(kwargs)), theirs(**config(kwargs))
    randomise(found[0])
    assert list(found[0].state_dict()) == list(found[1].state_dict())
    found[1].load_state_dict(found[0].state_dict())
    return found


def maps(batch: int, height: int, width: int, dtype=torch.float32) -> list[torch.Tensor]:
    sides = [(-(-height // s), -(-width // s)) for s in (4, 8, 16, 32)]
    return [torch.randn(batch, c, *side, dtype=dtype) for c, side in zip((6, 7, 8, 9), sides)]


# the pixel decoder


@pytest.mark.parametrize('size', [(64, 96), (50, 37)])
def test_the_pixel_decoder_is_mmdetections(size):
    """Outputs, and gradients of inputs and of every parameter; mmdetection's reference points are float32."""
    models = [model.double() for model in pair(MSDeformAttnPixelDecoder, PlainDecoder, **DECODER)]
    given, found = maps(2, *size, torch.float64), []
    for model in models:
        inputs = [m.clone().requires_grad_() for m in given]
        feature, outs = model(inputs)
        probe = torch.Generator().manual_seed(3)
        total = sum((o * torch.randn(o.shape, generator=probe, dtype=o.dtype)).sum() for o in (feature, *outs))
        gradients = torch.autograd.grad(total, [*inputs, *model.parameters()])
        found.append([feature, *outs, *gradients])
    assert len(found[0]) == len(found[1]) and [tuple(o.shape[-2:]) for o in found[0][1:4]] == [
        tuple(m.shape[-2:]) for m in given[:0:-1]
    ]
    for own, other in zip(*found):
        torch.testing.assert_close(own, other, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize('boxes', [False, True], ids=['points', 'boxes'])
@pytest.mark.parametrize('first', [False, True], ids=['queries first', 'batch first'])
def test_the_attention_is_mmcvs(boxes, first):
    """With padding, an identity and values of their own, as other detectors call it; shapes as a tensor."""
    cfg = dict(ATTENTION, batch_first=first, value_proj_ratio=0.5)
    ours, theirs = (model.double() for model in pair(MultiScaleDeformableAttention, PlainAttention, **cfg))
    shapes = torch.tensor([(3, 4), (2, 2), (1, 2)])
    cells = int(shapes.prod(1).sum())
    query, pos, identity = torch.randn(3, 2, 5, DIMS, dtype=torch.float64)
    value, padding = torch.randn(2, cells, DIMS, dtype=torch.float64), torch.rand(2, cells) < 0.3
    reference = torch.rand(2, 5, 3, 4 if boxes else 2, dtype=torch.float64)
    tokens = dict(query=query, query_pos=pos, identity=identity, value=value)
    if not first:
        tokens = {name: x.transpose(0, 1) for name, x in tokens.items()}
    starts = torch.cat((shapes.new_zeros(1), shapes.prod(1).cumsum(0)[:-1]))
    options = dict(reference_points=reference, spatial_shapes=shapes, level_start_index=starts)
    found = [model(**tokens, key_padding_mask=padding, **options) for model in (ours, theirs)]
    torch.testing.assert_close(*found, atol=1e-12, rtol=0)


def test_the_decoder_starts_as_mmdetections():
    """Offsets of zero with the star of biases; queries of weight zero; the rest has mmdetection's spread."""
    model = MSDeformAttnPixelDecoder(**config(DECODER))
    model.init_weights()
    attention = model.encoder.layers[1].self_attn
    assert isinstance(attention, MultiScaleDeformableAttention)
    assert not attention.sampling_offsets.weight.any() and not attention.attention_weights.weight.any()
    star = attention.sampling_offsets.bias.view(2, 3, 4, 2)
    torch.testing.assert_close(star[0, 0], torch.tensor([(1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (4.0, 0.0)]))


# the head


def by_hand(model, x, size, order):
    """What the last layer's queries say of each pixel, one query at a time."""
    classes, masks = (of_layers[-1] for of_layers in model(x, [SegDataSample(metainfo={})]))
    total = 0
    for query in range(masks.shape[1]):
        mask = masks[:, query : query + 1]
        if order == 'masks':
            mask = F.interpolate(mask, size, mode='bilinear')
        share = classes[:, query].exp() / classes[:, query].exp().sum(-1, keepdim=True)
        total = total + share[:, :CLASSES, None, None] * (1 / (1 + (-mask).exp()))
    return total if order == 'masks' else F.interpolate(total, size, mode='bilinear')


@pytest.mark.parametrize('order', ['masks', 'scores'])
def test_scores_are_those_of_the_order(order):
    model, x = head(upsampled=order).double(), maps(1, 48, 64, torch.float64)
    with torch.no_grad():
        found = model.predict(x, [dict(img_shape=(48, 64))], dict(mode='whole'))
        torch.testing.assert_close(found, by_hand(model, x, (48, 64), order), atol=1e-12, rtol=0)
        other = by_hand(model, x, (48, 64), 'scores' if order == 'masks' else 'masks')
    assert (found - other).abs().max() > 1e-2


def test_masks_first_is_mmsegmentations():
    own, plain = head(), head(PlainHead)
    plain.load_state_dict(own.state_dict())
    x, metas = maps(1, 48, 64), [dict(img_shape=(41, 64), pad_shape=(48, 64))]
    with torch.no_grad():
        found = [model.predict(x, metas, dict(mode='whole')) for model in (own, plain)]
    torch.testing.assert_close(*found, atol=1e-5, rtol=0)


def test_losses_are_mmsegmentations():
    """Points are drawn in the same order, and mmdetection's assigner gets the same scores."""
    costs = [
        dict(type='mmdet.ClassificationCost', weight=2.0),
        dict(type='mmdet.CrossEntropyLossCost', weight=5.0, use_sigmoid=True),
        dict(type='mmdet.DiceCost', weight=5.0, pred_act=True, eps=1.0),
    ]
    train_cfg = dict(
        num_points=50,
        oversample_ratio=3.0,
        importance_sample_ratio=0.75,
        assigner=dict(type='mmdet.HungarianAssigner', match_costs=costs),
        sampler=dict(type='mmdet.MaskPseudoSampler'),
    )
    own, plain = head(train_cfg=train_cfg), head(PlainHead, train_cfg=train_cfg)
    plain.load_state_dict(own.state_dict())
    labels = torch.randint(0, CLASSES, (1, 64, 64))
    labels[:, :9] = 255
    sample = SegDataSample(metainfo=dict(img_shape=(64, 64)), gt_sem_seg=PixelData(data=labels))
    x, losses = maps(1, 64, 64), []
    for model in (own, plain):
        torch.manual_seed(7)
        losses.append(model.loss(x, [sample], ConfigDict(train_cfg)))
    assert len(losses[0]) == 9
    for name, loss in losses[0].items():
        torch.testing.assert_close(loss, losses[1][name], atol=1e-4, rtol=1e-4)


def test_recomputed_ffns_change_nothing(monkeypatch):
    """Each of the four runs again in the backward pass, in training alone; start, outputs and gradients stay."""
    calls, forward = [], FFN.forward
    monkeypatch.setattr(FFN, 'forward', lambda self, *args: calls.append(self) or forward(self, *args))
    decoder = dict(HEAD['pixel_decoder'], type='mmlape.MSDeformAttnPixelDecoder')
    x, metas, found = maps(1, 64, 64), [SegDataSample(metainfo=dict(img_shape=(64, 64)))], []
    for with_cp in (False, True):
        torch.manual_seed(5)
        model = head(pixel_decoder=dict(decoder, with_cp=with_cp), with_cp=with_cp)
        classes, masks = model(x, metas)
        total = sum(o.sum() for o in classes) + sum(o.square().sum() for o in masks)
        gradients = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
        found.append([total, *(gradient for gradient in gradients if gradient is not None)])
        assert len(calls) == (8 if with_cp else 4)
        calls.clear()
        with torch.no_grad():
            model(x, metas)
        assert len(calls) == 4
        calls.clear()
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(own, other, atol=0, rtol=0)


@pytest.fixture(scope='module')
def segmentor():
    """A segmentor that pads images to a multiple of 32 and slides a window of 64 at stride 32."""
    init_default_scope('mmseg')
    cfg = config(HEAD)
    cfg.update(type='mmlape.Mask2FormerHead', upsampled='scores', in_channels=[8] * 4)
    cfg.pixel_decoder.type = 'mmlape.MSDeformAttnPixelDecoder'
    arch = dict(embed_dims=8, num_layers=4, num_heads=2, feedforward_channels=16)
    model = MODELS.build(
        dict(
            type='EncoderDecoder',
            data_preprocessor=dict(type='SegDataPreProcessor', size=(64, 64), test_cfg=dict(size_divisor=32)),
            backbone=dict(type='mmlape.ViTAdapter', arch=arch, img_size=64, conv_inplane=4, deform_num_heads=2),
            decode_head=cfg,
            test_cfg=ConfigDict(mode='slide', crop_size=(64, 64), stride=(32, 32)),
        )
    )
    torch.manual_seed(2)
    randomise(model)
    return model.eval()


def predict(model, image):
    sample = SegDataSample(metainfo=dict(img_shape=image.shape[-2:], ori_shape=image.shape[-2:]))
    with torch.no_grad():
        return model.test_step(dict(inputs=[image], data_samples=[sample]))[0].seg_logits.data


def test_padded_images_are_predicted_in_windows(segmentor):
    """mmsegmentation's head resizes every window to the padded image, which raises."""
    image = torch.rand(3, 64, 90) * 255
    found = predict(segmentor, image)
    padded = F.pad(image, (0, 6))[None]
    total, count = torch.zeros(1, CLASSES, 64, 96), torch.zeros(64, 96)
    for left in (0, 32):
        window = padded[..., left : left + 64]
        with torch.no_grad():
            scores = by_hand(segmentor.decode_head, segmentor.extract_feat(window), (64, 64), 'scores')
        total[..., left : left + 64] += scores
        count[:, left : left + 64] += 1
    torch.testing.assert_close(found, (total / count)[0, ..., :90], atol=1e-5, rtol=0)


def test_complete_images_are_predicted_at_their_padded_size(segmentor, monkeypatch):
    monkeypatch.setitem(segmentor.test_cfg, 'mode', 'whole')
    image = torch.rand(3, 50, 90) * 255
    found = predict(segmentor, image)
    with torch.no_grad():
        x = segmentor.extract_feat(F.pad(image, (0, 6, 0, 14))[None])
        expected = by_hand(segmentor.decode_head, x, (64, 96), 'scores')
    torch.testing.assert_close(found, expected[0, :, :50, :90], atol=1e-5, rtol=0)
