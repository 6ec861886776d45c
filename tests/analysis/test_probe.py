"""The probe of position: its ridge against scikit-learn, models whose answer is known, and the command."""

import json

import numpy as np
import pytest
import torch
from config_helpers import ROOT
from model_helpers import ARCH, SWIN_ARCH, new_vit
from PIL import Image
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.preprocessing import StandardScaler

from mmlape.cli import main
from mmlape.errors import ConfigError
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.lab.runs.decoding import decode, encode
from mmlape.models import ViTAdapter
from mmlape.models.position import AbsolutePosition, AttentionPosition
from mmlape.projects.probe import probing
from mmlape.projects.probe.images import Canvases, find_images, patch_pixels, read_canvases
from mmlape.projects.probe.measure import FOLDS, Plan, _Statistics, coordinates, measure
from mmlape.projects.probe.models import Probed, open_probed
from mmlape.projects.probe.page import summary_table
from mmlape.projects.probe.probing import Probe, Settings, probe_models, read_probes
from mmlape.projects.probe.ridge import Moments, fit, squared_error, variance
from mmlape.tables import markdown_table
from mmlape.weights.normalisation import IMAGENET

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


def features_and_targets(count=300, width=12, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, width)) @ rng.normal(size=(width, width)) * 0.1 + 50
    x[:, 3] = 7.0  # a constant channel
    y = x[:, :2] * [3, -2] + rng.normal(size=(count, 2)) + [1, 2]
    return torch.from_numpy(x), torch.from_numpy(y)


def moments(x, y, origin=None):
    found = Moments(x.mean(0) if origin is None else origin, y.shape[1])
    found.add(x, y)
    return found


def test_ridge_is_scikit_learns_and_so_is_the_choice_of_its_strength():
    (x, y), (x_val, y_val), (x_test, y_test) = (features_and_targets(seed=seed) for seed in range(3))
    strengths = (1e-6, 1e-3, 0.1, 10.0)
    train = moments(x, y)
    val, test = moments(x_val, y_val, train.origin), moments(x_test, y_test, train.origin)
    reader = fit(train, val, strengths)
    scaler = StandardScaler().fit(x)
    for target in range(2):
        found = {
            strength: Ridge(alpha=strength * len(x)).fit(scaler.transform(x), y[:, target]) for strength in strengths
        }
        errors = {
            strength: ((one.predict(scaler.transform(x_val)) - y_val[:, target].numpy()) ** 2).mean()
            for strength, one in found.items()
        }
        best = min(errors, key=errors.get)
        assert reader.strength[target] == best
        predicted = found[best].predict(scaler.transform(x_test))
        np.testing.assert_allclose(reader.read(x_test)[:, target], predicted, rtol=1e-9)
        r2 = 1 - squared_error(test, reader)[target] / variance(test)[target]
        assert float(r2) == pytest.approx(r2_score(y_test[:, target], predicted), rel=1e-9)


def test_moments_of_parts_are_those_of_all():
    x, y = features_and_targets()
    complete = moments(x, y)
    added = moments(x[:70], y[:70], complete.origin) + moments(x[70:], y[70:], complete.origin)
    torch.testing.assert_close(added.second, complete.second)
    for found, expected in zip(added.statistics(), (x.mean(0), x.std(0, correction=0))):
        kept = [number for number in range(12) if number != 3]
        torch.testing.assert_close(found[kept], expected[kept])


def test_the_share_is_that_of_an_analysis_of_variance():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(20, 16, 5, generator=generator) + torch.randn(16, 5, generator=generator)
    statistics = _Statistics(values)
    for first in range(0, 20, 7):
        some = list(range(first, min(20, first + 7)))
        statistics.add(values[some], some, coordinates(GRID))
    x = values.double().numpy()
    z = (x - x.mean((0, 1))) / x.std((0, 1))
    within = z.var(0, ddof=1).mean()
    expected = (z.mean(0) ** 2).mean() - within / 20
    layer, _ = statistics.measured('x')
    assert layer.share == pytest.approx(expected, rel=0.02) and 0.3 < layer.share < 0.7


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


class Ramp(AbsolutePosition):
    """Row and column in the first channels, continued on a larger grid, or stretched to it."""

    def __init__(self, stretched):
        self.stretched = stretched

    def table(self, grid, embed_dims, num_prefix):
        table = torch.zeros(1, num_prefix + grid[0] * grid[1], embed_dims)
        table[0, num_prefix:, :2] = 40 * torch.cartesian_prod(*(torch.arange(float(side)) for side in grid))
        return table

    def resize(self, table, src, dst, num_prefix, mode):
        factors = [old / new if self.stretched else 1 for old, new in zip(src, dst)]
        resized = self.table(dst, table.shape[2], num_prefix)
        offset = torch.tensor([40 * (factor - 1) / 2 for factor in factors])
        resized[0, num_prefix:, :2] = resized[0, num_prefix:, :2] * torch.tensor(factors) + offset
        return resized


class Stuck(AttentionPosition):
    """A bias of one grid, which nothing resizes."""

    def logits(self, attn, q, k, grid):
        return torch.zeros(1, 1, 17, 17)


