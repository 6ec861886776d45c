"""examples/explain_pe.py: the article's numbers, patches there and back, its claim on live models, and the script."""

import numpy as np
import pytest
import tiny
import torch
from explain_pe import article_matrices, from_patches, main, permutation_change, read_image, small_models, to_patches
from PIL import Image

from mmlape.models import VisionTransformer
from mmlape.projects import CeiT

SCRIPT = tiny.ROOT / 'examples/explain_pe.py'
ORDER = [15, 6, 8, 11, 7, 2, 3, 13, 4, 14, 12, 1, 5, 9, 10]


def test_the_articles_numbers():
    found = article_matrices(21)
    assert found['A'][0].tolist() == [1111, 1014, 895, 1003]
    np.testing.assert_array_equal(found['As'], found['A swapped'])
    np.testing.assert_array_equal(found['AVs'], found['AV swapped'])
    assert (np.random.RandomState(21).permutation(15) + 1).tolist() == ORDER


def test_patches_there_and_back():
    image = np.random.default_rng(0).random((60, 100))
    patches = to_patches(image, 20)
    np.testing.assert_array_equal(patches[7], image[20:40, 40:60])
    np.testing.assert_array_equal(from_patches(patches, (60, 100)), image)


def test_patches_are_cut_row_by_row():
    image = np.arange(24).reshape(4, 6)
    patches = to_patches(image, 2)
    assert patches[0].tolist() == [[0, 1], [6, 7]] and patches[1].tolist() == [[2, 3], [8, 9]]
    assert patches[3].tolist() == [[12, 13], [18, 19]]
    assert (from_patches(patches, (4, 6)) == image).all()


def test_the_change_is_the_largest_of_an_output(monkeypatch):
    (model, *_), image = small_models(0).values(), np.random.default_rng(0).random((80, 80))
    outputs = torch.tensor([[2.0, -8.0, 4.0], [2.5, -8.0, 2.0]], dtype=torch.float64)
    monkeypatch.setattr(model, 'forward', lambda x: (outputs,))
    assert permutation_change(model, image, 0) == 2 / 8


def test_the_claim():
    image = read_image(None, 20)
    assert image.shape == (60, 100)
    changes = {name.split()[-1]: permutation_change(model, image, 21) for name, model in small_models(21).items()}
    assert changes.pop('none') < 1e-12
    assert set(changes) == {'default', 'LaPE', 'only'} and min(changes.values()) > 1e-4
    arch = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=32)
    assert permutation_change(CeiT(dict(arch, stem_channels=8), 64, out_type='raw'), image, 3) > 1e-4
    for out_type in ('cls_token', 'featmap', 'raw'):
        assert permutation_change(VisionTransformer(arch, 32, 8, pe_type='none', out_type=out_type), image, 3) < 1e-12


def test_the_script_on_an_image_and_a_config(tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)).save(tmp_path / 'a.png')
    config = tiny.ROOT / 'configs/deit/deit-mini_1xb32-5e_mini-digits.py'
    printed = tiny.run(SCRIPT, tmp_path / 'a.png', config, '--patch', '16', '--out', 'e', cwd=tmp_path)
    assert config.stem[:20] in printed
    files = sorted((tmp_path / 'e').glob('*.png'))
    assert [file.name[:2] for file in files] == [f'{number:02}' for number in range(1, 12)]
    assert all(np.asarray(Image.open(file)).std() > 5 for file in files)


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        (['a.png', 'b.png'], 'give one image'),
        (['missing.png'], 'missing.png cannot be read as an image'),
        (['small.png', '--patch', '64'], 'small.png of 8x8 is smaller than --patch 64'),
        (['--patch', '0'], '--patch of 1 or more'),
    ],
)
def test_wrong_input(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Image.new('L', (8, 8)).save('small.png')
    assert main([*arguments, '--out', 'e']) == 1
    assert words in capsys.readouterr().err
