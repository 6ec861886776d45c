"""What people do to a model, asked of every family: a tool gives what the model gives, or says that it cannot."""

import copy
import pickle
from functools import partial

import onnxruntime
import pytest
import torch
from each import each
from model_helpers import CEIT_ARCH, DEEP_ARCH, SWIN_ARCH, T2T_ARCH, randomise
from timm_helpers import build as timm_vit
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint
from torchvision.models.feature_extraction import create_feature_extractor

import mmlape
from mmlape import models, projects
from mmlape.models import SwinTransformer, TimmViT, TimmViTAdapter, VisionTransformer, ViTAdapter, ViTPyramid
from mmlape.models.vit.model import DistilledVisionTransformer
from mmlape.projects import CeiT, CompactTransformer, T2TViT

SIZE = (32, 48)
VIT = dict(arch=DEEP_ARCH, img_size=SIZE)
TIMM = dict(model_args=dict(embed_dim=24, depth=4, num_heads=3), img_size=SIZE)
WINDOWS = dict(window_attn=True, window_size=2, window_padding='before-qkv', with_cls_token=False)
FAMILIES = {
    'vit': partial(VisionTransformer, **VIT, pe_joining='lape', patch_norm='dual', num_registers=2),
    'vit, windows': partial(VisionTransformer, **VIT, out_type='featmap', pe_type='rpe', qkv_bias='qv', **WINDOWS),
    'vit, rotary': partial(VisionTransformer, **VIT, pe_type=['rope', 'irpe', 'cpe'], out_type='avg_featmap'),
    'distilled': partial(DistilledVisionTransformer, **VIT),
    'adapter': partial(ViTAdapter, **VIT, conv_inplane=8, deform_num_heads=3, with_cls_token=True),
    'pyramid': partial(ViTPyramid, dict(DEEP_ARCH, embed_dims=32, num_heads=2), SIZE),
    'swin': partial(SwinTransformer, SWIN_ARCH, 64, window_size=3, pe_type=['learnable', 'irpe'], pe_joining='lape'),
    'timm': partial(TimmViT, 'vit_small_patch16_224', **TIMM, pe_joining='lape', patch_norm='dual'),
    'timm adapter': partial(
        TimmViTAdapter, dict(TIMM, model_name='vit_small_patch16_dinov3'), conv_inplane=8, deform_num_heads=3
    ),
    'ceit': partial(CeiT, CEIT_ARCH, SIZE),
    't2t': partial(T2TViT, T2T_ARCH, SIZE),
    'compact': partial(CompactTransformer, 'cct-2/3x2', SIZE),
}  # fmt: skip


FAST = ('vit', 'vit, windows', 'adapter', 'swin', 'timm')
of_families = pytest.mark.parametrize(
    'names',
    [FAST, pytest.param([name for name in FAMILIES if name not in FAST], marks=pytest.mark.release)],
    ids=['fast', 'others'],
)


def images(count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, *SIZE)


def flat(out) -> list[torch.Tensor]:
    return [value for part in out for value in (part if isinstance(part, tuple) else (part,))]


