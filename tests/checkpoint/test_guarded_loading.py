"""Loading transforms whose errors name the file, also from worker processes."""

import numpy as np
import pytest
from data_helpers import build, make_maps, maps_config
from PIL import Image

from mmlape.errors import DataError
from mmlape.lab.datasets.images import lacks_end
from mmlape.lab.datasets.transforms import guard_loading
from mmlape.lab.training.runner import plain_worker_errors
from mmlape.registry import TRANSFORMS


def test_truncated_files_are_recognised_by_their_end(mini):
    """OpenCV 4 fills the missing part with grey, without a warning."""
    for path in (mini / 'coco/train2017/000000000001.jpg', min((mini / 'digits/val/one').iterdir())):
        data = path.read_bytes()
        assert not lacks_end(data)
        assert not lacks_end(data + b' made by a camera')
        assert lacks_end(data[:-300])


@pytest.mark.parametrize('what', ['image', 'label map'])
def test_guarded_loading_names_the_file_from_a_worker(tmp_path, what):
    from torch.utils.data import DataLoader

    make_maps(tmp_path)
    path = tmp_path / ('images' if what == 'image' else 'labels') / 'train/2.png'
    cfg = maps_config(tmp_path)
    guard_loading(cfg)
    loader = DataLoader(build(cfg), batch_size=2, num_workers=2, collate_fn=len)
    assert sum(loader) == 4
    path.write_bytes(path.read_bytes()[:600] if what == 'image' else b'\x89PNG')
    with pytest.raises(DataError) as caught, plain_worker_errors():
        sum(loader)
    text = str(caught.value)
    assert str(path) in text and 'Traceback' not in text and '\n' not in text


@pytest.mark.parametrize(
    ('value', 'reduced', 'ignored', 'told'),
    [
        (2, False, 255, None), (3, False, 255, 'id 3,'), (255, False, 255, None), (255, False, 7, None),
        (7, False, 7, None), (7, False, 255, 'id 7,'), (3, True, 255, None), (4, True, 255, 'id 4,'),
        (0, True, 255, None), (7, False, 8, 'id 7,'), (9, True, 7, 'id 9,'),
    ],
)  # fmt: skip
def test_labels_are_below_the_number_of_classes(tmp_path, value, reduced, ignored, told):
    """Three classes; messages have the numbers of the file, where 0 is none if it is reduced."""
    Image.fromarray(np.array([[1, value], [1, 1]], np.uint8)).save(tmp_path / 'a.png')
    kind = dict(type='mmlape.LoadSegAnnotations', num_classes=3, ignore_index=ignored, reduce_zero_label=reduced)
    sample = dict(seg_map_path=str(tmp_path / 'a.png'), reduce_zero_label=reduced, seg_fields=[], label_map=None)
    load = TRANSFORMS.build(kind)
    if told is None:
        assert load(sample)['gt_seg_map'][0].tolist() == [1 - reduced, 255 if value < reduced else value - reduced]
    else:
        unlabelled = {0, 255, ignored + 1} - {256} if reduced else {255, ignored}
        ids = rf'ids {int(reduced)} to {2 + reduced} are allowed, and {" and ".join(map(str, sorted(unlabelled)))} for'
        with pytest.raises(DataError, match=rf'a\.png has the label {told}.*{ids}'):
            load(sample)
