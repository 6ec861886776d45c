"""What training code puts around weights and models: every wrapping with every family, names kept on the way out."""

import copy
from collections import OrderedDict

import numpy as np
import pytest
import torch
from each import each
from model_helpers import ARCH, randomise
from torch import nn
from torch.optim.swa_utils import AveragedModel

import mmlape
from mmlape.checkpoint import read_checkpoint
from mmlape.checkpoint.converting import inspect
from mmlape.checkpoint.opening import weights_in
from mmlape.errors import CheckpointError, ConfigError
from mmlape.models import (
    DistilledVisionTransformer,
    SwinTransformer,
    TimmViT,
    TimmViTAdapter,
    VisionTransformer,
    ViTAdapter,
    ViTPyramid,
)

SMALL = dict(embed_dim=24, depth=4, num_heads=2)
STAGES = dict(embed_dims=12, depths=[2, 2], num_heads=[1, 2])
ADAPTER = dict(conv_inplane=8, deform_num_heads=2)


def timm_vit(**options):
    """Build a tiny one; ``in_channels`` is timm's ``in_chans``."""
    more = {'in_chans': options.pop('in_channels')} if 'in_channels' in options else {}
    return TimmViT('vit_tiny_patch16_224', img_size=32, model_args=dict(SMALL, **more), **options)


def timm_adapter(of_vit=None, **options):
    vit = dict(model_name='vit_tiny_patch16_224', img_size=64, model_args=dict(SMALL, **(of_vit or {})))
    return TimmViTAdapter(vit=vit, **ADAPTER, **options)


FAMILIES = {
    'vit': lambda **k: VisionTransformer(ARCH, 32, 8, **k),
    'lape': lambda **k: VisionTransformer(ARCH, (24, 48), 8, pe_joining='lape', **k),
    'unshared, dual': lambda **k: VisionTransformer(ARCH, 32, 8, pe_joining='unshared', patch_norm='dual', **k),
    'rms': lambda **k: VisionTransformer(ARCH, 32, 8, patch_norm='rms', **k),
    'gated': lambda **k: VisionTransformer(ARCH, 32, 8, ffn_type='swiglu', **k),
    'rope without biases of keys': lambda **k: VisionTransformer(
        ARCH, 32, 8, pe_type='rope', qkv_bias='qv', layer_scale_init_value=0.1, **k
    ),
    'beit': lambda **k: VisionTransformer(ARCH, 32, 8, pe_type='beit', qkv_bias='qv', layer_scale_init_value=0.1, **k),
    'distilled': lambda **k: DistilledVisionTransformer(ARCH, 32, 8, **k),
    'adapter': lambda **k: ViTAdapter(arch=ARCH, img_size=64, **ADAPTER, **k),
    'pyramid': lambda **k: ViTPyramid(arch=dict(ARCH, embed_dims=32, num_heads=2), img_size=64, **k),
    'swin': lambda **k: SwinTransformer(STAGES, 32, window_size=4, **k),
    'timm': timm_vit,
    'timm adapter': timm_adapter,
}  # fmt: skip


def prefixed(start):
    return lambda model: {start + name: value for name, value in model.state_dict().items()}


def inside(part):
    """Return what names a wrapper of each layer."""

    def wrap(model):
        names = dict.fromkeys(name for name in model.state_dict())
        return {
            name.replace('.attn.', f'.{part}.attn.').replace('patch_embed.', f'patch_embed.{part}.'): value
            for name, value in zip(names, model.state_dict().values())
        }

    return wrap


def lightning(model):
    other = {'model.decode_head.conv_seg.weight': torch.ones(2, 3), 'criterion.weight': torch.ones(2)}
    return {'state_dict': prefixed('model.backbone.')(model) | other, 'epoch': 3, 'pytorch-lightning_version': '2.6'}


