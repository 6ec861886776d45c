"""Loading transforms whose errors name the file, also from worker processes."""

import re

import numpy as np
import pytest
from data_helpers import ade_cfg, build
from PIL import Image

from mmlape.errors import DataError
from mmlape.lab.datasets.images import lacks_end
from mmlape.lab.datasets.transforms import guard_loading
from mmlape.lab.engine.runner import plain_worker_errors


def test_truncated_files_are_recognised_by_their_end(mini):
    """OpenCV 4 fills the missing part with grey, without a warning."""
    for path in (mini / 'coco/train2017/000000000001.jpg', min((mini / 'digits/val/one').iterdir())):
        data = path.read_bytes()
        assert not lacks_end(data)
        assert not lacks_end(data + b' made by a camera')
        assert lacks_end(data[:-300])


@pytest.mark.parametrize(
    ('workers', 'what', 'named'),
    [
        (2, 'image', ''),
        pytest.param(0, 'label map', '', marks=pytest.mark.release),
        (0, 'label id', 'id 40, .*ids 1 to 12'),
        pytest.param(0, 'image', '', marks=pytest.mark.release),
        pytest.param(2, 'label map', '', marks=pytest.mark.release),
        pytest.param(2, 'label id', 'id 40, .*ids 1 to 12', marks=pytest.mark.release),
    ],
)
def test_guarded_loading_names_the_file_from_a_worker(mini, workers, what, named):
    from torch.utils.data import DataLoader

    image, label_map = (
        mini / 'ade/images/training/ADE_train_00000005.jpg',
        mini / 'ade/annotations/training/ADE_train_00000005.png',
    )
    cfg = ade_cfg(mini / 'ade')
    guard_loading(cfg)
    loader = DataLoader(build(cfg), batch_size=2, num_workers=workers, collate_fn=len)
    assert sum(loader) == 6
    if what == 'image':
        image.write_bytes(image.read_bytes()[:600])
    elif what == 'label map':
        label_map.write_bytes(b'\x89PNG')
    else:
        labels = np.asarray(Image.open(label_map)).copy()
        labels[0, 0] = 40
        Image.fromarray(labels).save(label_map)
    with pytest.raises(DataError) as caught, plain_worker_errors():
        sum(loader)
    text = str(caught.value)
    assert str(image if what == 'image' else label_map) in text and 'Traceback' not in text and '\n' not in text
    assert re.search(named, text)
