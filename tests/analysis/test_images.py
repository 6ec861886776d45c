"""A file, an image of Pillow and an array of the same picture are the same pixels; what is no image is one line."""

from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import tiny
import torch
from each import each
from PIL import Image

from mmlape.errors import DataError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.folders import IMAGE_SUFFIXES, READ_SUFFIXES
from mmlape.lab.inference.images import Preparation, files_of, find_images, to_array
from mmlape.lab.inference.prediction import Model
from mmlape.lab.inference.results import map_names

HEIGHT, WIDTH = 40, 56
SUFFIXES = ('.png', '.jpg', '.tif', '.bmp', '.webp', '.gif', '.ppm', '.pgm', '.jfif', '.jp2', '.avif')


def pixels(channels, largest=255):
    """Smooth colours, so that JPEG keeps them, up to the largest value."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    waves = [(np.sin(x / 9 + phase) + np.cos(y / 7 - phase) + 2) / 4 * largest for phase in range(channels)]
    return np.stack(waves, axis=-1)


def pictures():
    """A picture in each mode of Pillow."""
    rgb = Image.fromarray(pixels(3).astype(np.uint8))
    alpha = Image.fromarray(pixels(4)[..., 3].astype(np.uint8))
    found = {mode: rgb.convert(mode) for mode in ('RGB', 'L', '1', 'YCbCr', 'LAB', 'HSV')}
    found['P'] = rgb.quantize(32)
    found['P with transparency'] = rgb.quantize(32)
    found['P with transparency'].info['transparency'] = 3
    for mode in ('RGBA', 'LA'):
        found[mode] = rgb.convert(mode)
        found[mode].putalpha(alpha)
    found['CMYK'] = Image.frombytes('CMYK', rgb.size, pixels(4).astype(np.uint8).tobytes())
    found['I;16'] = Image.fromarray(pixels(1, 2**16 - 1)[..., 0].astype(np.uint16))
    found['I'] = Image.fromarray(pixels(1, 2**16 - 1)[..., 0].astype(np.int32))
    found['F'] = rgb.convert('F')
    return found


def files(folder):
    """Each picture in each format that has its mode, and colours of 16 bits, which Pillow does not write."""
    for name, picture in pictures().items():
        for suffix in SUFFIXES:
            file = folder / f'{name.replace(" ", "-")}{suffix}'
            try:
                picture.save(file)
            except (OSError, ValueError, KeyError):
                file.unlink(missing_ok=True)
            else:
                yield file
    for suffix in ('.png', '.tif', '.ppm'):
        cv2.imwrite(str(folder / f'deep{suffix}'), pixels(3, 2**16 - 1).astype(np.uint16))
        yield folder / f'deep{suffix}'


def decode(file):
    """The pixels of a file as MMCV has OpenCV decode them; None for none."""
    return cv2.imdecode(np.fromfile(file, np.uint8), cv2.IMREAD_COLOR)


def read_or_none(image):
    try:
        return to_array(image)
    except DataError as error:
        assert '\n' not in str(error)
        return None


def test_a_file_and_its_image_of_pillow_are_what_training_reads(tmp_path):
    """OpenCV's pixels. Arrays, too, where they say what their values are; files of floats are no images."""
    compared = set()
    for file in each(files(tmp_path)):
        read = decode(file)
        opened = Image.open(file)
        if read is None or opened.mode == 'F':
            assert read_or_none(file) is None
            assert opened.mode != 'F' or read_or_none(opened) is None
            continue
        # OpenCV multiplies the colours of a TIFF by its transparency
        is_multiplied = (opened.mode, file.suffix) == ('RGBA', '.tif')
        expected = np.asarray(opened)[..., :3] if is_multiplied else read[..., ::-1]
        assert (to_array(file) == expected).all()
        compared.add((opened.mode, file.suffix))
        if opened.mode in ('CMYK', 'YCbCr', 'LAB') or file.name == 'YCbCr.jp2':
            continue  # which are Pillow's, or none
        # two libraries read 16 bits as 8 up to rounding
        levels = 1 if file.stem == 'deep' else 0
        assert np.abs(to_array(opened).astype(int) - expected).max() <= levels
        if (
            opened.mode in ('RGB', 'L', 'LA', '1', 'I;16')
            or is_multiplied
            or (opened.mode, file.suffix) == ('RGBA', '.png')
        ):
            assert np.abs(to_array(np.asarray(opened)).astype(int) - expected).max() <= levels
    assert {mode for mode, _ in compared} >= {'RGB', 'L', '1', 'P', 'RGBA', 'LA', 'CMYK', 'YCbCr', 'LAB', 'I;16', 'I'}
    assert {suffix for _, suffix in compared} == set(SUFFIXES)


