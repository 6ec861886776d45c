"""The Plain Mask Decoder against PMT's public code, and what becomes of it in training and as a graph."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from golden.recording import uniform
from mmengine import ConfigDict
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample

from mmlape.errors import ConfigError
from mmlape.projects.pmt.decoder import PlainMaskDecoder
from mmlape.projects.pmt.head import MaskAnnealingHook
from mmlape.registry import MODELS

GOLDEN = Path(__file__).parents[1] / 'golden' / 'heads' / 'pmt.npz'
VIT = dict(model_name='vit_small_patch14_reg4_dinov2', model_args=dict(embed_dim=32, depth=4, num_heads=2))
OURS = (
    ('encoder.backbone.', 'backbone.vit.'),
    ('decoder.lateral_projections.', 'decode_head.decoder.laterals.'),
    ('decoder.scalers.', 'decode_head.decoder.scales.'),
    ('decoder.q.', 'decode_head.decoder.queries.'),
    ('decoder.blocks.', 'decode_head.decoder.layers.'),
    ('decoder.decoder_norm.', 'decode_head.decoder.norm.'),
    ('decoder.', 'decode_head.decoder.'),
    ('bn.', 'decode_head.decoder.level_norms.'),
)  # fmt: skip
INSIDE = (
    ('.layer_scale1.lambda1', '.gamma1'), ('.layer_scale2.lambda1', '.gamma2'), ('.mlp.up_proj.', '.mlp.0.'),
    ('.mlp.down_proj.', '.mlp.2.'), ('.conv1.', '.0.'), ('.conv2.', '.2.'), ('.norm.weight', '.3.weight'),
    ('.norm.bias', '.3.bias'),
)  # fmt: skip


def our_name(name: str) -> str:
    start, ours = next(pair for pair in OURS if name.startswith(pair[0]))
    rest = name.removeprefix(start)
    if start == 'decoder.blocks.' or rest.startswith('upscale.'):
        rest = f'.{rest}'
        for theirs, own in INSIDE:
            rest = rest.replace(theirs, own)
        rest = rest[1:]
    return ours + rest


def head_cfg(levels=2, **changes) -> dict:
    small = dict(num_heads=2, patch_size=14, num_queries=6, num_layers=3, feedforward_channels=48)
    return dict(
        type='mmlape.PlainMaskHead', in_channels=[32] * levels, num_classes=5, norm_cfg=dict(type='BN'),
        train_cfg=dict(num_points=64), **small | changes,
    )  # fmt: skip


def segmentor(out_type='raw', **changes):
    changes.setdefault('num_prefix', 5)
    backbone = dict(
        type='mmlape.TimmViT', **VIT, img_size=(56, 84), frozen=True, out_indices=[1, 3], out_type=out_type
    )
    mean = dict(mean=[0.0] * 3, std=[1.0] * 3)
    return MODELS.build(
        dict(
            type='mmseg.EncoderDecoder', backbone=backbone, decode_head=head_cfg(**changes),
            data_preprocessor=dict(type='mmseg.SegDataPreProcessor', **mean),
            train_cfg=dict(), test_cfg=ConfigDict(mode='whole'),
        )
    )  # fmt: skip


def samples(*sizes):
    meta = [dict(img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size) for size in sizes]
    return [SegDataSample(metainfo=one) for one in meta]


def test_it_is_the_public_decoder():
    """Masks and classes of each layer in float64: with the masks of training's begin, and without, as at its end."""
    golden = np.load(GOLDEN)
    model = segmentor().double().eval()
    state = {
        our_name(name): uniform(name, [int(side) for side in shape.split()])
        for name, shape in zip(golden['names'].tolist(), golden['shapes'].tolist())
    }
    image = torch.from_numpy(golden['image']).double()
    for share in (1, 0):
        state['decode_head.decoder.mask_probs'] = torch.full((3,), float(share))
        report = model.load_state_dict(state, strict=False)
        assert not report.unexpected_keys
        assert all(name.endswith('num_batches_tracked') for name in report.missing_keys)
        with torch.no_grad():
            classes, masks = model.decode_head(model.backbone(image), samples(*[image.shape[2:]] * 2))
        assert len(classes) == (4 if share else 1)
        for found, name in ((classes, 'classes'), ([mask[..., ::3, ::3] for mask in masks], 'masks')):
            np.testing.assert_allclose(torch.stack(found).numpy(), golden[f'{name}{share}'], rtol=0, atol=1e-10)


def test_in_training_a_share_of_the_queries_is_masked():
    decoder = PlainMaskDecoder(32, 2, 2, 5, num_queries=400, num_layers=1, patch_size=14)
    masks = torch.full((2, 400, 8, 8), -1.0)
    masks[:, :200, :4] = 1.0
    for share in (1.0, 0.25, 0.0):
        allowed = decoder.attended(masks, (4, 4), 400 + 5 + 16, share)
        assert allowed.shape == (2, 1, 421, 421) and allowed[:, :, 400:].all() and allowed[..., :405].all()
        inside = allowed[:, 0, :400, 405:]
        masked = ~inside.all(2)
        assert abs(masked.float().mean() - share) < 0.1
        assert (inside[:, :200][masked[:, :200]].unflatten(-1, (4, 4)).float().mean((0, 2)) ==
                torch.tensor([1.0, 1, 0, 0])).all() or not share  # fmt: skip
    decoder.train()
    by_layer = decoder([torch.randn(2, 16, 32)] * 2, (4, 4))
    assert [len(values) for values in by_layer] == [2, 2]


