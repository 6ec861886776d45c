"""ViT-Adapter: parts against independent formulas, the whole by properties, at any size."""

import pytest
import torch
import torch.nn.functional as F
from model_helpers import DEEP_ARCH, adapter, randomise
from timm.models.vision_transformer import VisionTransformer as TimmViT
from torch import nn

from mmlape.errors import DataError
from mmlape.models import ViTAdapter
from mmlape.models.adapter.deform_attn import FeatureLevels
from mmlape.models.adapter.layers import ConvFFN
from mmlape.models.adapter.model import AdapterMixin


def test_one_depthwise_convolution_serves_three_maps():
    ffn = randomise(ConvFFN(6, 4))
    shapes = [(4, 6), (2, 3), (1, 2)]
    x = torch.randn(2, 32, 6)
    parts, start = [], 0
    for rows, columns in shapes:
        part = ffn.fc1(x[:, start : start + rows * columns]).mT.reshape(2, 4, rows, columns)
        part = F.conv2d(part, ffn.dwconv.dwconv.weight, ffn.dwconv.dwconv.bias, padding=1, groups=4)
        parts.append(ffn.fc2(F.gelu(part.flatten(2).mT)))
        start += rows * columns
    torch.testing.assert_close(ffn(x, shapes), torch.cat(parts, 1), atol=1e-5, rtol=1e-5)


def test_cells_are_centres_in_reading_order():
    cells = FeatureLevels.of([(2, 3), (1, 1)], torch.device('cpu'))
    expected = [(x / 6, y / 4) for y in (1, 3) for x in (1, 3, 5)] + [(0.5, 0.5)]
    torch.testing.assert_close(cells.reference_points, torch.tensor(expected))
    assert cells.offset_normalizer.tolist() == [[3, 2], [1, 1]]


def test_zero_injectors_leave_the_vit_alone():
    """init_values=0: the ViT inside runs as if there were no pyramid."""
    model = adapter(pe_joining='lape')
    with torch.no_grad():
        for interaction in model.interactions:
            interaction.injector.gamma.zero_()
    image = torch.randn(1, 3, 64, 64)
    x, pe, hw = model.embed(image)
    x, _ = model.run_layers(x, pe, hw, 0, 4)
    seen = {}
    model.interactions[-1].extractor.register_forward_hook(lambda module, args, out: seen.update(tokens=args[2]))
    model(image)
    torch.testing.assert_close(seen['tokens'], x)


@pytest.mark.parametrize('source', ['last', 'interaction'])
def test_where_the_vit_features_come_from(source):
    """With everything but the ViT features and the final norms removed, map k is the resized token map."""
    model = adapter(vit_feature_source=source)
    without = ViTAdapter(DEEP_ARCH, 64, conv_inplane=8, deform_num_heads=3, add_vit_feature=False)
    without.load_state_dict(model.state_dict())
    for m in (model, without.eval()):
        m.norm1, m.norm2, m.norm3, m.norm4 = (nn.Identity() for _ in range(4))
    tokens = []
    for interaction in model.interactions:
        interaction.extractor.register_forward_hook(lambda module, args, out: tokens.append(args[2]))
    image = torch.randn(1, 3, 64, 96)
    outs, plain = model(image), without(image)
    for k, stride in enumerate((4, 8, 16, 32)):
        source_tokens = tokens[k] if source == 'interaction' else tokens[-1]
        feature = source_tokens.mT.reshape(1, 24, 4, 6)
        feature = F.interpolate(feature, scale_factor=16 / stride, mode='bilinear', align_corners=False)
        torch.testing.assert_close(outs[k] - plain[k], feature, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize('size', [(64, 64), (224, 512), (500, 224)])
def test_two_grids_take_sides_that_both_divide(size):
    model = adapter(patch_size=14)
    with pytest.raises(DataError, match=rf'{size[0]}x{size[1]} pixels: .* multiples of 224; .*crop_size=\(896, 896\)'):
        model(torch.zeros(1, 3, *size))


def test_injectors_are_trained_through_a_frozen_vit():
    model = adapter(patch_size=14, with_cls_token=True, ffn_type='swiglu', frozen_stages=4).train()
    sum(out.square().mean() for out in model(torch.randn(1, 3, 224, 224))).backward()
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    of_vit = ('patch_embed.', 'blocks.', 'cls_token', 'pos_embed')
    assert not any(name.startswith(of_vit) for name in trained)
    assert all(value.grad.any() for name, value in model.named_parameters() if name.endswith('injector.gamma'))


class TimmUnderAdapter(AdapterMixin):
    """A ViT that is not ours: timm's, with or without a class token."""

    def __init__(self, class_token: bool, **kwargs):
        super().__init__()
        shape = dict(img_size=64, patch_size=16, embed_dim=24, depth=4, num_heads=3, mlp_ratio=2, num_classes=0)
        self.vit = TimmViT(**shape, class_token=class_token, global_pool='token' if class_token else 'avg')
        self.vit.num_layers, self.vit.embed_dims, self.vit.patch_size = 4, 24, 16
        self.vit.embed = self._embed
        self.vit.run_layers = lambda x, state, hw, start, stop: (self.vit.blocks[start:stop](x), state + 1)
        self.vit.split_prefix = lambda x: (x[:, : self.vit.num_prefix_tokens], x[:, self.vit.num_prefix_tokens :])
        self.build_adapter(conv_inplane=8, deform_num_heads=3, **kwargs)

    def _embed(self, x):
        return self.vit._pos_embed(self.vit.patch_embed(x)), 0, (x.shape[-2] // 16, x.shape[-1] // 16)

    @property
    def plain_vit(self):
        return self.vit


@pytest.mark.parametrize('source', ['last', 'interaction'])
def test_another_vit_below_the_adapter_computes_the_same(source):
    ours = adapter(vit_feature_source=source)
    with torch.no_grad():
        for block in ours.blocks:
            block.gamma1.fill_(1), block.gamma2.fill_(1)
    theirs = TimmUnderAdapter(False, vit_feature_source=source).eval()
    own = theirs.state_dict()
    state = {(name if name in own else f'vit.{name}'): value for name, value in ours.state_dict().items()}
    state['vit.pos_embed'] = state['vit.pos_embed'][:, 1:]
    state = {name: value for name, value in state.items() if 'gamma1' not in name and 'gamma2' not in name}
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {
        'vit.norm.weight',
        'vit.norm.bias',
        'vit.fc_norm.weight',
        'vit.fc_norm.bias',
    }
    image = torch.randn(1, 3, 64, 64)
    for a, b in zip(ours(image), theirs(image), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_prefix_tokens_travel_through_the_vit_beside_the_exchange():
    model = randomise(TimmUnderAdapter(True))
    seen = []
    model.vit.blocks[0].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    for interaction in model.interactions:
        interaction.injector.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    image = torch.randn(2, 3, 64, 64)
    assert [tuple(out.shape) for out in model(image)] == [(2, 24, 64 // s, 64 // s) for s in (4, 8, 16, 32)]
    assert [x.shape[1] for x in seen] == [16, 17, 16, 16, 16]  # injectors see patches, layers the class token too
    torch.testing.assert_close(seen[1][:, :1], model.vit._pos_embed(model.vit.patch_embed(image))[:, :1])
