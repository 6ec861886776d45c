"""Run in an environment with transformers 5 by `tests/environment/test_integrations.py`."""

import copy
import json

import pytest
import torch
from transformers import (
    AutoBackbone,
    AutoConfig,
    Mask2FormerConfig,
    Mask2FormerForUniversalSegmentation,
    UperNetConfig,
    UperNetForSemanticSegmentation,
)

import mmlape
from mmlape.errors import ConfigError, MMLaPEError
from mmlape.integrations.transformers import PyramidBackbone, PyramidConfig

ADAPTER = dict(conv_inplane=8, deform_num_heads=2)
ARCH = dict(embed_dims=32, num_layers=4, num_heads=2, feedforward_channels=64)
DINO = dict(embed_dim=32, depth=4, num_heads=2)
BACKBONES = {
    'lape': ('ViTAdapter', dict(ADAPTER, arch=ARCH, img_size=(64, 96), pe_joining='lape', patch_norm='dual')),
    'dinov2': (
        'TimmViTAdapter',
        dict(ADAPTER, vit=dict(model_name='vit_small_patch14_dinov2', model_args=DINO, img_size=56)),
    ),
    'frozen dinov3': (
        'TimmViTAdapter',
        dict(ADAPTER, vit=dict(model_name='vit_small_patch16_dinov3', model_args=DINO, frozen=True), mode='read-only'),
    ),
}  # fmt: skip
SMALL = dict(
    feature_size=32, mask_feature_size=32, hidden_dim=32, encoder_feedforward_dim=32, dim_feedforward=32,
    encoder_layers=1, decoder_layers=2, num_attention_heads=2, num_queries=5, train_num_points=64,
)  # fmt: skip
HEIGHT, WIDTH = 70, 93


def mask2former(config):
    return Mask2FormerForUniversalSegmentation(Mask2FormerConfig(backbone_config=config, num_labels=3, **SMALL))


def test_options_in_a_file_pass_the_gate(tmp_path):
    name, options = BACKBONES['lape']
    evil = dict(type='os.system', command=f'touch {tmp_path}/canary')
    PyramidBackbone(PyramidConfig(name, options)).save_pretrained(tmp_path)
    written = json.loads((tmp_path / 'config.json').read_text())
    for more in (dict(act_cfg=evil), dict(arch=dict(ARCH, more='https://nowhere/x'))):
        (tmp_path / 'config.json').write_text(json.dumps({**written, 'options': {**options, **more}}))
        with pytest.raises(MMLaPEError, match='refused'):
            AutoBackbone.from_pretrained(tmp_path)
        with pytest.raises(MMLaPEError, match='refused'):
            Mask2FormerConfig.from_dict(dict(backbone_config=json.loads((tmp_path / 'config.json').read_text())))
    assert not (tmp_path / 'canary').exists()


def upernet(config):
    small = dict(hidden_size=16, pool_scales=[1, 2], auxiliary_channels=8)
    return UperNetForSemanticSegmentation(UperNetConfig(backbone_config=config, num_labels=3, **small))


def batch(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(2, 3, HEIGHT, WIDTH, generator=generator)
    labels = torch.randint(3, (2, HEIGHT, WIDTH), generator=generator)
    if isinstance(model, UperNetForSemanticSegmentation):
        return dict(pixel_values=images, labels=labels)
    masks = [torch.stack([image == number for number in range(3)]).float() for image in labels]
    return dict(pixel_values=images, mask_labels=masks, class_labels=[torch.arange(3)] * 2)


def tensors(out):
    return {name: value for name, value in out.items() if isinstance(value, torch.Tensor) and name != 'loss'}


@pytest.mark.parametrize('build', [mask2former, upernet])
@pytest.mark.parametrize('name', BACKBONES)
def test_train_two_steps_save_and_load(build, name, tmp_path):
    torch.manual_seed(1)
    model = build(PyramidConfig(*BACKBONES[name])).train()
    before = copy.deepcopy(model.state_dict())
    (backbone,) = (module for module in model.modules() if isinstance(module, PyramidBackbone))
    frozen = {key for key, value in model.named_parameters() if not value.requires_grad}
    assert bool(frozen) == name.startswith('frozen')
    optimizer = torch.optim.AdamW(mmlape.param_groups(model, lr=1e-2, weight_decay=0.05))
    for _ in range(2):
        model(**batch(model)).loss.backward()
        assert all(value.grad is not None for value in backbone.parameters() if value.requires_grad)
        optimizer.step()
        optimizer.zero_grad()
    changed = {key for key, value in model.named_parameters() if not torch.equal(value, before[key])}
    assert {key for key in changed if key in frozen} == set()
    assert any('.interactions.' in key for key in changed)
    model.eval().save_pretrained(tmp_path)
    loaded, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert {key for key, value in loaded.named_parameters() if not value.requires_grad} == frozen
    torch.testing.assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)
    with torch.no_grad():
        ours, theirs = (tensors(each.eval()(**batch(model))) for each in (model, loaded))
    torch.testing.assert_close(theirs, ours)


