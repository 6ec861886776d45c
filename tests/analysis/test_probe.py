"""The probe of position: its ridge against scikit-learn, models whose answer is known, and the command."""

import numpy as np
import pandas as pd
import pytest
import torch
from model_helpers import ARCH, new_vit
from PIL import Image
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from mmlape import remove_position
from mmlape.checkpoint.exact_loading import IMAGENET
from mmlape.checkpoint.opening import open_file
from mmlape.cli import main
from mmlape.models import ViTAdapter
from mmlape.projects.probe.models import Probed, find_images, open_probed, patch_pixels, read_images
from mmlape.projects.probe.probing import coordinates, read_layers

GRID = (4, 4)
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


def test_places_are_read_as_by_scikit_learn(images):
    """Ridge, the choice of its strength, and folds, of features of a patch and its place; the last one is constant."""
    pixels = read_images(find_images(images, 23), GRID, 8)

    def features(some):
        content = patch_pixels(some, GRID, 1).double() / 16
        places = coordinates(GRID).expand(len(some), -1, -1)
        both = torch.cat((content, places, (content[..., :2] * places).sin()), 2)
        weight = torch.from_numpy(np.random.default_rng(1).normal(size=(7, 6)))
        yield torch.cat((both @ weight + 50, torch.full_like(both[..., :1], 7)), 2).float()

    (layer,) = read_layers(['toy'], features, pixels, GRID)
    (x,) = (found.double().numpy() for found in features(pixels.float()))
    y = np.broadcast_to(np.stack(np.mgrid[:4, :4], 2).reshape(-1, 2) - 1.5, (*x.shape[:2], 2))
    fold, errors = np.arange(len(x)) % 5, np.zeros((5, 2))
    for test in range(5):
        of = [fold == test, fold == (test + 1) % 5, ~np.isin(fold, [test, (test + 1) % 5])]
        (x_test, x_val, x_train), (y_test, y_val, y_train) = (
            [values[chosen].reshape(-1, values.shape[2]) for chosen in of] for values in (x, y)
        )
        scaler = StandardScaler().fit(x_train)
        scaler.scale_[scaler.var_ < 1e-12] = np.inf
        for target in range(2):
            tried = [Ridge(alpha=10.0**power * len(x_train)) for power in range(-7, 3)]
            tried = [one.fit(scaler.transform(x_train), y_train[:, target]) for one in tried]
            apart = [((one.predict(scaler.transform(x_val)) - y_val[:, target]) ** 2).mean() for one in tried]
            found = tried[int(np.argmin(apart))].predict(scaler.transform(x_test))
            errors[test, target] = ((found - y_test[:, target]) ** 2).mean()
    mean = np.bincount(fold) / len(x) @ errors
    expected = [*(1 - mean / y[0].var(0)), (mean**0.5).mean()]
    np.testing.assert_allclose([layer.row, layer.column, layer.error], expected, rtol=1e-5)


def test_features_are_those_of_the_forward():
    model = new_vit(out_type='featmap', out_indices=(0, 1), with_cls_token=True).eval()
    one, image = probed(model), torch.rand(2, 3, 32, 40) * 255
    assert one.stages() == ['embedding', 'layer 0', 'layer 1', 'output']
    with torch.inference_mode():
        first, last = model(one.normalised(image))
    found = list(one.features(image))
    torch.testing.assert_close(found[1], first.flatten(2).mT)
    torch.testing.assert_close(found[3], last.flatten(2).mT)
    adapter = ViTAdapter(ARCH, 32, 8 * 2, deform_num_heads=3, interaction_indexes=[[0, 0], [1, 1]]).eval()
    assert len(list(probed(adapter).features(image))) == 4


def test_the_command_writes_a_table_and_a_figure(tmp_path, images, capsys):
    """Of an untrained config and of a checkpoint, whose control has random values."""
    one, weights = config(tmp_path), tmp_path / 'weights.pth'
    torch.save({'state_dict': new_vit(out_type='featmap').state_dict()}, weights)
    out = tmp_path / 'out'
    where = ['--images', str(images), '--out', str(out)]
    assert main(['probe', one, f'{one}@{weights}', *where, '--num-images', '12']) == 0
    assert 'tiny, untrained' in capsys.readouterr().out and (out / 'probe.png').is_file()
    table = pd.read_csv(out / 'probe.csv')
    assert list(table['model'].unique()) == ['tiny, untrained', 'tiny, weights'] and len(table) == 8
    trained = table[table['model'] == 'tiny, weights']
    assert (trained['R² random values'] != (trained['R² row'] + trained['R² column']) / 2).any()
    frozen = dict(frozen_stages=2, final_norm='every', remove_position=dict(how='ridge', rounds=1))
    two, file = config(tmp_path, name='two', **frozen), tmp_path / 'fitted.safetensors'
    assert main(['probe', two, *where, '--fit', str(file), '--remove', '3']) == 0
    removed = pd.read_csv(out / 'removed.csv')
    assert list(removed['taken out']) == ['nothing', '3 directions', 'ridge', 'mean']
    with torch.inference_mode():
        fitted = open_probed(f'{two}@{file}')
        pixels = read_images(find_images(images, 30), GRID, 8)
        seen = [fitted.backbone.patch_tokens(fitted.normalised(pixels.float()), [1])[0][0]]
        without = remove_position(seen, GRID, how='ridge', rounds=1)
        (given,) = fitted.backbone(fitted.normalised(pixels.float()))
    torch.testing.assert_close(given.flatten(2).mT, without(seen[0]))
    adapter = tmp_path / 'adapter.py'
    backbone = dict(
        type='mmlape.TimmViTAdapter',
        vit=dict(model_name='vit_tiny_patch16_224', frozen=True, remove_position=dict(how='ridge', rounds=1)),
        mode='read-only',
        deform_num_heads=3,
    )
    adapter.write_text(f'model = dict(backbone={backbone})\n')
    assert main(['probe', str(adapter), *where, '--size', '32', '--fit', str(file), '--num-images', '12']) == 0
    assert {key.split('.')[0] for key in open_file(file).tensors} == {'vit', 'removal'}  # what is trained starts anew
    assert main(['probe', one, *where, '--fit', str(file)]) == 1
    assert 'takes nothing out' in capsys.readouterr().err
    assert main(['probe', one, *where, '--size', '36']) == 1
    assert 'patches of 8 pixels: such as 40 40' in capsys.readouterr().err
