"""The probe of position: its ridge against scikit-learn, models whose answer is known, and the command."""

import json

import numpy as np
import pytest
import torch
from model_helpers import ARCH, new_vit
from PIL import Image
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from mmlape.cli import main
from mmlape.lab.decoding import decode, encode
from mmlape.models import ViTAdapter
from mmlape.projects.probe import probing
from mmlape.projects.probe.images import find_images, patch_pixels, read_canvases
from mmlape.projects.probe.measure import FOLDS, Plan, coordinates, measure
from mmlape.projects.probe.models import Probed
from mmlape.projects.probe.probing import Probe, Settings, probe_models, read_probes
from mmlape.weights.loading import IMAGENET

GRID = (4, 4)
PLAN = Plan(GRID, (1,), (1.5, 2.0))
CONFIG = """
default_scope = 'mmengine'
model = dict(
    data_preprocessor=dict(mean=[100.0, 110.0, 120.0], std=[50.0, 60.0, 70.0], bgr_to_rgb={rgb}),
    backbone=dict(
        type='mmlape.{kind}',
        arch=dict(embed_dims=24, num_layers=2, num_heads=3, feedforward_channels=48),
        img_size=32, patch_size=8, out_type='featmap', **{more},
    ),
)
"""


@pytest.fixture(scope='module')
def images(tmp_path_factory):
    """Images of noise, in which no content tells a place."""
    folder = tmp_path_factory.mktemp('images')
    rng = np.random.default_rng(0)
    for number in range(30):
        Image.fromarray(rng.integers(0, 256, (64, 72, 3), np.uint8)).save(folder / f'{number:02}.png')
    return folder


def config(folder, kind='VisionTransformer', name='tiny', rgb=True, **more):
    path = folder / f'{name}.py'
    path.write_text(CONFIG.format(kind=kind, more=more, rgb=rgb))
    return str(path)


def probed(model, name='model'):
    return Probed(name, model.eval(), IMAGENET)


def layers_of(model, images, plan=PLAN):
    canvases = read_canvases(find_images(images, 30), plan.largest(), 8, 3)
    return measure(probed(model), canvases, plan, lambda count, grid: None)


class Toy:
    """Features of a patch and its place, by a fixed map; the last channel is constant."""

    def stages(self):
        return ['toy']

    def features(self, images):
        grid = images.shape[2] // 8, images.shape[3] // 8
        content = patch_pixels(images, grid, 1).double() / 16
        places = coordinates(grid).expand(len(images), -1, -1)
        both = torch.cat((content, places, (content[..., :2] * places).sin()), 2)
        weight = torch.from_numpy(np.random.default_rng(1).normal(size=(7, 6)))
        yield torch.cat((both @ weight + 50, torch.full_like(both[..., :1], 7)), 2).float()


def by_scikit_learn(canvases, plan):
    """Return readings, share of the place, changes and canvases as `measure` does, from all features at once."""

    def features(images, grid, shift=0):
        (found,) = Toy().features(canvases.windows(images, grid, shift))
        return found.double().unflatten(1, grid).numpy()

    def scaled(values):
        return (values - scaler.mean_) / np.where(scaler.var_ > 1e-12, scaler.scale_, np.inf)

    def change(a, b):
        a, b = (scaled(values).reshape(-1, 7) for values in (a, b))
        cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        return ((a - b) ** 2).sum(1).mean() / 12, cosine.mean()

    count, (rows, columns) = len(canvases), plan.grid
    x = features(range(count), plan.grid)
    y = np.broadcast_to(
        np.stack(np.mgrid[:rows, :columns], 2) - [(rows - 1) / 2, (columns - 1) / 2], (*x.shape[:3], 2)
    )
    fold = np.arange(count) % 5
    errors, probes = np.zeros((5, 2)), {}
    for test in reversed(range(5)):
        of = [np.isin(fold, [test]), fold == (test + 1) % 5, ~np.isin(fold, [test, (test + 1) % 5])]
        (x_test, x_val, x_train), (y_test, y_val, y_train) = (
            [values[chosen].reshape(-1, values.shape[3]) for chosen in of] for values in (x, y)
        )
        scaler = StandardScaler().fit(x_train)
        for target in range(2):
            tried = [Ridge(alpha=10.0**power * len(x_train)) for power in range(-7, 3)]
            tried = [one.fit(scaled(x_train), y_train[:, target]) for one in tried]
            probes[target] = min(tried, key=lambda one: ((one.predict(scaled(x_val)) - y_val[:, target]) ** 2).mean())
            errors[test, target] = ((probes[target].predict(scaled(x_test)) - y_test[:, target]) ** 2).mean()
    totals, weights = y[0].reshape(-1, 2).var(0), np.bincount(fold) / count
    z = (x - x.mean((0, 1, 2))) / np.where(x.std((0, 1, 2)) > 1e-6, x.std((0, 1, 2)), np.inf)
    between = (z.mean(0) ** 2).sum(2).mean() / 6
    expected = [1 - weights @ errors / totals, 1 - errors.max(0) / totals, 1 - errors.min(0) / totals]
    expected += [(weights @ errors) ** 0.5, (between - 1 / count) / (1 - 1 / count)]
    first = np.flatnonzero(fold == 0)  # which the last probe has not seen
    base, moved, large = features(first, plan.grid), features(first, plan.grid, 1), features(first, (8, 8))
    window = canvases.windows(first, plan.grid).roll((8, 8), (2, 3))
    rolled = np.roll(next(Toy().features(window)).double().unflatten(1, plan.grid).numpy(), (-1, -1), (1, 2))
    expected += [change(base[:, 1:, 1:], moved[:, :-1, :-1]), change(base, rolled)]
    expected += [change(base, large[:, 2:6, 2:6])]
    places = np.stack(np.mgrid[:8, :8], 2).reshape(-1, 2) - 3.5
    for scale, offset in ((0.5, 0), (1, 2)):
        read = np.stack([probes[target].predict(scaled(large.reshape(-1, 7))) for target in range(2)], 1)
        apart = (read.reshape(-1, 64, 2) - scale * places - offset) ** 2
        expected.append((1 - apart.mean((0, 1)) / (scale * places).var(0)).mean())
    return expected


