"""The grid of a table on every way into a model: bit for bit the source's on the same grid, timm's resize on another.

Grids have 576 = 24 x 24 and 144 = 12 x 12 cells, or with a class row 225 = 15 x 15 rows, so that a guess is wrong.
"""

import itertools
from functools import partial

import pytest
import timm
import torch
from checkpoint_helpers import run_file
from each import each
from huggingface_hub import PyTorchModelHubMixin
from mmengine.config import Config
from model_helpers import CEIT_ARCH, T2T_ARCH
from safetensors.torch import save_file
from timm.layers import resample_abs_pos_embed
from torch import nn

import mmlape
from mmlape.backbones import build_backbone
from mmlape.checkpoint import load_model
from mmlape.checkpoint.converting import average, convert, publish
from mmlape.errors import CheckpointError
from mmlape.models import SwinTransformer, TimmViT, TimmViTAdapter, VisionTransformer, ViTAdapter
from mmlape.projects import CeiT, T2TViT

GRIDS = ((18, 32), (9, 16), (14, 56), (32, 128), (14, 16), (24, 24))
ARCH = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=32)
OF_TIMM = dict(embed_dim=16, depth=2, num_heads=2, mlp_ratio=2)
ADAPTER = dict(conv_inplane=4, deform_num_heads=2)
INDEXES = dict(interaction_indexes=[[0, 0], [1, 1]])


def vit(size, **options):
    return VisionTransformer(ARCH, size, out_type='featmap', interpolate_mode='bicubic-antialias', **options)


def of_timm(size, model_args=None, **options):
    return TimmViT('vit_tiny_patch16_224', img_size=size, model_args={**OF_TIMM, **(model_args or {})}, **options)


def adapter_of_timm(size, init_cfg=None, name='vit_tiny_patch16_224', **options):
    of_vit = dict(model_name=name, img_size=size, model_args=OF_TIMM, **options)
    return TimmViTAdapter(of_vit, layers=(0, 1), init_cfg=init_cfg, **ADAPTER)