@pytest.mark.parametrize('name', BACKBONES)
def test_maps_are_the_backbones_own(name, tmp_path):
    config = PyramidConfig(*BACKBONES[name], out_features=['stage1', 'stage3'])
    torch.manual_seed(5)
    model = AutoBackbone.from_config(config).eval()
    torch.manual_seed(5)
    alone = getattr(mmlape, BACKBONES[name][0])(**BACKBONES[name][1]).eval()
    torch.testing.assert_close(model.backbone.state_dict(), alone.state_dict(), rtol=0, atol=0)
    images = torch.randn(1, 3, HEIGHT, WIDTH)
    maps = model(images).feature_maps
    torch.testing.assert_close(list(maps), [alone(images)[0], alone(images)[2]], rtol=0, atol=0)
    assert model.channels == [32, 32] and [tuple(each.shape[2:]) for each in maps] == [(18, 24), (5, 6)]
    model.save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), PyramidConfig)
    loaded = PyramidBackbone.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(loaded(images).feature_maps, maps)


@pytest.mark.parametrize('frozen_dtype', [None, 'bf16'])
def test_a_half_backbone_takes_images_of_float32(tmp_path, frozen_dtype):
    """Fixed tables are half as well; a frozen ViT that is cast keeps its own precision."""
    name, options = 'ViTAdapter', dict(ADAPTER, arch=ARCH, img_size=(64, 96), pe_type='sincos2d')
    if frozen_dtype:
        name, options = copy.deepcopy(BACKBONES['frozen dinov3'])
        options['vit']['frozen_dtype'] = frozen_dtype
    model = PyramidBackbone(PyramidConfig(name, options)).eval()
    images = torch.randn(1, 3, HEIGHT, WIDTH)
    expected = model(images).feature_maps
    model.save_pretrained(tmp_path)
    for half in (PyramidBackbone.from_pretrained(tmp_path, dtype=torch.bfloat16).eval(), model.bfloat16()):
        if not frozen_dtype:
            assert {value.dtype for value in half.state_dict().values() if value.is_floating_point()} == {
                torch.bfloat16
            }
        for found, exact in zip(half(images).feature_maps, expected, strict=True):
            assert found.dtype == torch.bfloat16 and (found - exact).abs().max() < 0.05 * exact.abs().max()


def test_what_a_file_lacks_has_initial_values(tmp_path):
    model = AutoBackbone.from_config(PyramidConfig(*BACKBONES['lape']))
    without = {key: value for key, value in model.state_dict().items() if '.pe_norm.' not in key}
    model.save_pretrained(tmp_path, state_dict=without)
    loaded = PyramidBackbone.from_pretrained(tmp_path)
    for key, value in loaded.state_dict().items():
        assert torch.equal(value, model.state_dict()[key]), key


def test_weights_that_the_options_name_are_loaded(tmp_path):
    name, options = BACKBONES['lape']
    torch.manual_seed(3)
    source = getattr(mmlape, name)(**options)
    torch.save(source.state_dict(), tmp_path / 'weights.pth')
    named = dict(options, init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'weights.pth'), grid=[4, 6]))
    model = mask2former(PyramidConfig(name, named))
    loaded = model.model.pixel_level_module.encoder.backbone.state_dict()
    torch.testing.assert_close(loaded, source.state_dict(), rtol=0, atol=0)


def test_wrong_input_is_one_line():
    for name, options, message in (
        ('ViT', {}, 'unknown name=.ViT.; choose one of: VisionTransformer'),
        ('VisionTransformer', dict(arch='deit-tiny', out_type='featmap'), 'gives maps at the strides 16, and 4, 8'),
        ('ViTAdapter', dict(vit=3), 'PyramidConfig: ViTAdapter does not take'),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message) as error:
            AutoBackbone.from_config(PyramidConfig(name, options))
        assert len(str(error.value).splitlines()) == 1