def test_a_model_is_measured_as_by_scikit_learn(images):
    """Ridge, the choice of its strength, folds, standardised channels, what moves, rolls and lies on a canvas."""
    plan = Plan(GRID, (1,), (2.0,))
    canvases = read_canvases(find_images(images, 23), plan.largest(), 8, 3)
    (layer,) = measure(Toy(), canvases, plan, lambda count, grid: None)
    r2, low, high, error, share, moved, rolled, content, of_side, from_corner = by_scikit_learn(canvases, plan)
    for number, reading in enumerate((layer.row, layer.column)):
        found = (reading.r2, reading.low, reading.high, reading.error)
        np.testing.assert_allclose(found, [r2[number], low[number], high[number], error[number]], rtol=1e-5)
    assert layer.share == pytest.approx(share, rel=1e-5) and 0.05 < share < 0.95
    changes = (layer.shift['1'], layer.roll['1'], layer.canvas['2'].content)
    for change, (square, cosine) in zip(changes, (moved, rolled, content)):
        assert (change.distance, change.cosine) == pytest.approx((square**0.5, cosine), rel=1e-5)
    found = layer.canvas['2']
    assert (found.share_of_side, found.from_corner) == pytest.approx((of_side, from_corner), rel=1e-5)


def test_known_orders_come_out(images):
    torch.manual_seed(0)
    found = {}
    for pe_type in ('none', 'cpe', 'learnable'):
        model = new_vit(pe_type=pe_type, out_type='featmap', img_size=32)
        with torch.no_grad():
            if pe_type == 'learnable':
                model.pos_embed.normal_(0, 3)
            model.patch_embed.proj.bias.normal_()  # of which a convolution with padding makes borders
        found[pe_type] = layers_of(model, images)
    none, cpe, learnable = (layers[-1].r2 for layers in found.values())
    assert none < 0.1 < cpe < learnable
    assert [layer.name for layer in found['none']] == ['embedding', 'layer 0', 'layer 1', 'output']
    assert max(layer.roll['1'].distance for layer in found['none']) < 1e-4, 'attention alone knows no order'
    assert min(layer.roll['1'].distance for layer in found['learnable']) > 0.1
    assert found['none'][0].shift['1'].distance < 1e-6 < found['none'][-1].shift['1'].distance
    assert found['none'][0].canvas['2'].content.distance < 1e-6
    assert found['none'][0].canvas['2'].content.cosine == pytest.approx(1)


def test_features_are_those_of_the_forward():
    model = new_vit(out_type='featmap', out_indices=(0, 1), with_cls_token=True).eval()
    one, image = probed(model), torch.rand(2, 3, 32, 40) * 255
    with torch.inference_mode():
        first, last = model(one._normalised(image))
    found = list(one.features(image))
    torch.testing.assert_close(found[1], first.flatten(2).mT)
    torch.testing.assert_close(found[3], last.flatten(2).mT)
    adapter = ViTAdapter(ARCH, 32, 8 * 2, deform_num_heads=3, interaction_indexes=[[0, 0], [1, 1]]).eval()
    assert len(list(probed(adapter).features(image))) == 4


def test_the_command_continues_and_compares(tmp_path, images, capsys, monkeypatch):
    one, other = config(tmp_path), config(tmp_path, name='lape', pe_joining='lape')
    out = tmp_path / 'out'
    line = ['probe', one, '--images', str(images), '--out', str(out), '--shifts', '1', '--num-images', '12']
    assert main([*line]) == 0
    assert 'tiny, untrained' in capsys.readouterr().out
    fresh = json.loads((out / 'probe.json').read_text())
    calls = []

    def counted(model, *args):
        calls.append(model.name)
        return measure(model, *args)

    monkeypatch.setattr(probing, 'measure', counted)
    assert main([*line, '--compare', other]) == 0
    assert calls == ['lape, untrained']
    assert 'measured before' in capsys.readouterr().out
    both = json.loads((out / 'probe.json').read_text())
    assert both['models'][0] == fresh['models'][0] and len(both['models']) == 2
    page = (out / 'index.html').read_text()
    assert page.count('data:image/png') == 3 and 'lape, untrained' in page
    read = read_probes(out / 'probe.json')
    assert [decode(Probe, encode(probe), out) for probe in read] == read
    again = probe_models([one], Settings(images, 12, None, (1,), (1.5,)), out)
    assert calls[1:] == ['tiny, untrained'] and [*again[0].layers[0].canvas] == ['1.5'], 'another plan'


def test_weights_have_a_control_of_random_values(tmp_path, images):
    model = new_vit(out_type='featmap')
    path = tmp_path / 'weights.pth'
    torch.save({'state_dict': model.state_dict()}, path)
    text = f'{config(tmp_path)}@{path}'
    (found,) = probe_models([text], Settings(images, 10, None, (1,), ()), tmp_path / 'out')
    assert not found.is_random and found.random is not None
    assert found.random[-1].r2 != found.layers[-1].r2
    (plain,) = probe_models([text], Settings(images, 10, None, (1,), (), False), tmp_path / 'out')
    assert plain.random is None and plain.layers == found.layers and plain.images == 2 * FOLDS