@pytest.mark.parametrize('suffix', ['.jpg', '.png', '.tif', '.webp'])
def test_a_picture_is_turned_as_its_camera_says(tmp_path, suffix):
    file = tmp_path / f'turned{suffix}'
    for tag in each(range(1, 9)):
        exif = Image.Exif()
        exif[0x0112] = tag
        Image.fromarray(pixels(3).astype(np.uint8)).save(file, exif=exif)
        read = decode(file)[..., ::-1]
        assert read.shape == ((WIDTH, HEIGHT, 3) if tag > 4 else (HEIGHT, WIDTH, 3))
        assert (to_array(file) == read).all() and (to_array(Image.open(file)) == read).all()


def test_shapes_and_layouts_of_an_array():
    values = pixels(3).astype(np.uint8)
    turned = np.asfortranarray(values[::-1, ::-1])[::-1, ::-1]
    for array in each((turned, values[..., ::-1][..., ::-1], np.concatenate([values, values[..., :1]], axis=2))):
        assert (to_array(array) == values).all()
    grey = values[..., 0]
    for array in each((grey, grey[..., None], grey.astype(np.uint16) * 257, (grey.astype('>u2') << 8),
                       np.stack([grey, values[..., 1]], axis=2))):  # fmt: skip
        assert (to_array(array) == grey[..., None]).all()
    assert (to_array(grey > 99)[..., 2] == 255 * (grey > 99)).all()


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    """A model of 8 x 8 patches with all of its preparation, which never runs."""
    root = tmp_path_factory.mktemp('tiny')
    cfg = load_config(tiny.write_config(root, tiny.write_data(root / 'data')))
    steps = cfg.test_dataloader.dataset.pipeline
    cfg.test_pipeline = [steps[0], dict(type='Resize', scale=(32, 32), keep_ratio=True), steps[-1]]
    return Model(SimpleNamespace(task='segmentation', classes=('a',), preparation=Preparation(cfg), cfg=cfg))


def test_an_array_is_prepared_as_its_file(model, tmp_path):
    values = pixels(3).astype(np.uint8)
    Image.fromarray(values).save(tmp_path / 'a.png')
    prepared = model._prepare.of_file(tmp_path / 'a.png')
    assert torch.equal(model._prepare.of_array(values)['inputs'], prepared['inputs'])
    assert prepared['inputs'].shape[1:] == (23, 32)  # higher than wide would be 32 x 23


