"""Position taken out of patch tokens: formulas a second time, their properties, and frozen backbones that do it."""

import copy
import re

import numpy as np
import pytest
import torch
from each import each
from mmengine.model import ExponentialMovingAverage
from model_helpers import ARCH, new_vit, randomise
from sklearn.linear_model import Ridge

from mmlape import TimmViT, TimmViTAdapter, VisionTransformer, remove_position
from mmlape.checkpoint import load_weights
from mmlape.checkpoint.converting import write_tensors
from mmlape.checkpoint.metadata import metadata_of
from mmlape.errors import CheckpointError, ConfigError
from mmlape.lab.export.writing import Form, export_graph
from mmlape.models import ViTPyramid
from mmlape.projects.probe.probing import read_layers

GRID = (4, 5)
WAYS = (dict(how='constant', directions=3), dict(how='ridge', rounds=2), dict(how='mean'))
TIMM = dict(img_size=32, patch_size=8, model_args=dict(embed_dim=24, depth=2, num_heads=3))


def tokens(count=7, dims=12, seed=0):
    """Content beside places: (count, N, dims), in float64."""
    rng = np.random.default_rng(seed)
    places = np.stack(np.meshgrid(*map(np.arange, GRID), indexing='ij'), 2).reshape(-1, 2)
    shown = np.concatenate((places, np.sin(places)), 1) @ np.random.default_rng(9).normal(size=(4, dims))
    return torch.from_numpy(rng.normal(size=(count, len(places), dims)) + shown + 5)


def own(**options):
    return randomise(
        VisionTransformer(
            ARCH, 32, 8, out_type='raw', out_indices=(0, 1), frozen_stages=2, final_norm='every', **options
        )
    ).eval()


def timm(**options):
    return TimmViT('vit_tiny_patch16_224', out_indices=(1, 0), out_type='raw', frozen=True, **TIMM, **options).eval()


def images(count=1, side=32):
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(count + side))


def prepared(build, way):
    """Return a backbone that takes position out, and the same one that does not."""
    model = build(remove_position=way)
    if way['how'] != 'constant':
        model.fit_removal(images(9).split(4), (32, 32))
    plain = build()
    plain.load_state_dict({key: value for key, value in model.state_dict().items() if 'removal' not in key})
    return model, plain


@pytest.mark.parametrize('count', [0, 1, 4, 12])
def test_directions_of_a_constant_image_are_its_first_singular_vectors(count):
    """Of tokens at unit length, centred: what INSID3 takes out, by another decomposition."""
    constant, some = tokens(1), tokens(seed=1)
    unit = (constant[0] / constant[0].norm(dim=1, keepdim=True)).numpy()
    kept = np.linalg.svd((unit - unit.mean(0)).T)[0][:, count:]
    without = remove_position([constant.numpy()], GRID, how='constant', directions=count)
    torch.testing.assert_close(without(some), some @ torch.from_numpy(kept @ kept.T), rtol=0, atol=1e-12)
    at_unit = remove_position([constant], GRID, how='constant', directions=count, unit_length=True)
    if count < 12:
        torch.testing.assert_close(at_unit(some).norm(dim=2), torch.ones(some.shape[:2]).double())
        torch.testing.assert_close(at_unit(some), at_unit(some / some.norm(dim=2, keepdim=True)))


