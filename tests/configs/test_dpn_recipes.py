"""The recipes of Dual PatchNorm: schedule, decay, initial values, loss, mixup, contrast, and first steps."""

import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from config_helpers import CONFIGS, ROOT, build, build_without_data, load
from mmengine.registry import init_default_scope
from mmpretrain.registry import TRANSFORMS
from mmpretrain.structures import DataSample
from test_recipes import learning_rates, options

from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.checks import check_data
from mmlape.lab.runs.schema import read_evaluations
from mmlape.lab.training.trainer import train
from mmlape.models.classifiers.mixup import BATCH_AUGMENTS, RolledMixup

FOLDER = ROOT / 'configs' / 'vit'


def recipe(arch='vit-small-p16', tail='8xb512-93k_in1k', dpn=''):
    return load(FOLDER / f'{arch}{dpn}_{tail}.py')


def arm(study, name):
    return load_config(f'mmlape::studies/{study}.yml:{name}')


@pytest.mark.parametrize(
    ('tail', 'length', 'warmup', 'lr'),
    [('8xb512-93k_in1k', 93_000, 10_000, 1e-3), ('4xb128-5k-ft384_in1k', 5_000, 500, 0.03)],
)
def test_schedule_is_big_visions(tail, length, warmup, lr, tmp_path):
    """Linear from 0, then a cosine of the steps that are left to 0."""
    cfg = recipe('vit-base-p32', tail)
    rates = np.array(learning_rates(cfg, tmp_path, 100))
    assert len(rates) == length
    step = np.arange(length)
    progress = np.clip((step - warmup) / (length - warmup), 0, 1)
    wanted = lr * np.minimum(1, step / warmup) * (1 + np.cos(np.pi * progress)) / 2
    assert np.abs(rates - wanted).max() < lr * 1.1 / warmup
    wrapper = cfg.optim_wrapper
    assert wrapper.clip_grad == dict(max_norm=1.0)
    if warmup == 500:
        assert wrapper.optimizer == dict(type='SGD', lr=0.03, momentum=0.9, weight_decay=0.0)
    else:
        assert wrapper.optimizer == dict(type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=0.1)


@pytest.mark.parametrize('part', ['', 'dual', 'learnable-only', 'post-posemb'])
def test_only_kernels_decay(part):
    cfg = arm('dpn-table6', f'{part}-ti16') if part else recipe('vit-tiny-p16')
    model = build_without_data(cfg)
    decay = options(model, cfg.optim_wrapper)
    kernels = {name for name, p in model.named_parameters() if p.ndim > 1 and not name.endswith(('embed', 'token'))}
    assert {name for name, value in decay.items() if value} == kernels and set(decay.values()) == {0, 0.1}
    assert {'head.layers.pre_logits.weight', 'head.layers.head.weight', 'backbone.patch_embed.proj.weight'} <= kernels


def tiny(cfg, num_classes=1000):
    """A config's classifier with two narrow layers on small images."""
    cfg = cfg.copy()
    arch = dict(_delete_=True, embed_dims=24, num_layers=2, num_heads=2, feedforward_channels=48)
    hidden = cfg.model.head.hidden_dim and 24
    cfg.merge_from_dict(
        {
            'model.backbone': dict(arch=arch, img_size=32, patch_size=8, drop_rate=0.0, drop_path_rate=0.0),
            'model.head': dict(in_channels=24, hidden_dim=hidden, num_classes=num_classes),
            'model.data_preprocessor.num_classes': num_classes,
        }
    )
    return cfg


def sigmoid_loss(logits, labels):
    """big_vision's: the sum over the classes, the mean over the images."""
    p = 1 / (1 + np.exp(-np.asarray(logits, np.float64)))
    return -(labels * np.log(p) + (1 - labels) * np.log(1 - p)).sum(1).mean()


def test_initial_values():
    """The first loss is that of logits of -6.9, whatever the image."""
    model = build(tiny(recipe()))
    model.init_weights()
    layers, vit = model.head.layers, model.backbone
    assert not layers.head.weight.any() and (layers.head.bias == -6.9).all() and not layers.pre_logits.bias.any()
    for weight, std in (
        (layers.pre_logits.weight, 24**-0.5),
        (vit.blocks[0].mlp.fc1.weight, (2 / (24 + 48)) ** 0.5),
        *((weight, (2 / (24 + 24)) ** 0.5) for weight in vit.blocks[1].attn.qkv.weight.chunk(3)),
        (vit.blocks[1].attn.proj.weight, (2 / (24 + 24)) ** 0.5),
        (vit.patch_embed.proj.weight, (3 * 64) ** -0.5),
        (vit.pos_embed, 384**-0.5),
    ):
        assert float(weight.std()) == pytest.approx(std, rel=0.1)
    # LeCun's normal is cut off at two of its own deviations, Xavier's is uniform
    assert float(vit.patch_embed.proj.weight.abs().max()) * (3 * 64) ** 0.5 == pytest.approx(2 / 0.8796, rel=0.02)
    assert float(vit.blocks[1].attn.qkv.weight.abs().max()) == pytest.approx((6 / 48) ** 0.5, rel=0.02)
    assert not any(bias.any() for name, bias in vit.named_parameters() if name.endswith('bias'))
    assert not vit.cls_token.any()
    batch = dict(inputs=torch.randint(256, (3, 3, 32, 32)), data_samples=samples([5, 0, 999]))
    loss = model(**model.data_preprocessor(batch, training=True), mode='loss')['loss']
    assert float(loss) == pytest.approx(999 * np.log1p(np.exp(-6.9)) + np.log1p(np.exp(6.9)), rel=1e-4)