def test_shares_fall_by_the_hook_and_stay_in_a_file():
    model = segmentor('featmap')
    hook = MaskAnnealingHook([0.0, 0.2, 0.4], [0.5, 0.6, 1.0])
    runner = SimpleNamespace(model=model, iter=-1, max_iters=100)
    hook.before_train(runner)
    for runner.iter, expected in (
        (-1, [1, 1, 1]),
        (24, [0.5**0.9, 0.875**0.9, 1]),
        (59, [0, 0, (2 / 3) ** 0.9]),
        (99, [0] * 3),
    ):
        hook.after_train_iter(runner, 0)
        assert model.decode_head.decoder.shares == pytest.approx(expected)
        other = segmentor('featmap')
        other.load_state_dict(model.state_dict())
        assert other.decode_head.decoder.shares == pytest.approx(expected)
    for starts, ends in (([0.0], [1.0, 1.0]), ([0.5], [0.5]), ([0.0], [1.1])):
        with pytest.raises(ConfigError, match='give a start and a later end'):
            MaskAnnealingHook(starts, ends)
    with pytest.raises(ConfigError, match=r'has shares for 2 layers, and .* have \[3\]'):
        MaskAnnealingHook([0.0, 0.0], [1.0, 1.0]).before_train(runner)


@pytest.mark.parametrize('out_type', ['featmap', 'raw'])
def test_losses_reach_the_decoder_and_not_the_frozen_vit(out_type):
    torch.manual_seed(0)
    model = segmentor(out_type).train()
    data = samples((56, 84), (56, 84))
    for sample in data:
        sample.gt_sem_seg = PixelData(data=torch.randint(5, (1, 56, 84)))
    losses = model.loss(torch.randn(2, 3, 56, 84), data)
    assert {name.rpartition('.')[2] for name in losses} == {'loss_cls', 'loss_mask', 'loss_dice'} and len(losses) == 12
    sum(losses.values()).backward()
    assert not any(value.requires_grad for value in model.backbone.parameters())
    without = [name for name, value in model.decode_head.named_parameters() if value.grad is None]
    assert not without
    with torch.no_grad():
        (found,) = model.eval().predict(torch.randn(1, 3, 50, 70), samples((50, 70)))
    assert found.seg_logits.data.shape == (5, 50, 70)


def test_a_score_is_a_class_and_a_mask():
    """Queries of no object have none; else class and mask are in [0, 1]."""
    torch.manual_seed(0)
    model = segmentor().eval()
    classes = model.decode_head.decoder.class_head
    torch.nn.init.zeros_(classes.weight)
    image, meta = torch.randn(1, 3, 56, 84), samples((56, 84))[0].metainfo
    for logit_of_none, expected in ((50.0, 0.0), (-50.0, 6 / 5)):
        with torch.no_grad():
            classes.bias.copy_(torch.tensor([0.0] * 5 + [logit_of_none]))
            scores = model.encode_decode(image, [meta])
        # the five classes of all six queries are equal: what differs is the share of the masks
        assert (scores >= 0).all() and (scores <= expected + 1e-6).all()
        assert bool(scores.max() > 0.1) == (expected > 0)


class Whole(torch.nn.Module):
    """What a graph takes and gives."""

    def __init__(self, model, size):
        super().__init__()
        self.model, self.meta = model, samples(size)[0].metainfo

    def forward(self, image):
        return self.model.encode_decode(image, [self.meta])


@pytest.mark.release
def test_the_graph_has_plain_operators_and_computes_the_same(tmp_path):
    """No deformable attention, no random numbers, no sizes that depend on values."""
    torch.manual_seed(0)
    model = segmentor().eval()
    model.decode_head.decoder.set_shares([0.0] * 3)
    image, path = torch.randn(1, 3, 56, 84), str(tmp_path / 'pmt.onnx')
    whole = Whole(model, (56, 84))
    torch.onnx.export(whole, (image,), path, dynamo=True, verbose=False, optimize=True)
    graph = onnx.load(path).graph
    used = {node.op_type for node in graph.node}
    assert not used & {
        'GridSample',
        'GatherND',
        'GatherElements',
        'ScatterND',
        'ScatterElements',
        'NonZero',
        'Loop',
        'If',
    }
    session = onnxruntime.InferenceSession(path)
    (found,) = session.run(None, {session.get_inputs()[0].name: image.numpy()})
    with torch.no_grad():
        expected = whole(image).numpy()
    assert found.shape == (1, 5, 56, 84)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