def no_images(folder):
    """What is given, and a part of the line that answers it."""
    values = np.zeros((64, 80, 3), np.uint8)
    for name, content in (('text.jpg', b'text'), ('empty.png', b''), ('film.mp4', b'\0\0\0\x18ftypmp42' + bytes(99))):
        (folder / name).write_bytes(content)
    Image.effect_noise((200, 200), 50).save(folder / 'a.png')
    (folder / 'cut.png').write_bytes((folder / 'a.png').read_bytes()[:9000])
    closed = Image.open(folder / 'a.png')
    closed.close()
    (folder / 'none').mkdir()
    for size in ((1, 500), (500, 1), (1, 1), (7, 300), (300, 7)):
        Image.new('RGB', size).save(folder / f'{size}.png')
        line = f'{size[0]} x {size[1]} pixels'
        yield from ((image, line) for image in (folder / f'{size}.png', Image.new('RGB', size)))
        yield np.zeros((size[1], size[0], 3), np.uint8), line
    yield from (
        (np.zeros((8, 5000, 3), np.uint8), '5000 x 8 pixels does not fit the test pipeline'),
        (values[:0], '0 x 80 has no pixels'), (values[:, :0], '64 x 0 has no pixels'), (values[:0, :0], 'no pixels'),
        (values[0], '3 x 80 pixels'), (values[0, 0], r'\(3,\)'), (np.array(3), r'int64 and \(\)'),
        (values.astype(float) / 255, 'float64'), (values.astype(np.float32), 'float32'),
        (values.astype(int), 'int64'), (values.astype(complex), 'complex128'),
        (values.astype(object), 'object'), (np.array(['a.png']), r'<U5 and \(1,\)'),
        (values.transpose(2, 0, 1), r'\(3, 64, 80\)'),
        (np.zeros((64, 64, 5), np.uint8), r'\(64, 64, 5\)'),
        (Image.new('F', (64, 64)), 'float32'), (Image.fromarray(np.full((64, 64), 2**17, np.int32)), 'int32'),
        (Image.open(folder / 'cut.png'), 'of Pillow cannot be read: .*truncated'), (closed, 'of Pillow .*closed'),
        (torch.zeros(3, 64, 64), 'not Tensor'), ([torch.zeros(64, 64)], 'not Tensor'),
        (None, 'not NoneType'), (3, 'not int'), (b'image', 'not bytes'), ({'a.png': 1}, 'not dict'),
        (folder / 'text.jpg', 'text.jpg cannot be read'), (folder / 'film.mp4', 'film.mp4 cannot be read'),
        (folder / 'empty.png', r'empty.png is empty \(0 bytes\)'), (folder / 'cut.png', 'cut.png .* truncated'),
        (folder / 'missing.png', 'missing.png does not exist'), (folder / 'none', 'no images in this folder'),
        ('a' * 5000, 'cannot be read'), ('a\0b', 'cannot be read'), ('/dev/null', 'empty'),
    )  # fmt: skip


def test_what_is_no_image_is_one_line(model, tmp_path):
    for bad, message in each(no_images(tmp_path)):
        with pytest.raises(DataError, match=message) as caught:
            model.predict(bad)
        assert '\n' not in str(caught.value)
    assert model.predict([]) == model.predict(np.zeros((0, 64, 64, 3), np.uint8)) == []


def test_the_images_of_a_folder(tmp_path):
    """In folders below, with suffixes in capitals, without what is hidden, or is known not to be read."""
    names = ['a.JPG', 'b/A.PNG', 'b/c/a.Tiff', 'b/c/a.png.jpeg']
    names += [f'c/a{suffix}' for suffix in sorted(SUFFIXES)]
    for name in [*names, '._a.jpg', '.cache/a.jpg', 'b/.ipynb_checkpoints/a.png', 'notes.txt', 'a.mp4', 'c/a.heic']:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / 'folder.png').mkdir()
    assert [path.relative_to(tmp_path).as_posix() for path in files_of(tmp_path)] == names
    assert list(find_images([str(tmp_path), tmp_path / 'a.JPG'])) == [*files_of(tmp_path), tmp_path / 'a.JPG']


@pytest.mark.parametrize('suffix', ['.HEIC', *(suffix for suffix in IMAGE_SUFFIXES if suffix not in READ_SUFFIXES)])
def test_a_folder_of_images_that_cannot_be_read_says_so_where_they_are_read(model, tmp_path, suffix):
    (tmp_path / f'a{suffix}').write_bytes(b'what no library knows')
    (tmp_path / 'notes.txt').touch()
    with pytest.raises(DataError, match=rf'a{suffix} cannot be read'):
        model.predict(tmp_path)


NAMES = (
    'a.jpg', 'a.png', 'a.jpg.png', 'a.png.png', 'a.jpg.png.png', 'b.PNG', 'B.png', 'c/a.jpg', 'c/A.tif', 'd/a.jpg',
    'e.f.jpg', 'e.png', 'g',
)  # fmt: skip


def test_each_image_has_a_label_map_of_its_own():
    """On disks that do not tell case apart, too, as long as the images are apart there."""
    from itertools import combinations
    from pathlib import Path

    for count in (1, 2, 3, len(NAMES)):
        for chosen in combinations(map(Path, NAMES), count):
            found = map_names(chosen)
            assert list(found) == list(chosen) and {file.suffix for file in found.values()} == {'.png'}
            assert len(set(found.values())) == count
            if len({str(name).casefold() for name in chosen}) == count:
                assert len({str(file).casefold() for file in found.values()}) == count, found
    assert map_names([Path('a/b.jpg'), Path('a/c.png')]) == {
        Path('a/b.jpg'): Path('a/b.png'),
        Path('a/c.png'): Path('a/c.png'),
    }
