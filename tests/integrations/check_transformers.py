"""Run in an environment with transformers 5 by `tests/environment/test_integrations.py`."""

import copy
import json

import pytest
import torch
from torch.utils.data import Dataset
from transformers import (
    AutoBackbone,
    AutoConfig,
    DeformableDetrConfig,
    DeformableDetrForObjectDetection,
    DFineConfig,
    DFineForObjectDetection,
    Mask2FormerConfig,
    Mask2FormerForUniversalSegmentation,
    RTDetrV2Config,
    RTDetrV2ForObjectDetection,
    Trainer,
    TrainingArguments,
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
SIDE, CLASSES = 128, 3
HEIGHT, WIDTH = 70, 93
STAGES = ['stage2', 'stage3', 'stage4']
"""Strides 8, 16 and 32, as detectors take them; Mask2Former and UperNet take all four."""
HYBRID = dict(
    encoder_in_channels=[32] * 3, encoder_hidden_dim=32, encoder_ffn_dim=32, encoder_attention_heads=2, d_model=32,
    decoder_in_channels=[32] * 3, decoder_ffn_dim=32, decoder_attention_heads=2, decoder_layers=2, num_queries=10,
    num_denoising=4,
)  # fmt: skip
DEFORMABLE = dict(
    d_model=32, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=10,
    encoder_attention_heads=2, decoder_attention_heads=2,
)  # fmt: skip
MODELS = {
    'RT-DETRv2': (RTDetrV2ForObjectDetection, RTDetrV2Config, HYBRID),
    'D-FINE': (DFineForObjectDetection, DFineConfig, HYBRID),
    'Deformable DETR': (DeformableDetrForObjectDetection, DeformableDetrConfig, DEFORMABLE),
    'Mask2Former': (Mask2FormerForUniversalSegmentation, Mask2FormerConfig, SMALL),
    'UperNet': (
        UperNetForSemanticSegmentation, UperNetConfig, dict(hidden_size=16, pool_scales=[1, 2], auxiliary_channels=8),
    ),
}  # fmt: skip
OF_PIXELS = ('Mask2Former', 'UperNet')


def build(model, backbone, options=None):
    """Return a model over a backbone of `BACKBONES`, with other options if some are given."""
    cls, config, small = MODELS[model]
    stages = {} if model in OF_PIXELS else dict(out_features=STAGES)
    name, own = BACKBONES[backbone]
    return cls(config(backbone_config=PyramidConfig(name, options or own, **stages), num_labels=CLASSES, **small))


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


def sample(seed, model):
    """An image with two boxes and what each kind of model is told of them."""
    generator = torch.Generator().manual_seed(seed)
    image = 0.1 * torch.randn(3, SIDE, SIDE, generator=generator)
    classes = torch.tensor([seed % CLASSES, (seed + 1) % CLASSES])
    boxes = torch.tensor([[0.3, 0.3, 0.4, 0.3], [0.7, 0.75, 0.3, 0.4]])  # centre and size
    regions = torch.zeros(2, SIDE, SIDE)
    for region, (x, y, w, h) in zip(regions, boxes):
        top, left = round(float(y - h / 2) * SIDE), round(float(x - w / 2) * SIDE)
        region[top : top + int(h * SIDE), left : left + int(w * SIDE)] = 1
    image += (regions * (1.0 + classes[:, None, None])).sum(0)
    if model == 'UperNet':
        return dict(pixel_values=image, labels=(regions * classes[:, None, None]).sum(0).long())
    if model == 'Mask2Former':
        return dict(pixel_values=image, mask_labels=regions, class_labels=classes)
    return dict(pixel_values=image, labels=dict(class_labels=classes, boxes=boxes))


class Samples(Dataset):
    def __init__(self, model):
        self.model = model

    def __len__(self):
        return 4

    def __getitem__(self, number):
        return sample(number, self.model)


def collate(samples):
    batch = {key: [one[key] for one in samples] for key in samples[0]}
    stacked = {
        key: torch.stack(batch[key]) for key in ('pixel_values', 'labels') if torch.is_tensor(samples[0].get(key))
    }
    return batch | stacked


def backbone_of(model):
    (backbone,) = (module for module in model.modules() if isinstance(module, PyramidBackbone))
    return backbone


@pytest.mark.parametrize('name', BACKBONES)
@pytest.mark.parametrize('kind', MODELS)
def test_the_trainer_trains_it_and_a_file_has_all_of_it(kind, name, tmp_path):
    torch.manual_seed(0)
    model, batch = build(kind, name), collate([sample(number, kind) for number in range(2)])
    before = copy.deepcopy(model.state_dict())
    model.train()(**batch).loss.backward()
    parameters = backbone_of(model).named_parameters()
    unused = {key for key, value in parameters if value.requires_grad and value.grad is None}
    # what makes the map of stride 4, which is not asked for
    assert {key.split('.')[1] for key in unused} == (set() if kind in OF_PIXELS else {'up', 'norm1', 'spm'})
    model.zero_grad()
    frozen = {key for key, value in model.named_parameters() if not value.requires_grad}
    assert any('.vit.' in key for key in frozen) == name.startswith('frozen')
    options = dict(
        max_steps=2, per_device_train_batch_size=2, save_steps=2, report_to=[], use_cpu=True,
        remove_unused_columns=False, logging_steps=1,
    )  # fmt: skip
    trainer = Trainer(
        model,
        TrainingArguments(str(tmp_path), **options),
        train_dataset=Samples(kind),
        data_collator=collate,
        optimizers=(torch.optim.AdamW(mmlape.param_groups(model, lr=1e-3, weight_decay=0.05)), None),
    )
    trainer.train()
    changed = {key for key, value in model.named_parameters() if not torch.equal(value, before[key])}
    assert not changed & frozen and any('.interactions.' in key for key in changed)
    loaded, report = type(model).from_pretrained(tmp_path / 'checkpoint-2', output_loading_info=True)
    assert not any(report.values()), report
    torch.testing.assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)
    # D-FINE itself freezes two scalars, and not those of a file
    frozen_of_file = {key for key, value in loaded.named_parameters() if not value.requires_grad}
    assert {key for key in frozen_of_file if '.vit.' in key} == {key for key in frozen if '.vit.' in key}
    assert frozen_of_file == frozen or kind not in OF_PIXELS
    with torch.no_grad():
        ours, theirs = (each.eval()(batch['pixel_values']) for each in (model, loaded))
    logits = 'class_queries_logits' if kind == 'Mask2Former' else 'logits'
    torch.testing.assert_close(theirs[logits], ours[logits])


@pytest.mark.parametrize('kind', ['RT-DETRv2', 'Deformable DETR'])
def test_batch_norms_of_a_fresh_adapter_are_trained(kind):
    """These detectors freeze every BatchNorm2d of a backbone, by which a fresh one never learns its statistics."""
    norms = {type(one).__name__ for one in backbone_of(build(kind, 'frozen dinov3')).modules()}
    assert {name for name in norms if 'BatchNorm' in name} == {'SyncBatchNorm'}


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
    loaded = backbone_of(build('Mask2Former', 'lape', named)).backbone.state_dict()
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