@pytest.fixture
def own_kinds():
    POSITION_ENCODINGS.import_from_location()
    for kind in (Ramp, Stuck):
        POSITION_ENCODINGS.register_module(f'probe-{kind.__name__.lower()}', module=kind)
    yield
    for kind in (Ramp, Stuck):
        del POSITION_ENCODINGS.module_dict[f'probe-{kind.__name__.lower()}']


def test_a_table_that_is_stretched_and_one_that_goes_on_are_told_apart(images, own_kinds):
    for stretched in (True, False):
        model = new_vit(pe_type=dict(type='probe-ramp', stretched=stretched), out_type='featmap')
        layer = layers_of(model, images)[0]
        assert layer.r2 > 0.95 and layer.error < 0.3
        for size in ('1.5', '2'):
            share, corner = layer.canvas[size].share_of_side, layer.canvas[size].from_corner
            assert (share if stretched else corner) > 0.95
            assert abs(share - corner) > 0.3


def test_the_page_of_results_has_the_numbers_of_its_file():
    results = ROOT / 'docs' / 'results'
    probes = read_probes(results / 'probe.json')
    assert markdown_table(summary_table(probes)) in (results / 'probe.md').read_text()


def test_windows_are_parts_of_one_canvas():
    pixels = np.arange(10 * 8 * 10 * 8).reshape(1, 80, 80, 1)
    canvases = Canvases(pixels, 8, 0, [])
    window, moved = (canvases.windows([0], GRID, shift) for shift in (0, 2))
    assert window.shape == (1, 1, 32, 32) and window[0, 0, 0, 0] == pixels[0, 24, 24, 0]
    assert torch.equal(window[:, :, 16:, 16:], moved[:, :, :16, :16])
    large = canvases.windows([0], (8, 8))
    assert torch.equal(large[:, :, 16:48, 16:48], window), 'the same content is in its middle'
    cells = patch_pixels(window, GRID, 1)
    assert cells[0, 5, 0] == window[0, 0, 8:16, 8:16].mean()


def test_channels_and_normalisation_are_the_configs(tmp_path):
    rgb, bgr = (open_probed(config(tmp_path, name=str(flag), rgb=flag)) for flag in (True, False))
    image = torch.rand(1, 3, 32, 32) * 255
    assert rgb.normalisation.mean == (100.0, 110.0, 120.0) and rgb.is_random
    expected = (image - torch.tensor([100.0, 110.0, 120.0])[:, None, None]) / torch.tensor([50.0, 60.0, 70.0])[
        :, None, None
    ]
    torch.testing.assert_close(rgb._normalised(image), expected)
    torch.testing.assert_close(bgr._normalised(image.flip(1)), expected)


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
    taken = tmp_path / 'taken'
    assert probe_models([str(out / 'probe.json')], Settings(images), taken) == read_probes(taken / 'probe.json')
    assert json.loads((taken / 'probe.json').read_text()) == both
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


@pytest.mark.parametrize(
    'text, message',
    [
        ('timm/resnet50', 'resnet50 is no plain ViT but a ResNet'),
        ('deit-tinny', 'neither a file, nor the folder of a run, nor a name'),
        ('deit-tiny@nothing.pth', 'nothing.pth: there is no such file'),
    ],
)
def test_a_model_without_patches_is_one_line(text, message, images, tmp_path, capsys):
    assert main(['probe', text, '--images', str(images), '--out', str(tmp_path / 'out')]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count('\n') == 1 and not (tmp_path / 'out').exists()


def test_a_model_of_several_grids_is_refused(tmp_path):
    path = tmp_path / 'swin.py'
    path.write_text(f"model = dict(backbone=dict(type='mmlape.SwinTransformer', arch={SWIN_ARCH}, img_size=32))")
    with pytest.raises(ConfigError, match='SwinTransformer has no patch tokens on one grid in all layers'):
        open_probed(str(path))


def test_wrong_input_is_one_line_before_any_time_is_spent(tmp_path, images, capsys, own_kinds):
    tiny, stuck = config(tmp_path), config(tmp_path, name='stuck', pe_type='probe-stuck')
    few = tmp_path / 'few'
    few.mkdir()
    (few / 'a.png').write_bytes(b'')
    broken = tmp_path / 'broken'
    broken.mkdir()
    for number in range(12):
        (broken / f'{number}.png').write_bytes(b'no image')
    none = tmp_path / 'none.json'
    none.write_text('{"format": 0}')
    for words, message in {
        (stuck,): 'cannot be moved to 6 x 6 patches',
        (tiny, '--images', str(few)): '1 images, and a probe needs 10 or more',
        (tiny, '--images', str(broken)): '0 images can be read',
        (tiny, '--images', str(tmp_path / 'absent')): 'no such folder of images',
        (tiny, '--size', '33'): 'give multiples of 8, such as 32',
        (tiny, '--shifts', '2'): 'a shift must leave more than half',
        (tiny, '--compare', tiny): 'is given twice',
        (str(none),): 'no probe.json of this version',
    }.items():
        given = [*words] if '--images' in words else [*words, '--images', str(images)]
        assert main(['probe', *given, '--out', str(tmp_path / 'out')]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count('\n') == 1, error
    (broken / 'c.png').write_bytes((images / '00.png').read_bytes())
    assert main(['probe', stuck, '--images', str(images), '--out', str(tmp_path / 'out'), '--no-canvas']) == 0
