"""examples/explain_pe.py: the article's numbers, and the script."""

import numpy as np
import tiny
from explain_pe import article_matrices
from PIL import Image

SCRIPT = tiny.ROOT / 'examples/explain_pe.py'
ORDER = [15, 6, 8, 11, 7, 2, 3, 13, 4, 14, 12, 1, 5, 9, 10]


def test_the_articles_numbers():
    found = article_matrices(21)
    assert found['A'][0].tolist() == [1111, 1014, 895, 1003]
    np.testing.assert_array_equal(found['As'], found['A swapped'])
    np.testing.assert_array_equal(found['AVs'], found['AV swapped'])
    assert (np.random.RandomState(21).permutation(15) + 1).tolist() == ORDER


def test_the_script_on_an_image_and_a_config(tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)).save(tmp_path / 'a.png')
    config = tiny.ROOT / 'configs/deit/deit-mini_1xb32-5e_mini-digits.py'
    printed = tiny.run(SCRIPT, tmp_path / 'a.png', config, '--patch', '16', '--out', 'e', cwd=tmp_path)
    assert config.stem[:20] in printed
    files = sorted((tmp_path / 'e').glob('*.png'))
    assert [file.name[:2] for file in files] == [f'{number:02}' for number in range(1, 12)]
    assert all(np.asarray(Image.open(file)).std() > 5 for file in files)