def test_ridges_are_those_of_scikit_learn():
    """Of each round on what is left, and the projection that leaves out what they read."""
    seen = tokens(20)
    x, basis = seen.flatten(0, 1).numpy(), np.zeros((12, 0))
    sides = np.meshgrid(*(np.linspace(-1, 1, side) for side in GRID), indexing='ij')
    y = np.tile(np.stack(sides, 2).reshape(-1, 2), (20, 1))
    for _ in range(2):
        z = x - x @ basis @ basis.T
        weight = Ridge(alpha=len(z) * z.var(0).mean()).fit(z, y).coef_.T
        basis = np.linalg.svd(np.concatenate((basis, weight), 1), full_matrices=False)[0]
    without = remove_position(seen.split(6), GRID, how='ridge', rounds=2)
    expected = seen - seen @ torch.from_numpy(basis @ basis.T)
    torch.testing.assert_close(without(seen), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize('way', WAYS, ids=lambda way: way['how'])
def test_what_is_taken_out_is_gone(way):
    """A fresh probe reads no more than of content alone, and a projection is one."""
    seen, fresh = tokens(400), tokens(100, seed=1)
    constant = way['how'] == 'constant'
    without = remove_position(
        [seen.mean(0, keepdim=True)] if constant else [seen], GRID, **way | (dict(directions=9) if constant else {})
    )
    numbers = torch.arange(len(fresh))[:, None]
    before, after = read_layers(
        ['before', 'after'],
        lambda some: (use(fresh[some[:, 0].long()]) for use in (torch.clone, without)),
        numbers,
        GRID,
    )
    assert before.r2 > 0.8 and after.r2 < 0.1
    if way['how'] == 'mean':
        torch.testing.assert_close(without(seen).mean(0), torch.zeros(20, 12).double(), rtol=0, atol=1e-12)
    else:
        torch.testing.assert_close(without(without(fresh)), without(fresh), rtol=0, atol=1e-12)


@pytest.mark.parametrize('build', [own, timm])
def test_a_frozen_backbone_returns_its_patches_without(build, tmp_path):
    """Of each layer, with the tokens before them; also from its file, in a graph, and on another canvas or refused."""
    for way in each(WAYS):
        model, plain = prepared(build, way)
        x = images(2)
        outs = model(x)
        for layer, out, before in zip(model.out_indices, outs, plain(x)):
            if way['how'] == 'constant':
                black = torch.tensor(model.removal.value)[:, None, None].expand(1, 3, 32, 32)
                fitted = [plain(black)[model.out_indices.index(layer)][:, 1:]]
            else:
                fitted = [plain(some)[model.out_indices.index(layer)][:, 1:] for some in images(9).split(4)]
            without = remove_position(fitted, (4, 4), **way)
            torch.testing.assert_close(out, torch.cat((before[:, :1], without(before[:, 1:])), 1), rtol=0, atol=1e-5)
        file = tmp_path / f'{build.__name__}-{way["how"]}.safetensors'
        write_tensors(model.state_dict(), file, metadata=metadata_of(model))
        again = build(remove_position=way, init_cfg=dict(type='Pretrained', checkpoint=str(file)))
        again.init_weights()
        assert not again.load_report.new and not again.load_report.warnings
        assert all(torch.equal(one, other) for one, other in zip(again(x), outs))
        if (build is timm) == (way['how'] == 'constant'):  # each way in one graph
            assert export_graph(again, Form((32, 32)), tmp_path / 'model.onnx') < 1e-4
        if way['how'] != 'constant':
            with pytest.raises(CheckpointError, match='unexpected: removal'):
                load_weights(plain, file)
        if way['how'] == 'constant':
            large = images(1, 48)
            fresh = build(remove_position=way)
            fresh.load_state_dict(model.state_dict())
            torch.testing.assert_close(again(large), fresh(large))
            assert fresh.removal.canvas.tolist() == [48, 48]
        else:
            with pytest.raises(ConfigError, match='of images of 32x32, not of 48x48: `mmlape probe'):
                again(images(1, 48))
            with pytest.raises(ConfigError, match=f'complete patches, such as by .*={model.patch_size}'):
                again(images(1, 50))


@pytest.mark.parametrize('build', [own, timm])
def test_other_weights_have_other_directions(build):
    for way in each(WAYS[:2]):
        model, other = prepared(build, way)[0], build()
        model(images())
        load_weights(model, other.state_dict())
        assert model.removal.canvas.tolist() == [0, 0]
        if way['how'] == 'ridge':
            with pytest.raises(ConfigError, match='of no images yet'):
                model(images())
        else:
            fresh = build(remove_position=way)
            fresh.load_state_dict(other.state_dict(), strict=False)
            torch.testing.assert_close(model(images()), fresh(images()))
            with pytest.raises(ConfigError, match='run the model once'):
                torch.jit.trace(model, images(1, 40))


@pytest.mark.parametrize('build', [own, timm])
def test_directions_belong_to_weights_and_canvas_whoever_writes_them(build):
    """Buffers of another process are of its last canvas, averaged weights have their own; a head's change none."""
    x, (model, _) = images(), prepared(build, WAYS[0])
    average = ExponentialMovingAverage(model, 0.5, update_buffers=True)
    other, before = copy.deepcopy(model), model(x)
    for side in (48, 40, 32):
        other(images(1, side))
        average.update_parameters(other)
    torch.testing.assert_close(average(x), before)
    other(images(1, 48))
    for mine, theirs in zip(model.buffers(), other.buffers()):
        mine.copy_(theirs)
    torch.testing.assert_close(model(x), before)
    model = prepared(build, WAYS[1])[0]
    before = model(x)
    whole = torch.nn.ModuleDict(dict(backbone=model, head=torch.nn.Linear(2, 2)))
    whole.load_state_dict({'head.weight': torch.ones(2, 2)}, strict=False)
    torch.testing.assert_close(model(x), before, rtol=0, atol=0)


def test_a_read_only_adapter_reads_patches_without():
    vit = dict(model_name='vit_tiny_patch16_224', frozen=True, img_size=64, model_args=TIMM['model_args'])
    models = {}
    for count in (None, 0, 4):
        torch.manual_seed(0)
        removal = {} if count is None else dict(remove_position=dict(how='constant', directions=count))
        models[count] = TimmViTAdapter(
            vit | removal, 'read-only', layers=(0, 1), vit_feature_source='last', deform_num_heads=3
        ).eval()
    x = images(2, 64)
    outs = {count: model(x)[3] for count, model in models.items()}
    torch.testing.assert_close(outs[0], outs[None])
    assert (outs[4] - outs[None]).abs().max() > 1e-3
    model = models[4]
    black = torch.tensor(model.removal.value)[:, None, None].expand(1, 3, 64, 64)
    for layer in (0, 1):
        tokens, state, hw = model.embed(x)
        tokens, state = model.run_layers(tokens, state, hw, 0, layer + 1)
        without = remove_position(model.patch_tokens(black, [layer])[0], (4, 4), how='constant', directions=4)
        expected = without(model.patch_tokens(x, [layer])[0][0])
        torch.testing.assert_close(model.read_patches(tokens, state, layer), expected, rtol=0, atol=1e-5)


def test_what_cannot_be_is_refused():
    for options, reason in each(
        [
            (dict(how='noise'), "unknown remove_position.how='noise'"),
            (dict(how='mean', rounds=2), "'mean' has no rounds"),
            (dict(how='constant', directions=16), '16 patches of 24 channels have 15'),
            (dict(how='constant', value=(0, 0)), 'value=(0, 0): give that of each of 3 channels'),
        ]
    ):
        with pytest.raises(ConfigError, match=re.escape(reason)):
            timm(remove_position=options)(images())
    with pytest.raises(ConfigError, match='set the backbone.s img_size'):
        timm(remove_position=dict(how='mean')).fit_removal(images(2, 48).split(1), (48, 48))
    with pytest.raises(ConfigError, match='ViTPyramid works with remove_position=None only'):
        ViTPyramid(ARCH, 32, frozen_stages=2, remove_position=dict(how='mean'))
    for trained in each([lambda **kw: new_vit(**kw), lambda **kw: TimmViT('vit_tiny_patch16_224', **TIMM, **kw)]):
        with pytest.raises(ConfigError, match='is trained: freeze the backbone'):
            trained(remove_position=dict(how='mean'))