MODELS = {
    'ViT': vit,
    'ViT, registers': partial(vit, num_registers=2),
    'ViT, no token': partial(vit, with_cls_token=False),
    'ViT, tokens without rows': partial(vit, num_registers=2, with_prefix_pe=False),
    'LaPE, unshared': partial(vit, pe_joining='unshared'),
    'adapter': partial(ViTAdapter, ARCH, interpolate_mode='bicubic-antialias', **ADAPTER, **INDEXES),
    'TimmViT': of_timm,
    'TimmViT, registers': partial(of_timm, dict(reg_tokens=2)),
    'TimmViT, no token': partial(of_timm, with_prefix=False),
    'TimmViT, tokens without rows': partial(of_timm, dict(no_embed_class=True, reg_tokens=2)),
    'add_lape': partial(of_timm, pe_joining='lape'),
    'add_lape, unshared': partial(of_timm, pe_joining='unshared'),
    'TimmViTAdapter': adapter_of_timm,
    'TimmViTAdapter, patches of 14': partial(adapter_of_timm, name='vit_small_patch14_dinov2'),
    'T2T-ViT': lambda size, **options: T2TViT(T2T_ARCH, size, pe_type='learnable', **options),
    'CeiT': lambda size, **options: CeiT(CEIT_ARCH, size, **options),
    'Swin': lambda size, **options: SwinTransformer(
        dict(embed_dims=8, depths=(1, 1), num_heads=(1, 2)), tuple(side // 4 for side in size), window_size=2,
        pe_type='learnable', interpolate_mode='bicubic-antialias', **options,
    ),
}  # fmt: skip
for key in ('TimmViT, registers', 'TimmViT, tokens without rows'):
    MODELS[key] = lambda size, given=MODELS[key].args[0], **options: of_timm(size, given, **options)


def build(name, grid, **options):
    return MODELS[name](tuple(16 * side for side in grid), **options)


class Complete(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone, self.decode_head = backbone, nn.Linear(2, 2)


class OnTheHub(nn.Module, PyTorchModelHubMixin):
    def __init__(self, name: str, grid: list):
        super().__init__()
        self.backbone = build(name, tuple(grid))


def saved(weights, path):
    torch.save(weights, path)
    return str(path)


def through_init_cfg(source, name, grid, folder):
    path = saved(source.state_dict(), folder / 'a.pth')
    model = build(name, grid, init_cfg=dict(type='Pretrained', checkpoint=path))
    model.init_weights()
    return model


def through(write):
    """Return the way through a file that a function writes of the source's checkpoint, which a run has written."""

    def load(source, name, grid, folder):
        path = run_file(folder / 'run.pth', source)
        model = build(name, grid)
        model.load_report = mmlape.load_weights(model, str(write(path, folder)))
        return model

    return load


def converted(suffix, path, folder):
    convert(path, folder / f'b{suffix}', 'mmlape', overwrite=True)
    return folder / f'b{suffix}'


def averaged(path, folder):
    average([path, path], folder / 'b.pth', overwrite=True)
    return folder / 'b.pth'


def of_state_dict(source, name, grid, folder):
    model = build(name, grid)
    model.load_report = mmlape.load_weights(model, source.state_dict())
    return model


def with_grid(source, name, grid, folder):
    model = build(name, grid)
    model.load_report = mmlape.load_weights(model, dict(source.state_dict()), grid=source.grid)
    return model


def load_state_dict(source, name, grid, folder):
    model = Complete(build(name, grid))
    model.load_state_dict(Complete(source).state_dict(), strict=False)
    return model.backbone


def load_from(source, name, grid, folder):
    model = Complete(build(name, grid))
    path = run_file(folder / 'a.pth', whole := Complete(source))
    model.decode_head.load_state_dict(whole.decode_head.state_dict())
    load_model(model, path, resize=True)
    return model.backbone


def exported(source, name, grid, folder):
    config = Config(dict(model=dict(backbone=mmlape_config(source, name, grid))))
    return build_backbone(config, run_file(folder / 'a.pth', source))


def mmlape_config(source, name, grid):
    return source.checkpoint_adapter.record(build(name, grid))['config']


KNOWING = {
    'init_cfg': through_init_cfg,
    'state dict': of_state_dict,
    'grid=': with_grid,
    'load_state_dict': load_state_dict,
    'load_from': load_from,
    'a run': through(lambda path, folder: path),
    'convert': through(partial(converted, '.pth')),
    'convert to safetensors': through(partial(converted, '.safetensors')),
    'average': through(averaged),
    'publish': through(lambda path, folder: publish(path, folder / 'b.safetensors')),
    'publish of a state dict': lambda source, name, grid, folder: through(
        lambda path, folder: publish(saved(source.state_dict(), folder / 'c.pth'), folder / 'd.safetensors')
    )(source, name, grid, folder),
    'export': exported,
}
"""Ways that bring the grid of the source along."""


def plain_file(source, name, grid, folder):
    save_file({key: value.contiguous() for key, value in source.state_dict().items()}, folder / 'a.safetensors')
    model = build(name, grid)
    mmlape.load_weights(model, folder / 'a.safetensors')
    return model


def plain_dict(source, name, grid, folder):
    model = build(name, grid)
    mmlape.load_weights(model, dict(source.state_dict()))
    return model


def plain_state_dict(source, name, grid, folder):
    model = build(name, grid)
    model.load_state_dict(dict(source.state_dict()))
    return model


def as_tested(source, name, grid, folder):
    model = Complete(build(name, grid))
    load_model(model, run_file(folder / 'a.pth', Complete(source)))
    return model.backbone


def there_and_back(source, name, grid, folder):
    """Return the last one of all layouts that have a place for the model."""
    path, model = run_file(folder / 'a.pth', source), source
    for to, suffix in itertools.product(source.checkpoint_adapter.targets(), ('.pth', '.safetensors')):
        try:
            convert(path, folder / f'b{suffix}', to, overwrite=True)
        except CheckpointError as error:
            assert f'the {to} layout has no place for' in str(error)
            continue
        report = mmlape.load_weights(model := build(name, grid), str(folder / f'b{suffix}'))
        assert not report.resized and all(torch.equal(tables(model)[key], one) for key, one in tables(source).items())
    return model


def from_pretrained(source, name, grid, folder):
    model = OnTheHub(name, list(grid))
    model.backbone.load_state_dict(source.state_dict())
    model.save_pretrained(folder / 'hub')
    return OnTheHub.from_pretrained(folder / 'hub').backbone


FORGETFUL = {
    'safetensors': plain_file,
    'dict': plain_dict,
    'load_state_dict of a dict': plain_state_dict,
    'test, predict, resume': as_tested,
    'convert and back': there_and_back,
    "the hub's from_pretrained": from_pretrained,
}
"""Ways without a record, or into a model of the same grid only."""


def pairs_covered():
    """Yield names of models and ways with a grid each: every pair of a grid and a model, and of a grid and a way."""
    names, ways = list(MODELS), list(KNOWING | FORGETFUL)
    for place, way in enumerate(ways):
        for number, grid in enumerate(GRIDS):
            yield names[(place + number * len(ways)) % len(names)], way, grid
    yield from (
        (name, ways[(3 * number) % len(ways)], GRIDS[number % len(GRIDS)]) for number, name in enumerate(names)
    )


@torch.no_grad()
def filled(model):
    for value in model.parameters():
        value.copy_(torch.randn_like(value))
    return model


def tables(model):
    return {name: model.get_parameter(name) for name in model.stored_tables()}


def test_the_same_grid_is_the_identity(tmp_path):
    for name, way, grid in each(pairs_covered()):
        source = filled(build(name, grid))
        loaded = (KNOWING | FORGETFUL)[way](source, name, grid, tmp_path)
        assert all(torch.equal(tables(loaded)[key], value) for key, value in tables(source).items()), (name, way, grid)
        assert tables(source) and not (loaded.load_report and loaded.load_report.resized)


def test_another_grid_gets_timms_resize_and_the_report_says_so(tmp_path):
    for number, (name, way, grid) in each(enumerate(pairs_covered())):
        if way not in KNOWING:
            continue
        other = GRIDS[(GRIDS.index(grid) + 1 + number % (len(GRIDS) - 1)) % len(GRIDS)]
        source = filled(build(name, grid))
        loaded = KNOWING[way](source, name, other, tmp_path)
        for key, table in tables(source).items():
            (src, dst), prefix = (list(model.table_grid(key, model.grid)) for model in (source, loaded)), 0
            prefix = sum(source.table_tokens().values())
            antialias = name not in ('T2T-ViT', 'CeiT')  # as their public code resizes
            expected = resample_abs_pos_embed(table, dst, src, prefix, antialias=antialias)
            assert torch.equal(tables(loaded)[key], expected), (name, way, grid, other)
            if loaded.load_report:
                assert loaded.load_report.resized[key] == f'{src[0]}x{src[1]} -> {dst[0]}x{dst[1]}'


def test_pretrained_squares_get_timms_resize(tmp_path):
    """Of 14 x 14 patches, in a file that says nothing; the tables of `add_lape` start from it."""
    for name, grid in each(itertools.product(MODELS, GRIDS)):
        given = dict(allow_joining_mismatch=True, strict=False)
        if name in ('Swin', 'LaPE, unshared', 'T2T-ViT', 'CeiT') or 'without rows' in name or 'of 14' in name:
            continue
        tokens = {} if 'no token' not in name else dict(class_token=False, global_pool='avg')
        theirs = filled(timm.create_model('vit_tiny_patch16_224', **OF_TIMM, **tokens))
        model = build(name, grid)
        report = mmlape.load_weights(model, dict(theirs.state_dict()), **given)
        expected = resample_abs_pos_embed(theirs.pos_embed, list(grid), num_prefix_tokens=not tokens)
        cells = grid[0] * grid[1]
        for key, table in tables(model).items():
            assert torch.equal(table[:, -cells:], expected[:, -cells:]), (name, grid)
            rows = table.shape[1] - cells
            assert not rows or torch.equal(table[:, :1], expected[:, :1]), 'the class row'
            assert report.resized[key] == f'14x14 -> {grid[0]}x{grid[1]}'


def test_two_readings_are_told_apart_by_the_model_or_by_the_user():
    """15 x 15 patches without a class row, or 14 x 16 with one."""
    theirs = filled(timm.create_model('vit_tiny_patch16_224', img_size=(224, 256), **OF_TIMM))
    file = dict(theirs.state_dict())
    with pytest.raises(CheckpointError, match=r'225 rows, of 224 .* cls_token or 15x15 patches beside no'):
        mmlape.load_weights(build('ViT', (20, 20)), file)
    with pytest.raises(CheckpointError, match=r'say which by source=\(rows, columns\)'):
        mmlape.resize_pos_embed(file, 14)
    resized = mmlape.resize_pos_embed(file, 14, (14, 16), 'bicubic-antialias')
    assert torch.equal(resized['pos_embed'], resample_abs_pos_embed(theirs.pos_embed, [14, 14], [14, 16]))
    for grid, with_prefix_pe in (((14, 16), True), ((15, 15), False)):
        mmlape.load_weights(model := vit([16 * side for side in grid], with_prefix_pe=with_prefix_pe), file)
        assert torch.equal(model.pos_embed, theirs.pos_embed)
    registers = {**file, 'reg_token': torch.zeros(1, 4, 16), 'pos_embed': torch.zeros(1, 9, 16)}
    with pytest.raises(CheckpointError, match='2x2 patches .* reg_token or 3x3 patches beside no'):
        mmlape.load_weights(vit(320, num_registers=4), registers)


def test_a_resized_state_dict_says_its_grid():
    source = filled(build('ViT', (14, 14)))
    resized = mmlape.resize_pos_embed(Complete(source).state_dict(), (18, 32), mode='bicubic-antialias')
    mmlape.load_weights(model := build('ViT', (24, 24)), resized)
    there = resample_abs_pos_embed(source.pos_embed, [18, 32])
    assert torch.equal(model.pos_embed, resample_abs_pos_embed(there, [24, 24], [18, 32]))


def test_files_of_other_grids_are_refused(tmp_path):
    files = [run_file(tmp_path / f'{rows}.pth', build('TimmViT', (rows, 576 // rows))) for rows in (18, 32)]
    states = [saved(torch.load(file)['state_dict'], tmp_path / f's{number}.pth') for number, file in enumerate(files)]
    for pair in (files, states):
        with pytest.raises(CheckpointError, match='not of one model; they record'):
            average(pair, tmp_path / 'm.pth')
    file = run_file(tmp_path / 'a.pth', Complete(build('TimmViT', (18, 32))))
    with pytest.raises(CheckpointError, match=r'wrong grid: backbone.vit.pos_embed, .* resized 18x32 -> 32x18'):
        load_model(Complete(build('TimmViT', (32, 18))), file)


OTHER_LAYOUTS = {'timm': {}, 'lape': {}, 'transformers-dinov2': dict(num_registers=2, layer_scale_init_value=0.1)}


def test_files_of_other_layouts_say_their_grid(tmp_path):
    """A model of another one resizes them, and keeps the class row."""
    arch = dict(embed_dims=64, num_layers=1, num_heads=1, feedforward_channels=64)
    for to, suffix in each(itertools.product(OTHER_LAYOUTS, ('.pth', '.safetensors'))):
        options = dict(OTHER_LAYOUTS[to], out_type='featmap')
        source = filled(VisionTransformer(arch, (224, 256), **options))
        path, written = run_file(tmp_path / 'a.pth', source), tmp_path / f'{to}{suffix}'
        convert(path, written, to)
        report = mmlape.load_weights(model := VisionTransformer(arch, (96, 128), **options), written)
        assert report.resized == {'pos_embed': '14x16 -> 6x8'}
        assert torch.equal(model.pos_embed[:, 0], source.pos_embed[:, 0])
