"""The recipes of Dual PatchNorm: values by key, loss, mixup, RandAugment, decay, and first steps on the digits."""

import shutil

import numpy as np
import pytest
import torch
from config_helpers import ROOT, build, build_without_data, load
from mmengine import DefaultScope
from mmengine.registry import init_default_scope
from mmpretrain.registry import TRANSFORMS
from mmpretrain.structures import DataSample
from scipy.ndimage import zoom
from test_recipes import learning_rates, options

from mmlape.checkpoint import load_model
from mmlape.errors import CheckpointError, DataError
from mmlape.lab.datasets.checks import check_data
from mmlape.lab.engine.config import load_config
from mmlape.lab.engine.trainer import train
from mmlape.lab.runs.schema import read_evaluations
from mmlape.models import VisionTransformer
from mmlape.models.classifiers.mixup import BATCH_AUGMENTS, RolledMixup
from mmlape.registry import DATASETS

FOLDER = ROOT / 'configs' / 'vit'
# (RandAugment's magnitude, mixup's alpha, dropout and stochastic depth), None where there is none: AugReg's strengths


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


@pytest.mark.parametrize('level', [0, 5, 10, 15])
def test_randaugment_is_big_visions(level):
    """What its level functions give each operation, for images of 224; every operation is applied."""
    init_default_scope('mmpretrain')
    step = next(step for step in recipe().train_dataloader.dataset.pipeline if step.type == 'RandAugment')
    operations = TRANSFORMS.build(dict(step, magnitude_level=level))
    assert step.num_policies == 2 and len(operations.transforms) == 16
    enhanced = ('ColorTransform', 'BigVisionContrast', 'Brightness', 'Sharpness')
    wanted = dict(
        Rotate=level / 10 * 30,
        Posterize=int(level / 10 * 4),
        Solarize=int(level / 10 * 256),
        SolarizeAdd=int(level / 10 * 110),
        Shear=level / 10 * 0.3,
        Translate=level / 10 * 100 / 224,
        Cutout=2 * int(level / 10 * 40),
        **dict.fromkeys(enhanced, level / 10 * 1.8 + 0.1 - 1),
    )
    signed = {'Rotate', 'Shear', 'Translate'}
    for one in operations:
        kind = type(one).__name__
        assert one.prob == 1
        if one.magnitude_range is not None:
            assert one.random_magnitude() == pytest.approx(wanted[kind])
            assert (one.random_negative_prob == 0.5) == (kind in signed)
    image = dict(img=np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8))
    for one in operations:
        assert one.transform(dict(image))['img'].shape == (64, 64, 3)


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


def test_the_pe_is_zoomed_as_big_visions():
    """By SciPy's zoom, on a table whose rows and columns differ, from 224 pixels to 384."""
    for arch, old, new in (('vit-base-p32', 7, 12), ('vit-base-p16', 14, 24)):
        cfg = recipe(arch, '4xb128-5k-ft384_in1k')
        arch = dict(_delete_=True, embed_dims=24, num_layers=1, num_heads=2, feedforward_channels=24)
        cfg = cfg.copy()
        cfg.merge_from_dict({'model.backbone.arch': arch, 'model.head': dict(in_channels=24, hidden_dim=24)})
        vit = build(cfg).backbone.double()
        table = np.random.default_rng(0).normal(size=(old, old, 24))
        wanted = zoom(table, (new / old, new / old, 1), order=1).reshape(1, -1, 24)
        state = dict(vit.state_dict(), pos_embed=torch.from_numpy(table).flatten(0, 1)[None])
        vit.load_state_dict(state)
        assert vit.grid == (new, new)
        assert np.abs(vit.pos_embed.detach().numpy() - wanted).max() < 1e-12


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


def test_sun397s_files_are_checked(pristine, tmp_path):
    """Every line of a partition: its file, and its folder's class."""
    image = next((pristine / 'digits' / 'train' / 'one').iterdir())
    names = ['/a/abbey/sun_a.jpg', '/c/church/outdoor/sun_b.jpg']
    for part in ('Training', 'Testing'):
        (tmp_path / 'Partitions').mkdir(exist_ok=True)
        (tmp_path / 'Partitions' / f'{part}_01.txt').write_text('\n'.join(names))
    path = FOLDER / 'vit-base-p32_4xb128-300e_sun397.py'
    for name in names:
        (tmp_path / 'SUN397' / name[1:]).parent.mkdir(parents=True)
        shutil.copy(image, tmp_path / 'SUN397' / name[1:])
    cfg = load_config(path, {'data_root': f'{tmp_path}/'})
    assert cfg.model.head.num_classes == 397 and [summary.images for summary in check_data(cfg)] == [2, 2]
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        dataset = DATASETS.build(cfg.train_dataloader.dataset)
    assert [dataset.get_data_info(i)['gt_label'] for i in range(2)] == sorted(check_data(cfg)[0].seen)
    (tmp_path / 'SUN397' / names[1][1:]).unlink()
    with pytest.raises(DataError, match=r'1 of 2 images of .*Training_01.txt do not exist; the first is .*sun_b.jpg'):
        check_data(cfg)
    (tmp_path / 'Partitions' / 'Training_01.txt').write_text('/a/abey/sun_a.jpg')
    with pytest.raises(DataError, match='line 1: "/a/abey/sun_a.jpg" is in the folder of no class'):
        check_data(cfg)
    with pytest.raises(DataError, match=r'Data root data/SUN397/ of the train data does not exist .*Sun397: unpack'):
        check_data(load_config(path))


def test_224_fills_a_model_of_384_but_for_its_head(tmp_path):
    """As by `load_from`: the PE of 4x4 patches becomes one of 6x6, as the backbone resizes it."""
    model = build(tiny(recipe('vit-base-p32', '4xb128-5k-ft384_in1k')))
    small = dict(arch={key: value for key, value in ARCH.items() if key != '_delete_'}, patch_size=8)
    source = VisionTransformer(img_size=32, with_prefix_pe=False, **small)
    other = VisionTransformer(img_size=48, with_prefix_pe=False, interpolate_mode='bilinear', **small)
    model.backbone = other
    tensors = {f'backbone.{name}': value for name, value in source.state_dict().items()}
    tensors |= {name: value + 1 for name, value in model.state_dict().items() if name.startswith('head.')}
    own = {name: value.clone() for name, value in model.head.state_dict().items()}
    torch.save(dict(state_dict=tensors), tmp_path / 'a.pth')
    with pytest.raises(CheckpointError, match=r'wrong shape: backbone\.pos_embed'):
        load_model(model, str(tmp_path / 'a.pth'))
    fresh = recipe('vit-base-p32', '4xb128-5k-ft384_in1k').load_fresh
    report = load_model(model, str(tmp_path / 'a.pth'), resize=True, fresh=fresh)
    assert report.resized == {'backbone.pos_embed': '4x4 -> 6x6'} and not report.problems
    kind = other.position.absolute
    torch.testing.assert_close(other.pos_embed, kind.resize(source.pos_embed, (4, 4), (6, 6), 0, 'bilinear'))
    for name, value in model.head.state_dict().items():
        torch.testing.assert_close(value, own[name] if name.startswith('layers.head.') else own[name] + 1)