WRAPPINGS = {
    'nothing': lambda model: model.state_dict(),
    'DDP': prefixed('module.'),
    'DDP twice': prefixed('module.module.'),
    'compiled': prefixed('_orig_mod.'),
    'DDP of compiled': prefixed('module._orig_mod.'),
    'compiled DDP': prefixed('_orig_mod.module.'),
    'averaged': lambda model: AveragedModel(model).state_dict(),
    'averaged DDP': lambda model: AveragedModel(AveragedModel(model)).state_dict(),
    "MMEngine's average": lambda model: {'steps': torch.tensor(3), **prefixed('module.')(model)},
    'Fabric': prefixed('_forward_module.'),
    'compiled layers': inside('_orig_mod'),
    'FSDP': inside('_fsdp_wrapped_module'),
    'recomputed layers': inside('_checkpoint_wrapped_module'),
    'Lightning': lambda model: {'state_dict': prefixed('model.')(model), 'global_step': 7},
    'Lightning, in a segmentor': lightning,
    'in a module of any name': lambda model: {'state_dict': prefixed('net.')(model), 'loss.weight': torch.ones(1)},
    'a segmentor': lambda model: {'state_dict': prefixed('backbone.')(model)},
    'model': lambda model: {'model': model.state_dict(), 'optimizer': {'state': {0: {'exp_avg': torch.ones(2)}}}},
    'DeepSpeed': lambda model: {'module': model.state_dict(), 'ds_version': '0.18', 'lr_scheduler': None},
    'averages alone': lambda model: {'state_dict_ema': model.state_dict(), 'epoch': 2},
    'model_ema of DDP': lambda model: {'model_ema': prefixed('module.')(model)},
    'the only key with tensors': lambda model: {'teacher': prefixed('module.backbone.')(model), 'epoch': 1},
    'params': lambda model: {'params': model.state_dict()},
    'half': lambda model: {name: half(value, torch.float16) for name, value in model.state_dict().items()},
    'bfloat16': lambda model: {name: half(value, torch.bfloat16) for name, value in model.state_dict().items()},
    'tied': lambda model: {'state_dict': tied(model)},
}


def half(value, dtype):
    return value.to(dtype) if value.is_floating_point() else value


def tied(model):
    """Return all values as views of one storage."""
    state = model.state_dict()
    flat = torch.cat([value.flatten().float() for value in state.values()])
    parts = flat.split([value.numel() for value in state.values()])
    views = [part.view(value.shape) for part, value in zip(parts, state.values())]
    return {name: view if own.is_floating_point() else own for (name, own), view in zip(state.items(), views)}


def assert_values(model, source, wrapping='nothing'):
    dtype = dict(half=torch.float16, bfloat16=torch.bfloat16).get(wrapping)
    expected = source.state_dict()
    for name, value in model.state_dict().items():
        wanted = half(expected[name], dtype).to(value.dtype) if dtype else expected[name]
        assert torch.equal(value, wanted), name


PAIRS = [(name, wrapping) for name in FAMILIES for wrapping in WRAPPINGS]
THIRD = [pair for place, pair in enumerate(PAIRS) if pair[0] == 'vit' or place % 3 == 0]


@pytest.mark.parametrize('pairs', [THIRD, pytest.param(PAIRS, marks=pytest.mark.release)], ids=['third', 'all'])
def test_every_wrapping_of_every_family_loads(pairs, tmp_path):
    names, wrappings = map(set, zip(*pairs))
    assert (names, wrappings) == (set(FAMILIES), set(WRAPPINGS))
    sources = {name: randomise(build()) for name, build in FAMILIES.items()}
    models = {name: build() for name, build in FAMILIES.items()}
    blank = {name: copy.deepcopy(model.state_dict()) for name, model in models.items()}
    for name, wrapping in each(pairs):
        source, model = sources[name], models[name]
        forms = [WRAPPINGS[wrapping](source)]
        if name == 'vit':
            torch.save(forms[0], tmp_path / 'a.pth')
            forms += [tmp_path / 'a.pth', str(tmp_path / 'a.pth')]
        for given in forms:
            model.load_state_dict(blank[name])
            # a rectangle is known where a state dict brings it along
            grid = (3, 6) if name == 'lape' else None
            report = mmlape.load_weights(model, given, grid=grid)
            assert len(report.loaded) == report.total and not report.problems + report.new
            assert_values(model, source, wrapping)


WITH_A_TABLE = ('vit', 'distilled', 'adapter', 'timm', 'timm adapter')


def test_every_wrapping_keeps_its_names_where_a_table_is_resized():
    pairs = [('unshared, dual', wrapping) for wrapping in WRAPPINGS]
    pairs += [(name, wrapping) for name in WITH_A_TABLE for wrapping in ('averaged', 'Lightning, in a segmentor')]
    for name, wrapping in each(pairs):
        source = randomise(FAMILIES[name]())
        plain = mmlape.resize_pos_embed(source.state_dict(), grid=(3, 5))
        content = WRAPPINGS[wrapping](source)
        stored = weights_in(content, '')
        out = mmlape.resize_pos_embed(content, grid=(3, 5))
        assert list(out) == [key for key, value in stored.items() if isinstance(value, torch.Tensor)]
        changed = {key for key in out if out[key] is not stored[key]}
        assert len(changed) == len(source.stored_tables()) and all('pos_embed' in key for key in changed)
        for key in changed:
            own = next(other for other in plain if key.endswith(other))
            torch.testing.assert_close(out[key].float(), plain[own], rtol=0.01, atol=0.01)


