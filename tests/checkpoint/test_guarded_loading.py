"""Loading transforms whose errors name the file, also from worker processes."""

import pytest
from data_helpers import ade_cfg, build

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


@pytest.mark.parametrize('what', ['image', 'label map'])
def test_guarded_loading_names_the_file_from_a_worker(mini, what):
    from torch.utils.data import DataLoader

    folder, name = ('images', 'jpg') if what == 'image' else ('annotations', 'png')
    path = mini / f'ade/{folder}/training/ADE_train_00000005.{name}'
    cfg = ade_cfg(mini / 'ade')
    guard_loading(cfg)
    loader = DataLoader(build(cfg), batch_size=2, num_workers=2, collate_fn=len)
    assert sum(loader) == 6
    path.write_bytes(path.read_bytes()[:600] if what == 'image' else b'\x89PNG')
    with pytest.raises(DataError) as caught, plain_worker_errors():
        sum(loader)
    text = str(caught.value)
    assert str(path) in text and 'Traceback' not in text and '\n' not in text
