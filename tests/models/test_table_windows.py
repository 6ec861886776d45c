"""Tables that training reads at moved coordinates or in windows: against torch's own sampler, slices, and the draw."""

import inspect
import types

import pytest
import tiny
import torch
import torch.nn.functional as F
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st

from mmlape import add_lape
from mmlape.checkpoint.metadata import mismatch
from mmlape.common_random import common_numbers, seed_common
from mmlape.kinds import JOININGS, POSITION_ENCODINGS
from mmlape.lab.engine.hooks.run import ReseedHook
from mmlape.models import SwinTransformer, TimmViT, VisionTransformer, ViTAdapter
from mmlape.models.position.absolute import Learnable, Sincos2d

ARCH = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=16)
OPTIONS = (
    dict(rescale=2.0), dict(rescale=3.0, shift=0.25, draw='image'), dict(table_scale=1.5),
    dict(table_scale=2.0, draw='image'),
)  # fmt: skip
CPU = torch.device('cpu')
sides = st.integers(1, 6)
shares = st.floats(0, 1, exclude_max=True, width=32)


@pytest.fixture(autouse=True)
def common():
    yield
    seed_common(None)


def vit(joining='default', size=(12, 20), **options):
    options = {'pe_type': dict(type='learnable', **options)} | dict(with_cls_token=joining not in ('pvg', 'mpvg'))
    return VisionTransformer(ARCH, size, 4, pe_joining=joining, out_type='featmap', **options)


@settings(max_examples=60, deadline=None)
@given(st.tuples(sides, sides), st.tuples(sides, sides), st.tuples(shares, shares, shares), st.floats(0, 1),
       st.sampled_from(['bilinear', 'bicubic']))  # fmt: skip