class Segmentor(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone, self.head = backbone, nn.Linear(3, 2)


def compiled_layer(model):
    model.blocks[0] = torch.compile(model.blocks[0])
    return model


TARGETS = {
    'compiled': torch.compile,
    'DataParallel': nn.DataParallel,
    'averaged': AveragedModel,
    'compiled DataParallel': lambda model: torch.compile(nn.DataParallel(model)),
    'average of compiled': lambda model: AveragedModel(torch.compile(model)),
    'compiled layer': compiled_layer,
}


def test_every_wrapped_model_is_loaded(tmp_path):
    source = randomise(FAMILIES['lape']())
    complete = randomise(Segmentor(FAMILIES['lape']()))
    torch.save(source.state_dict(), tmp_path / 'a.pth')
    torch.save(complete.state_dict(), tmp_path / 'b.pth')
    torch.save({'state_dict': prefixed('model.')(complete)}, tmp_path / 'c.pth')
    for target in each(TARGETS):
        model = TARGETS[target](FAMILIES['lape']())
        names, modules = list(model.state_dict()), list(model.modules())
        report = mmlape.load_weights(model, tmp_path / 'a.pth')
        assert len(report.loaded) == report.total == len(source.state_dict())
        assert list(model.state_dict()) == names and list(model.modules()) == modules
        assert_same(model, source)
        whole = Segmentor(TARGETS[target](FAMILIES['lape']()))
        for model, file in ((whole, 'b'), (TARGETS['compiled'](whole), 'c')):
            for value in model.parameters():
                nn.init.zeros_(value)
            report = mmlape.load_weights(model, tmp_path / f'{file}.pth')
            assert len(report.loaded) == report.total
            assert_same(model, complete)


def assert_same(model, source):
    """Compare the parameters in their order, as wrappers name them otherwise."""
    ours, expected = list(model.parameters()), list(source.parameters())
    assert len(ours) == len(expected) and all(map(torch.equal, ours, expected))


def test_nothing_is_loaded_into_or_from_the_meta_device():
    source = randomise(FAMILIES['vit']())
    stored, empty = source.state_dict(), {name: value.to('meta') for name, value in source.state_dict().items()}
    for name in each(FAMILIES):
        with torch.device('meta'):
            model = FAMILIES[name]()
        with pytest.raises(CheckpointError, match="build it without torch.device\\('meta'\\)"):
            mmlape.load_weights(model, stored)
        with pytest.raises(CheckpointError, match='the model is on the meta device'):
            mmlape.load_weights(Segmentor(model), stored)
    for given in (empty, {'model': empty}):
        with pytest.raises(CheckpointError, match=r'cls_token is on the meta device, without values'):
            mmlape.load_weights(FAMILIES['vit'](), given)
        with pytest.raises(CheckpointError, match=r'is on the meta device'):
            mmlape.resize_pos_embed(given, 3)


def test_a_grid_is_whatever_counts_patches():
    source = randomise(FAMILIES['lape']())
    weights = dict(source.state_dict())  # a plain dict brings no grid along
    for grid in each(([3, 6], np.array([24, 48]) // 8, torch.tensor([3, 6]), torch.Size([3, 6]))):
        model = FAMILIES['lape']()
        mmlape.load_weights(model, weights, grid=grid)
        assert_values(model, source)
        assert mmlape.resize_pos_embed(weights, grid, source=grid)['pos_embed'].shape == (1, 19, 24)
    for square in (np.int64(4), torch.tensor(4), 4):
        assert mmlape.resize_pos_embed(weights, square, source=(3, 6))['pos_embed'].shape[1] == 17
    for wrong in each(('3x6', (3,), (3, 6, 1), (3.0, 6.0), (0, 6), np.array([3.5, 6.5]), {})):
        with pytest.raises(ConfigError, match='is no grid: give'):
            mmlape.load_weights(FAMILIES['lape'](), weights, grid=wrong)
        with pytest.raises(ConfigError, match='is no grid: give'):
            mmlape.resize_pos_embed(weights, wrong)


def test_a_hostile_grid_in_a_state_dict_is_not_read(tmp_path):
    weights = FAMILIES['vit']().state_dict()
    for grid in ('4x4', [4], [0, 4], [2**40, 2**40], [4.0, 4.0], None, {'a': 1}):
        hostile = OrderedDict(weights)
        hostile._metadata = OrderedDict({'': {'version': 1, 'grid': grid}, 'x': 3})
        torch.save(hostile, tmp_path / 'a.pth')
        mmlape.load_weights(FAMILIES['vit'](), tmp_path / 'a.pth')


def test_several_models_in_a_file_are_named(tmp_path):
    one, two = (randomise(FAMILIES['vit']()) for _ in range(2))
    for content, message in (
        ({'student': one.state_dict(), 'teacher': two.state_dict()}, r"tensors under 'student' and 'teacher'; give"),
        (
            {'state_dict': prefixed('student.')(one) | prefixed('teacher.')(two)},
            r"has 2 models \('student\.', 'teacher\.'\): give mmlape.load_weights a dict",
        ),
        ({name: value[:0] for name, value in one.state_dict().items()}, 'its tensors are empty.*zero_to_fp32'),
    ):
        torch.save(content, tmp_path / 'a.pth')
        for call in (
            lambda: mmlape.load_weights(FAMILIES['vit'](), tmp_path / 'a.pth'),
            lambda: inspect(tmp_path / 'a.pth'),
        ):
            with pytest.raises(CheckpointError, match=message) as error:
                call()
            assert len(str(error.value).splitlines()) == 1
    model = FAMILIES['vit']()
    mmlape.load_weights(model, read_checkpoint(tmp_path / 'a.pth') | two.state_dict())
    assert_values(model, two)


OTHER_CHANNELS = ('vit', 'lape', 'unshared, dual', 'rms', 'adapter', 'swin', 'timm', 'timm adapter')


def test_filters_of_other_channels_are_summed_or_repeated_where_that_is_asked(tmp_path):
    import timm.models

    for name in each(OTHER_CHANNELS):
        source = randomise(FAMILIES[name]()).eval()
        torch.save(source.state_dict(), tmp_path / 'a.pth')
        gray = torch.randn(1, 1, 64, 64)
        with torch.no_grad():
            expected = outputs(source(gray.expand(-1, 3, -1, -1)))
        for channels in (1, 4, 6):
            model = FAMILIES[name](in_channels=channels).eval()
            options = dict(grid=(3, 6)) if name == 'lape' else {}
            with pytest.raises(CheckpointError, match=rf'in_channels={channels}; adapt_channels=True \(in init_cfg'):
                mmlape.load_weights(model, tmp_path / 'a.pth', **options)
            report = mmlape.load_weights(model, tmp_path / 'a.pth', adapt_channels=True, **options)
            assert len(report.loaded) == report.total
            assert set(report.resized.values()) == {f'3 -> {channels} channels'}
            if channels != 4:  # copies of a gray image have its outputs
                with torch.no_grad():
                    found = outputs(model(gray.expand(-1, channels, -1, -1)))
                torch.testing.assert_close(found, expected, rtol=0, atol=2e-4)
            stem = next(key for key in report.resized if key.endswith('patch_embed.proj.weight'))
            if 'norm0' not in str(source.state_dict().keys()):
                theirs = timm.models.adapt_input_conv(channels, source.state_dict()[stem])
                torch.testing.assert_close(model.state_dict()[stem], theirs)


@pytest.mark.parametrize('channels', [1, 3, 5])
def test_vit_or_adapter_names_the_channels_of_both(channels):
    of_vit, of_adapter = dict(in_chans=channels), dict(in_channels=channels)
    for options in each((dict(of_vit=of_vit), of_adapter, dict(of_vit=of_vit, **of_adapter))):
        model = timm_adapter(**options)
        stems = model.vit.patch_embed.proj, model.spm.stem[0]
        assert {stem.in_channels for stem in stems} == {channels} == {model.in_channels}
        assert len(model(torch.randn(1, channels, 64, 64))) == 4
    with pytest.raises(ConfigError, match=f'in_channels=2, but model_args of vit have in_chans={channels}'):
        timm_adapter(of_vit=of_vit, in_channels=2)


def outputs(out):
    return [part for one in out for part in (one if isinstance(one, tuple) else (one,))]


def test_weights_of_one_channel_are_repeated_and_others_refused(tmp_path):
    source = randomise(FAMILIES['vit'](in_channels=1))
    torch.save(source.state_dict(), tmp_path / 'a.pth')
    model = FAMILIES['vit'](init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'a.pth'), adapt_channels=True))
    model.init_weights()
    torch.testing.assert_close(model.patch_embed.proj.weight.sum(1, keepdim=True), source.patch_embed.proj.weight)
    torch.save(FAMILIES['vit'](in_channels=5).state_dict(), tmp_path / 'a.pth')
    with pytest.raises(CheckpointError, match=r'wrong shape: patch_embed.proj.weight'):
        mmlape.load_weights(FAMILIES['vit'](), tmp_path / 'a.pth', adapt_channels=True)