def samples(labels):
    return [DataSample().set_gt_label(label) for label in labels]


@pytest.mark.parametrize(('arch', 'tail'), [('vit-tiny-p16', '8xb512-93k_in1k'), ('vit-base-p16', '8xb512-93k_in1k')])
def test_loss_is_big_visions(arch, tail):
    """With one-hot labels, and with mixed ones."""
    init_default_scope('mmpretrain')
    model = build(tiny(recipe(arch, tail), num_classes=7)).eval()
    torch.nn.init.normal_(model.head.layers.head.weight, std=3.0)
    batch = dict(inputs=torch.randint(256, (5, 3, 32, 32)), data_samples=samples([3, 1, 6, 0, 2]))
    np.random.seed(0)
    data = model.data_preprocessor(batch, training=True)
    labels = torch.stack([one.gt_score for one in data['data_samples']]).numpy()
    assert labels.sum(1) == pytest.approx(1) and (labels.max() < 1) == (arch == 'vit-base-p16')
    with torch.no_grad():
        logits = model(data['inputs'])
        loss = float(model(**data, mode='loss')['loss'])
    assert loss == pytest.approx(sigmoid_loss(logits, labels), rel=1e-5)


@pytest.mark.parametrize('seed', range(4))
def test_mixup_is_big_visions(seed):
    """One factor of at least 1/2; each image gets the rest of the one before it, the first of the last."""
    images, labels = torch.rand(5, 3, 4, 4), torch.eye(5)
    np.random.seed(seed)
    mixup = BATCH_AUGMENTS.build(dict(type='mmlape.RolledMixup', alpha=0.5))
    assert type(mixup) is RolledMixup
    mixed, scores = mixup(images, labels)
    np.random.seed(seed)
    factor = np.random.beta(0.5, 0.5)
    factor = factor if factor > 0.5 else 1 - factor
    for i in range(5):
        torch.testing.assert_close(mixed[i], factor * images[i] + (1 - factor) * images[i - 1])
        torch.testing.assert_close(scores[i], factor * labels[i] + (1 - factor) * labels[i - 1])


@pytest.mark.parametrize('magnitude', [-0.9, -0.35, 0.0, 0.45, 1.85])
@pytest.mark.parametrize('side', [224, 64, 300])
def test_contrast_is_big_visions(magnitude, side):
    """Blended with the mean of a histogram's 256 bins, not of the image; fractions are cut off."""
    init_default_scope('mmpretrain')
    image = np.random.default_rng(0).integers(0, 256, (side, side, 3)).astype(np.uint8)
    kind = TRANSFORMS.build(
        dict(type='mmlape.BigVisionContrast', magnitude=magnitude, prob=1.0, random_negative_prob=0.0)
    )
    counts, _ = np.histogram(image[..., 0], bins=256, range=(0, 255))
    grey = np.uint8(np.clip(counts.sum() / 256, 0, 255)).astype(np.float32)
    wanted = np.clip(grey + np.float32(1 + magnitude) * (image.astype(np.float32) - grey), 0, 255).astype(np.uint8)
    assert grey == {224: 196, 64: 16, 300: 255}[side]
    assert np.array_equal(kind(dict(img=image))['img'], wanted)


# the linear decoder (section 6.3 and appendix G)


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


# steps


@pytest.fixture
def digits(pristine, tmp_path):
    """Mini digits where ImageNet-21k and ImageNet-1K are looked for."""
    shutil.copytree(pristine / 'digits', tmp_path / 'data' / 'imagenet')
    shutil.copytree(pristine / 'digits' / 'train', tmp_path / 'data' / 'imagenet21k' / 'train')
    return tmp_path / 'data'


ARCH = dict(_delete_=True, embed_dims=24, num_layers=2, num_heads=2, feedforward_channels=48)
FEW = {
    'model.backbone.arch': ARCH,
    'model.head.in_channels': 24,
    'train_cfg': dict(max_iters=2, val_interval=2),
    'param_scheduler': [],
    'default_hooks.checkpoint.interval': 2,
    'train_dataloader': dict(batch_size=4, num_workers=0, persistent_workers=False),
    'val_dataloader': dict(batch_size=10, num_workers=0, persistent_workers=False),
}


def test_two_steps_on_imagenet_21k_and_25_shot(digits, tmp_path):
    """Classes of the head come from the 21k folder; the metric is few-shot on the other data."""
    shutil.rmtree(digits / 'imagenet21k' / 'train' / 'nine')
    path = 'mmlape::studies/dpn-imagenet21k.yml:dpn-93k'
    cfg = load_config(path, {'data_root': f'{digits}/', **FEW, 'val_dataloader.dataset.shots': (1, 2)})
    assert cfg.model.head.num_classes == cfg.model.data_preprocessor.num_classes == 9
    check_data(cfg)
    train(cfg, tmp_path / 'run', batch='allow-batch-mismatch')
    last = read_evaluations(tmp_path / 'run')[-1].metrics
    assert {f'few-shot/{shots}-shot' for shots in (1, 2)} <= set(last)