def test_a_part_is_what_torchs_sampler_reads(src, dst, drawn, shift, mode):
    """Its grid is written out: a part of the table's sides, from -1 to 1, moved by a share of the room beside it."""
    table = torch.randn(1, 1 + src[0] * src[1], 5, dtype=torch.float64)
    kind = Learnable(rescale=3.0, shift=shift)
    out = kind.read(table, src, dst, 1, mode, torch.tensor(drawn, dtype=torch.float64))
    part = 3.0 ** -drawn[0]
    axes = [
        part * ((2 * torch.arange(side, dtype=torch.float64) + 1) / side - 1) + (1 - part) * shift * (2 * place - 1)
        for side, place in zip(dst, drawn[1:])
    ]
    where = torch.stack(torch.meshgrid(*axes, indexing='ij')[::-1], dim=-1)
    image = table[:, 1:].mT.reshape(1, 5, *src)
    expected = F.grid_sample(image, where[None], mode, 'border', align_corners=False).flatten(2).mT
    torch.testing.assert_close(out[:, 1:], expected, atol=1e-9, rtol=0)
    assert torch.equal(out[:, :1], table[:, :1])
    whole = kind.read(table, src, dst, 1, mode, torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(whole, kind.resize(table, src, dst, 1, mode), atol=1e-9, rtol=0)


@settings(max_examples=60, deadline=None)
@given(st.tuples(sides, sides), st.tuples(sides, sides), st.lists(st.tuples(shares, shares, shares), min_size=1))
def test_a_window_is_a_slice(src, dst, drawn):
    """One of each image, in evaluation the one in the middle; more tokens than rows read all of them, resized."""
    kind, table = Learnable(table_scale=2.0), torch.arange(1.0 + src[0] * src[1]).view(1, -1, 1)
    cells = table[0, 1:].view(*src)
    out = kind.read(table, src, dst, 1, 'bicubic', torch.tensor(drawn))
    still = kind.read(table, src, dst, 1, 'bicubic')
    size = [min(pair) for pair in zip(src, dst)]
    free = [have - side for have, side in zip(src, size)]
    places = [[int(share * (room + 1)) for share, room in zip(row[1:], free)] for row in drawn]
    for rows, (top, left) in zip([*out, still[0]], [*places, [room // 2 for room in free]], strict=True):
        window = cells[top : top + size[0], left : left + size[1]]
        expected = kind.resize(F.pad(window.reshape(1, -1, 1), (0, 0, 1, 0)), tuple(size), dst, 1, 'bicubic')
        torch.testing.assert_close(rows, expected[0], atol=1e-4, rtol=1e-5)


def test_every_joining_trains_such_a_table_and_evaluates_the_plain_one():
    """In training each forward reads elsewhere; evaluation, files and frozen tables have none of it."""
    JOININGS.import_from_location()
    for joining, options in each((name, one) for name in JOININGS.module_dict for one in OPTIONS):
        model, images = vit(joining, **options), torch.randn(3, 3, 12, 20)
        tables = [getattr(model, name) for name in model.pe_names]
        first, second = model(images)[0], model(images)[0]
        assert not torch.allclose(first, second)
        first.square().sum().backward()
        assert all(table.grad.any() for table in tables)
        model.eval()
        if 'rescale' in options:
            still = vit(joining)
            still.load_state_dict(model.state_dict())
            assert torch.equal(model(images)[0], still.eval()(images)[0])
            assert model.position.options() == still.position.options()
        larger = torch.randn(1, 3, 24, 40)
        assert torch.equal(model(larger)[0], model(larger)[0])
        model.train().requires_grad_(False)
        assert torch.equal(model(images)[0], model(images)[0])


def test_a_larger_table_fits_a_canvas_of_its_size():
    model = vit(table_scale=2.0)
    assert model.pos_embed.shape == (1, 1 + 6 * 10, 16)
    assert torch.equal(model.position_stream((6, 10), 0), model.pos_embed[:, 1:])
    assert model.position.options()['pe_type'] == dict(type='learnable', table_scale=2.0)
    cells = model.pos_embed[0, 1:].view(6, 10, 16)
    assert torch.equal(model.position_stream((3, 5), 0)[0], cells[1:4, 2:7].flatten(0, 1))
    small = vit(size=(6, 10), table_scale=2.0)  # 2 x 3 patches: a table of 4 x 6
    small.load_state_dict(model.state_dict())
    torch.testing.assert_close(small.pos_embed, Learnable().resize(model.pos_embed, (6, 10), (4, 6), 1, 'bicubic'))


def test_images_get_places_of_their_own_that_fill_the_range():
    seed_common(3)
    numbers = common_numbers(64, CPU)
    steps = numbers.sort(dim=0).values.diff(dim=0)
    assert numbers.shape == (64, 3) and steps.max() < 5 / 64 and steps.min() > 0


def test_two_processes_share_the_numbers_of_one(monkeypatch):
    """Images alternate between the processes, as samplers give them; a batch has the same numbers everywhere."""
    seed_common(3)
    whole, batch = common_numbers(6, CPU), common_numbers(None, CPU)
    for rank in range(2):
        with monkeypatch.context() as two:
            two.setattr('torch.distributed.is_initialized', lambda: True)
            two.setattr('torch.distributed.get_world_size', lambda: 2)
            two.setattr('torch.distributed.get_rank', lambda rank=rank: rank)
            seed_common(3)
            torch.testing.assert_close(common_numbers(3, CPU), whole[rank::2])
            assert torch.equal(common_numbers(None, CPU), batch)


def test_the_draw_is_of_seed_and_iteration_alone():
    hook, found = ReseedHook(), {}
    for rank, seed, iteration in ((0, 1, 7), (0, 1, 8), (1, 1, 7), (0, 2, 7), (0, 1, 7)):
        runner = types.SimpleNamespace(rank=rank, diff_rank_seed=True, seed=seed, iter=iteration)
        hook.before_train_iter(runner, 0)
        found.setdefault((seed, iteration), []).append(common_numbers(None, CPU))
    (first, *same), *others = found.values()
    assert all(torch.equal(first, one) for one in same)
    assert not any(torch.equal(first, other) for [other] in others)
    hook.after_train(runner)
    torch.manual_seed(0)
    drawn = common_numbers(None, CPU)
    torch.manual_seed(0)
    assert torch.equal(drawn, common_numbers(None, CPU))


@pytest.mark.release
def test_a_resumed_run_reads_what_an_uninterrupted_one_does(tmp_path):
    data = tiny.write_data(tmp_path / 'data')
    extra = "model['backbone']['pe_type'] = dict(type='learnable', rescale=2.0, draw='image')\n"
    config = tiny.write_config(tmp_path, data, extra=extra)
    tiny.train(config, tmp_path / 'complete', '--seed', '1')
    tiny.train(config, tmp_path / 'resumed', '--seed', '1', '--resume', tmp_path / 'complete' / 'iter_3.pth')
    assert tiny.difference(tmp_path / 'resumed' / 'iter_6.pth', tmp_path / 'complete' / 'iter_6.pth') == 0


@pytest.mark.release
@pytest.mark.parametrize('options', OPTIONS, ids=str)
def test_compiled_and_exported(options):
    """A training step compiled as one graph but for the draw; evaluation exported, at the model's size."""
    model, images = vit('lape', **options), torch.randn(3, 3, 12, 20)
    compiled = torch.compile(model, backend='aot_eager')
    outs = []
    for one in (model, compiled):
        seed_common(5)
        outs.append(one(images)[0])
    torch.testing.assert_close(*outs)
    exported = torch.export.export(model.eval(), (images,)).module()
    torch.testing.assert_close(exported(images)[0], model(images)[0])


def test_adapters_and_stages_read_it():
    for options in each(OPTIONS):
        kind = dict(type='learnable', **options)
        adapter = ViTAdapter(ARCH, 32, conv_inplane=8, deform_num_heads=2, pe_type=kind, pe_joining='lape')
        adapter(torch.randn(2, 3, 32, 64))[0].square().sum().backward()
        assert adapter.pos_embed.grad.any()
        for hierarchy in ('merge', 'stage'):
            stages = dict(embed_dims=12, depths=(1, 1), num_heads=(2, 2))
            swin = SwinTransformer(stages, 32, window_size=4, pe_type=kind, pe_joining='lape', pe_hierarchy=hierarchy)
            swin(torch.randn(2, 3, 32, 32))[0].square().sum().backward()
            assert all(getattr(swin, name).grad.any() for name in swin.pe_names)


def small_timm(*args, dynamic=False, **kwargs):
    import timm

    sizes = dict(img_size=(32, 48), embed_dim=16, depth=2, num_heads=2, num_classes=3)
    return timm.create_model('vit_tiny_patch16_224', **sizes, dynamic_img_size=dynamic, **kwargs)


def test_timms_models_read_it_in_every_joining():
    """With the default joining, what an image gets is timm's own output with the rows that it reads as the table."""
    joined = ('default', 'shared', 'unshared', 'lape', 'lape-shared', 'pvg', 'mpvg')
    cases = [(one, dynamic, ('batch', 'image')[dynamic]) for one in joined for dynamic in (False, True)]
    for joining, dynamic, draw in each([*cases, ('default', False, 'image'), ('mpvg', True, 'batch')]):
        pooled = dict(class_token=False, global_pool='avg', fc_norm=False) if joining.endswith('pvg') else {}
        kind = dict(type='learnable', rescale=2.0, draw=draw)
        model = add_lape(small_timm(dynamic=dynamic, **pooled), joining, kind).train()
        images = torch.randn(3, 3, *((48, 64) if dynamic else (32, 48)))
        out = model(images)
        assert not torch.allclose(out, model(images))
        out.sum().backward()
        tables = {name: value for name, value in model.named_parameters() if name.startswith('pos_embed')}
        assert tables and all(value.grad.any() for value in tables.values())
        if joining == 'default':
            grid = tuple(side // 16 for side in images.shape[-2:])
            own = small_timm(dynamic=dynamic).eval()
            own.load_state_dict(model.state_dict())
            assert torch.equal(model.eval()(images), own(images))
            seed_common(3)
            out = model.train()(images)
            seed_common(3)
            numbers = common_numbers(3 if draw == 'image' else None, CPU)
            rows = Learnable(rescale=2.0).read(model.pos_embed, (2, 3), grid, 1, 'bicubic', numbers)
            own.dynamic_img_size, own.patch_embed.grid_size = False, grid
            own.patch_embed.strict_img_size, own.patch_embed.flatten = False, True
            own.patch_embed.output_fmt = type(own.patch_embed.output_fmt).NCHW
            for number, expected in enumerate(out):
                own.pos_embed = torch.nn.Parameter(rows[number % len(rows)][None])
                torch.testing.assert_close(own(images[number : number + 1])[0], expected, atol=1e-5, rtol=1e-4)
    sizes = dict(embed_dim=16, depth=2, num_heads=2)
    backbone = TimmViT('eva02_tiny_patch14_224', img_size=28, pe_type=kind, model_args=sizes)
    backbone.train()(torch.randn(2, 3, 56, 42))[0].sum().backward()
    assert backbone.vit.pos_embed.grad.any()


OTHER_VALUES = dict(std=0.1, rescale=2.0, shift=0.25, draw='image', anew=True, jitter=2.0)
WITH = dict(rope=dict(coordinates='normalised'))
BESIDE = {('learnable', 'shift'): dict(rescale=2.0), ('learnable', 'draw'): dict(rescale=2.0)}


@pytest.mark.parametrize(
    ('kind', 'name'),
    [
        (name, argument)
        for name, kind in POSITION_ENCODINGS.module_dict.items()
        for argument in kind.training_arguments
        if argument in inspect.signature(kind).parameters
    ],
)
def test_weights_are_taken_by_models_with_other_arguments_of_training_and_of_other_grids(kind, name):
    shared = dict(type=kind, **WITH.get(kind, {}))
    changed = shared | {name: OTHER_VALUES[name]} | BESIDE.get((kind, name), {})
    plain, other = (VisionTransformer(ARCH, (12, 20), 4, pe_type=pe_type) for pe_type in (shared, changed))
    records = [one.checkpoint_adapter.record(one) for one in (plain, other)]
    assert not mismatch(records[0], records[1]) and not mismatch(records[1], records[0])
    assert records[1]['config']['pe_type'] == changed


def test_sinusoids_anew_are_those_of_a_model_for_that_grid():
    for kind in each(('sincos1d', 'sincos2d', 'sincos2d-moco', 'sine')):
        anew, own = (
            VisionTransformer(ARCH, size, 4, pe_type=dict(type=kind, anew=True), pe_joining='lape')
            for size in (12, 20)
        )
        own.load_state_dict({**anew.state_dict(), 'pos_embed': own.pos_embed})
        images = torch.randn(2, 3, 20, 20)
        torch.testing.assert_close(anew.eval()(images)[0], own.eval()(images)[0])
    table = Sincos2d().table((2, 3), 8, 1)
    resized = Sincos2d().resize(table, (2, 3), (4, 6), 1, 'bicubic')
    assert not torch.allclose(resized, Sincos2d(anew=True).resize(table, (2, 3), (4, 6), 1, 'bicubic'))