class Flat(nn.Module):
    """A model with a plain tuple of tensors for outputs."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x):
        return tuple(flat(self.model(x)))


def built(name: str) -> nn.Module:
    return randomise(FAMILIES[name]())


def assert_same(found, expected):
    torch.testing.assert_close(list(found), list(expected), rtol=1e-4, atol=1e-4)


def test_every_family_is_here():
    kinds = {family.func.__name__ for family in FAMILIES.values()}
    assert kinds == {*models.BACKBONES, *projects.BACKBONES}


@of_families
def test_a_batch_of_another_size_in_a_trace(names):
    for name in each(names):
        model, three = Flat(built(name)), images(3)
        with torch.no_grad():
            assert_same(torch.jit.trace(model, three[:1], check_trace=False)(three), model(three))


BATCH = dict(dynamic_shapes=({0: torch.export.Dim('batch', min=1, max=16)},))
EXPORTED = [pytest.param(name, marks=() if name == 'vit' else pytest.mark.release) for name in FAMILIES]


@pytest.mark.parametrize('name', EXPORTED)
def test_a_batch_of_another_size_in_an_exported_program(name):
    model, three = Flat(built(name)), images(3)
    with torch.no_grad():
        program = torch.export.export(model, (three[:2],), **BATCH)
        assert_same(program.module()(three), model(three))


@pytest.mark.release
@pytest.mark.parametrize('name', FAMILIES)
def test_a_batch_of_another_size_in_a_graph(tmp_path, name):
    model, three, file = Flat(built(name)), images(3), str(tmp_path / 'graph.onnx')
    options = dict(dynamo=True, input_names=['x'], external_data=False, verbose=False)
    torch.onnx.export(model, (three[:2],), file, **options, **BATCH)
    session = onnxruntime.InferenceSession(file)
    assert session.get_inputs()[0].shape[0] == 'batch'
    with torch.no_grad():
        assert_same(map(torch.from_numpy, session.run(None, dict(x=three.numpy()))), model(three))


@of_families
def test_copies_layouts_and_hooks_leave_the_outputs(names):
    for name in each(names):
        model, x = built(name), images()
        expected = flat(model(x))
        original, model = model, copy.deepcopy(model)  # after a forward with gradients
        for parameter in original.parameters():
            parameter.data.zero_()  # a copy has values of its own
        assert_same(flat(model(x)), expected)
        assert_same(flat(pickle.loads(pickle.dumps(model))(x)), expected)
        seen = set()
        for module in model.modules():
            module.register_forward_pre_hook(lambda module, args, seen=seen: seen.add(module))
        assert_same(flat(model(x)), expected)
        with torch.no_grad():  # none of these is read around its forward
            kinds = (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)
            assert all(module in seen for module in model.modules() if isinstance(module, kinds))
            last = copy.deepcopy(built(name)).to(memory_format=torch.channels_last)
            last.load_state_dict(model.state_dict())
            assert_same(flat(last(x.contiguous(memory_format=torch.channels_last))), expected)


@of_families
def test_no_image_is_a_batch(names):
    for name in each(names):
        model = built(name)
        shapes = [out.shape[1:] for out in flat(model(images(1)))]
        assert [(len(out), out.shape[1:]) for out in flat(model(images(0)))] == [(0, shape) for shape in shapes]


@of_families
def test_gradients_through_hooks_recomputation_and_frozen_parts(names):
    def gradients(model, outputs):
        sum(out.square().mean() for out in flat(outputs)).backward()
        return {key: value.grad for key, value in model.named_parameters() if value.grad is not None}

    for name in each(names):
        model, x = built(name), images()
        expected = gradients(model, model(x))
        for module in model.modules():  # of every module: nothing is written into another one's output
            module.register_full_backward_hook(lambda *args: None)
        model.zero_grad()
        found = gradients(model, model(x.requires_grad_()))
        assert found.keys() == expected.keys()
        assert_same(found.values(), expected.values())
        model = copy.deepcopy(model).requires_grad_(False)
        one = next(value for key, value in reversed(list(model.named_parameters())) if key in expected)
        one.requires_grad_()
        model.zero_grad()
        found = gradients(model, checkpoint(model, x.detach(), use_reentrant=False))
        assert len(found) == 1 and all(torch.allclose(found[key], expected[key], atol=1e-4) for key in found)


@of_families
def test_gradients_of_each_image_by_vmap(names):
    for name in each(names):
        model, x = built(name).double(), images().double()
        values = {key: value.detach() for key, value in model.named_parameters()}

        def loss(values, image, model=model):
            return sum(out.square().mean() for out in flat(functional_call(model, values, (image[None],))))

        each_image = vmap(grad(loss), (None, 0))(values, x)
        for index, image in enumerate(x):
            expected = grad(loss)(values, image)
            for key, value in expected.items():
                torch.testing.assert_close(each_image[key][index], value, rtol=1e-8, atol=1e-10)


@of_families
def test_dynamic_quantisation_reaches_every_linear_map(names):
    for name in each(names):
        model, x = built(name), images()
        maps = sum(isinstance(module, nn.Linear) for module in model.modules())
        quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
        assert not any(type(module) is nn.Linear for module in quantised.modules())
        assert sum('quantized' in type(module).__module__ for module in quantised.modules()) >= maps > 0
        for found, expected in zip(flat(quantised(x)), flat(model(x)), strict=True):
            assert found.shape == expected.shape and found.isfinite().all()


@of_families
def test_parametrised_weights_are_the_weights_that_run(names):
    for name in each(names):
        model, x = built(name), images()
        expected = flat(model(x))
        for module in list(model.modules()):
            if type(module) in (nn.Linear, nn.Conv2d):
                weight_norm(module)
        assert_same(flat(model(x)), expected)
        with torch.no_grad():
            for key, value in model.named_parameters():
                if key.endswith('weight.original0') and 'proj' in key:
                    value.mul_(2)
        assert any(not torch.allclose(out, before) for out, before in zip(flat(model(x)), expected))


def test_features_of_a_changed_timm_model_by_fx():
    for change in each((mmlape.add_lape, mmlape.add_dual_patchnorm)):
        model, x = change(timm_vit()), torch.randn(2, 3, 32, 32)
        expected = model.forward_intermediates(x, norm=False, output_fmt='NLC', intermediates_only=True)
        found = create_feature_extractor(model, ['blocks.0', 'blocks.1'])(x).values()
        assert_same([tokens[:, 1:] for tokens in found], expected)
