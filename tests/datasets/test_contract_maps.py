"""What becomes of label maps and folders of classes with one change each: see contract.py."""

import io
import itertools
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from contract import Case, Kind, Perfect, Refused, Warned, hold, of_splits, pixels_of
from data_helpers import folders_config, make_folders, make_maps, maps_config
from drawn_data import NAMES, scene, seen
from each import each
from mmengine.structures import PixelData
from mmpretrain.structures import DataSample
from PIL import Image
from test_contract_coco import COCO
from told import assert_told

from mmlape.errors import DataError
from mmlape.lab.datasets import images
from mmlape.lab.datasets.checks import full_check
from mmlape.lab.datasets.formats import SPLITS
from mmlape.lab.datasets.images import EITHER, STORED, Annotated, ImageLoader, open_image, shown_size

# ---------------------------------------------------------------- label maps, and their perfect model


def answer_map(sample: dict):
    labels = torch.from_numpy(seen(pixels_of(sample)).clip(0))
    sample['data_samples'].pred_sem_seg = PixelData(data=labels[None])
    return sample['data_samples'].to_dict()


def require_map(sample: dict) -> None:
    """Assert that the label map of a training sample is of what its pixels show."""
    shown = seen(pixels_of(sample))
    np.testing.assert_array_equal(sample['data_samples'].gt_sem_seg.data[0].numpy(), np.where(shown < 0, 255, shown))


MAPS = Kind(make_maps, maps_config, answer_map, require_map, ('mIoU', 'aAcc'), 100.0)

# ---------------------------------------------------------------- folders of classes, and their perfect model


def class_shown(sample: dict) -> int:
    """Return the label of the class whose colour an image has in its middle."""
    pixels = pixels_of(sample)
    middle = pixels[pixels.shape[0] // 2, pixels.shape[1] // 2]
    return int(seen(middle[None, None])[0, 0])


def answer_class(sample: dict):
    given = sample['data_samples']
    return DataSample().set_gt_label(given.gt_label).set_pred_label(class_shown(sample)).to_dict()


def require_class(sample: dict) -> None:
    assert sample['data_samples'].gt_label.tolist() == [class_shown(sample)]


CLASS_FOLDERS = Kind(make_folders, folders_config, answer_class, require_class, ('accuracy/top1',), 100.0)

# ---------------------------------------------------------------- changes


def files(root: Path, kind: str, split: str) -> list[Path]:
    folder = root / kind / split
    return sorted((folder if folder.is_dir() else root / split / kind).iterdir())


def ids(change, last: bool = False, form: str = 'PNG'):
    """A change of the ids of every label map of a split, or of the last one only."""

    def of_split(root, split):
        for path in files(root, 'labels', split)[-1 if last else 0 :]:
            path.write_bytes(saved(Image.fromarray(change(np.asarray(Image.open(path)))), form))

    return of_split


def replaced(change, kind='images', suffix='.png', index=-1):
    """A change of the last image of a split, or another: ``change`` returns the bytes of a file of this suffix."""

    def of_split(root, split):
        path = files(root, kind, split)[index]
        content = change(Image.open(path))
        path.unlink()
        path.with_suffix(suffix).write_bytes(content)

    return of_split


def saved(image: Image.Image, form: str, mode: str = '', **options) -> bytes:
    file = io.BytesIO()
    (image.convert(mode) if mode else image).save(file, form, **options)
    return file.getvalue()


def as_array(dtype, form: str, kind='images', factor=1, index=-1):
    """Return a change of the last image: grey values of this type, in a file of this form."""

    def change(image):
        return saved(Image.fromarray((np.asarray(image.convert('L')) * np.array(factor)).astype(dtype)), form)

    return replaced(change, kind, index=index)


TURN = {
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(a, 2).swapaxes(0, 1),
    8: lambda a: np.rot90(a),
}
"""How a viewer turns the pixels that are stored, by the tag."""


def turn_back(array: np.ndarray, tag: int) -> np.ndarray:
    """Return the pixels that a viewer turns to these."""
    return np.ascontiguousarray(TURN[{6: 8, 8: 6}.get(tag, tag)](array))


def tagged(tag: int, stored: bool = False, form: str = 'PNG', square: bool = False, tag_maps: bool = False):
    """Give all images a tag; ``stored``: boxes and label maps are of the pixels as they are stored."""
    exif = Image.Exif()
    exif[0x112] = tag
    options = dict(quality=100, subsampling=0) if form == 'JPEG' else {}
    of_maps = dict(exif=exif) if tag_maps else {}

    def change(root, split):
        coco = root / f'{split}2017'
        for path in sorted(coco.iterdir()) if coco.exists() else files(root, 'images', split):
            pixels = np.asarray(Image.open(path))[: 40 if square else None, : 40 if square else None]
            pixels = pixels if stored else turn_back(pixels, tag)
            path.write_bytes(saved(Image.fromarray(pixels), form, exif=exif, **options))
        for path in files(root, 'labels', split) if square else ():
            path.write_bytes(saved(Image.fromarray(np.asarray(Image.open(path))[:40, :40]), 'PNG', **of_maps))

    return change


def classes(change):
    """A change of the bytes of the list of classes."""
    content = ''.join(f'{name}\n' for name in NAMES).encode()
    return lambda root, split: (root / 'classes.txt').write_bytes(change(content))


def add(name: str, content: bytes = b'\0\5\x16\7'):
    """A file that programs leave behind."""

    def of_split(root, split):
        path = root / name.format(split=split)
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content)

    return of_split


def renamed(kind: str, name, last=True):
    """A change of the name of the last file of a split, or of all."""

    def of_split(root, split):
        for path in files(root, kind, split)[-1 if last else 0 :]:
            target = path.parent / name(path.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)

    return of_split


def both(*changes):
    def of_split(root, split):
        for change in changes:
            change(root, split)

    return of_split


def in_both_splits(change):
    return lambda root, split: [change(root, name) for name in ('train', 'val')]


def listed(lines, encoding='utf-8'):
    """A list of the images of a split in SPLIT.txt, from their names without suffix."""

    def of_split(root, split):
        text = lines([path.stem for path in files(root, 'images', split)])
        (root / f'{split}.txt').write_bytes(text.encode(encoding))
        other = root / f'{"val" if split == "train" else "train"}.txt'
        if not other.exists():
            other.write_text('0\n1\n2\n3\n')

    return of_split


def everywhere(**values):
    """Options of the datasets of all splits."""
    return {f'{split}_dataloader.dataset.{key}': value for split in SPLITS for key, value in values.items()}


def named(*names):
    """Options of other classes, with a head of so many."""
    return {
        **{f'{split}_dataloader.dataset.metainfo.classes': names for split in SPLITS},
        'model.decode_head.num_classes': len(names),
        'model.auxiliary_head.0.num_classes': len(names),
        'model.head.num_classes': len(names),
        'data_preprocessor.num_classes': len(names),
    }


LISTS = {f'{split}_dataloader.dataset.ann_file': f'{"val" if split == "test" else split}.txt' for split in SPLITS}
LISTED = {**LISTS, **everywhere(data_prefix='')}
FROM_0 = everywhere(reduce_zero_label=False)
WIDTH, HEIGHT = scene(3)[0].size
NFC, NFD = (unicodedata.normalize(form, 'ä') for form in ('NFC', 'NFD'))


def link(name: str, target: str):
    def of_split(root, split):
        path = root / name.format(split=split)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    return of_split


def binary(array):
    return ((array > 0) * 255).astype(np.uint8)


def wide(array):
    """Ids of 16 bits that are 1 to 3 modulo 256."""
    return np.where(array > 0, array.astype(np.uint16) + 256, 0).astype(np.uint16)


def right(name: str, change, complete: bool = True, options: dict | None = None) -> Case:
    """A change that leaves data right."""
    return Case(name, change, Perfect(complete), options or {})


def wrong(name: str, change, *words: str, options: dict | None = None, **outcome) -> Case:
    """A change that is refused with these words, or with what is recorded."""
    return Case(name, change, Refused(words, **outcome), options or {})


def warned(name: str, change, *words: str, score: float | None = None) -> Case:
    """A change that is warned of in these words."""
    return Case(name, change, Warned(words, score))


CASES_OF_MAPS = (
    right('nothing', lambda root, split: None),
    *(right(f'tag {tag}, maps of the image as shown', tagged(tag)) for tag in (5, 8)),
    right('tag 6, JPEG', tagged(6, form='JPEG')),
    *(warned(f'tag {tag}, maps as stored', tagged(tag, stored=True), 'orientation', str(tag), 'stored pixels',
             'exiftool', score=100.0) for tag in (5, 8)),
    *(warned(f'tag {tag}, both fit', tagged(tag), 'orientation', str(tag), 'near 0', 'exiftool', score=100.0)
      for tag in (2, 4)),
    warned('a square image', tagged(6, square=True), 'orientation', '6', 'near 0', score=100.0),
    warned('square images, tags of the maps, too', tagged(6, stored=True, square=True, tag_maps=True), 'orientation',
           'stored pixels', score=100.0),
    right('32 bits', ids(lambda a: a.astype(np.int32), form='TIFF')),
    right('255', ids(lambda a: np.where(a == 0, np.uint8(255), a))),
    wrong('above 255', ids(wide, last=True), in_images=True),
    wrong('outside the classes', ids(lambda a: np.where(a > 0, np.uint8(7), a), last=True), in_images=True),
    wrong('300 classes', classes(lambda b: ''.join(f'c{n}\n' for n in range(300)).encode()),
          options=named(*(f'c{n}' for n in range(300)))),
    wrong('only 0', ids(lambda a: a * 0)),
    wrong('only 255', ids(lambda a: a * 0 + 255)),
    wrong('0 and 255', ids(binary)),
    wrong('0 and 255, from 0', both(ids(binary), classes(lambda b: b'ground\n' + b)),
          options={**FROM_0, **named('ground', *NAMES)}),
    wrong('one class', ids(lambda a: (a == 2).astype(np.uint8) * 2), splits=('train',)),
    warned('from 0 as if from 1', ids(lambda a: np.where(a > 0, a - 1, 255).astype(np.uint8)), 'ids from 0 to 2',
           '3 classes', 'add 1', 'reduce_zero_label'),
    wrong('from 1 as if from 0', ids(lambda a: np.where(a > 0, a, 255).astype(np.uint8)), options=FROM_0),
    wrong('reduced twice', lambda root, split: None,
          options={f'{split}_dataloader.dataset.pipeline.1.reduce_zero_label': False for split in SPLITS}),
    wrong('one class under a softmax',
          both(in_both_splits(ids(lambda a: (a > 0).astype(np.uint8))), classes(lambda b: b'crack\n')),
          options=named('crack')),
    right('palette', replaced(lambda i: saved(i, 'PNG', 'P'), 'labels')),
    wrong('RGB', replaced(lambda i: saved(i, 'PNG', 'RGB'), 'labels'), in_images=True),
    wrong('floats', replaced(lambda i: saved(i, 'TIFF', 'F'), 'labels'), in_images=True),
    wrong('JPEG', replaced(lambda i: saved(i, 'JPEG'), 'labels'), in_images=True),
    wrong('another size', replaced(lambda i: saved(i.resize((30, 50)), 'PNG'), 'labels'), in_images=True),
    wrong('a broken map', replaced(lambda i: b'\x89PNG', 'labels'), 'labels', '3.png', in_images=True),
    right('GIF', replaced(lambda i: saved(i, 'GIF'))),
    right('TIFF', replaced(lambda i: saved(i, 'TIFF'))),
    *(warned(f'16 bits of grey, {form}', as_array(np.uint16, form, factor=257), '3.png', '16 bits', 'upper 8')
      for form in ('PNG', 'TIFF')),
    warned('16 bits of colours, TIFF', replaced(lambda i: tiff(np.asarray(i)[..., :3].astype(np.uint16) * 257)),
           '3.png', '16 bits', 'upper 8', score=100.0),
    wrong('TGA', replaced(lambda i: saved(i, 'TGA')), in_images=True),
    *(wrong(f'an image of {kind}', as_array(kind, 'TIFF'), in_images=True)
      for kind in ('int32', 'float32')),
    wrong('an image of six bands', replaced(lambda i: tiff(np.dstack([i, i]))), in_images=True),
    wrong('a truncated JPEG', replaced(lambda i: saved(i, 'JPEG')[:-40]), '3.png', 'truncated', in_images=True),
    wrong('a broken PNG', replaced(lambda i: flipped(saved(i, 'PNG'))), 'images', '3.png', in_images=True),
    wrong('an empty image', replaced(lambda i: b''), in_images=True),
    wrong('one pixel',
          both(*(replaced(lambda i: saved(i.crop((0, 0, 1, 1)), 'PNG'), kind) for kind in ('images', 'labels'))),
          in_images=True),
    right('files of programs',
          both(*(add('images/{split}/' + name) for name in ('._0.png', '.DS_Store', 'Thumbs.db')),
               add('labels/{split}/._0.png'))),
    wrong('checkpoints of a notebook', add('images/{split}/.ipynb_checkpoints/0-checkpoint.png')),
    wrong('capitals', renamed('images', lambda name: name.replace('.png', '.PNG'))),
    wrong('all in capitals', renamed('images', lambda name: name.replace('.png', '.PNG'), last=False)),
    wrong('another suffix', renamed('images', lambda name: name.replace('.png', '.jpeg'))),
    wrong('an image without a map', renamed('labels', lambda name: '9.png')),
    warned('a map without an image', lambda root, split: files(root, 'images', split)[3].unlink(), '1 label maps',
           'no image', '3', score=100.0),
    wrong('another suffix of a map', renamed('labels', lambda name: name.replace('.png', '.PNG'))),
    right('spaces and umlauts',
          both(*(renamed(kind, lambda name: f'an {NFC} {name}', last=False) for kind in ('images', 'labels')))),
    wrong('two forms of Unicode',
          both(renamed('images', lambda name: NFC + name), renamed('labels', lambda name: NFD + name))),
    right('nested folders',
          both(renamed('images', lambda name: f'a/b/{name}'), renamed('labels', lambda name: f'a/b/{name}'))),
    right('a link to an image',
          both(link('labels/{split}/5.png', '0.png'), link('images/{split}/5.png', '0.png'))),
    wrong('a link to nowhere', link('images/{split}/5.png', 'nowhere.png')),
    wrong('no images',
          lambda root, split: shutil.rmtree(root / f'images/{split}') or (root / f'images/{split}').mkdir()),
    right('names that are not sorted', classes(lambda b: b'hat\ncat\ndog\n'), options=named('hat', 'cat', 'dog')),
    right('classes in UTF-16', classes(lambda b: b.decode().encode('utf-16'))),
    wrong('classes in UTF-16 without a mark', classes(lambda b: b.decode().encode('utf-16-le'))),
    wrong('classes in Latin-1', classes(lambda b: b.replace(b'dog', b'd\xe9g'))),
    right('lines of Windows', classes(lambda b: b.replace(b'\n', b' \r\n') + b'\r\n')),
    wrong('a blank line', classes(lambda b: b.replace(b'\n', b'\n\n', 1))),
    wrong('a tab', classes(lambda b: b.replace(b'dog', b'1\ttree'))),
    wrong('a class twice', classes(lambda b: b.replace(b'dog', b'cat'))),
    wrong('other classes', classes(lambda b: b.replace(b'dog', b'bush'))),
    wrong('classes of a public dataset', lambda root, split: None,
          options=everywhere(type='ADE20KDataset', metainfo={'_delete_': True})),
    right('a list', listed('\n'.join), options=LISTS),
    wrong('a list with a mark', listed('\n'.join, 'utf-8-sig'), options=LISTS),
    wrong('a list with suffixes', listed(lambda names: '\n'.join(f'{name}.png' for name in names)), options=LISTS),
    wrong('a list with a name that is no image', listed(lambda names: '\n'.join([*names, 'nowhere'])),
          options=LISTS),
    wrong('a list with a blank line', listed(lambda names: '\n'.join([*names[:2], '', *names[2:]])), options=LISTS),
)  # fmt: skip


CAT = 'cat'


def listed_images(line, encoding='utf-8', end='\n'):
    """A list of images and labels in SPLIT.txt, of lines that are made of a path and a label."""

    def of_split(root, split):
        for name in ('train', 'val'):
            rows = [
                line(f'{name}/{path.parent.name}/{path.name}', NAMES.index(path.parent.name))
                if name == split
                else f'{name}/{path.parent.name}/{path.name} {NAMES.index(path.parent.name)}'
                for path in sorted((root / name).glob('*/*'))
            ]
            file = root / f'{name}.txt'
            if name == split or not file.exists():
                file.write_bytes(end.join(rows).encode(encoding if name == split else 'utf-8'))

    return of_split


def with_class(name: str, like: str = CAT):
    """A folder of a further class."""
    return lambda root, split: shutil.copytree(root / split / like, root / split / name)


def emptied(root, split):
    for path in files(root, CAT, split):
        path.unlink()


def only_class(root, split):
    """Leave one class, in both splits."""
    for name in NAMES[1:]:
        for folder in ('train', 'val'):
            shutil.rmtree(root / folder / name)


CASES_OF_FOLDERS = (
    right('nothing', lambda root, split: None),
    right('files of programs',
          both(*(add('{split}/' + name) for name in ('cat/._ship0.png', 'cat/Thumbs.db', '.DS_Store')))),
    *(wrong(name, add('{split}/' + name + '/a.png'))
      for name in ('.ipynb_checkpoints', '__MACOSX')),
    wrong('checkpoints in a class', add('{split}/cat/.ipynb_checkpoints/a.png')),
    wrong('another suffix', replaced(lambda i: saved(i, 'WEBP'), CAT, '.webp')),
    warned('an image in no folder', lambda root, split: shutil.copy(files(root, CAT, split)[0], root / split),
           '1 images', 'cat0.png', 'in no folder', score=100.0),
    right('nested folders', renamed(CAT, lambda name: f'a/b/{name}')),
    right('spaces and umlauts', renamed(CAT, lambda name: f'an {NFD} {name}', last=False)),
    wrong('an empty folder', emptied, splits=('train',)),
    warned('an empty folder of validation', lambda root, split: split == 'val' and emptied(root, split), 'cat',
           'no images', 'not evaluated', score=100.0),
    wrong('a class in one split', lambda root, split: shutil.rmtree(root / split / CAT)),
    wrong('another class', with_class('boat')),
    wrong('classes in another order', lambda root, split: None,
          options=everywhere(metainfo=dict(classes=NAMES[::-1]))),
    wrong('classes of a public dataset', lambda root, split: None,
          options=everywhere(type='ImageNet', metainfo={'_delete_': True})),
    wrong('more predictions than classes', lambda root, split: None, splits=('val',),
          options={f'{split}_evaluator.topk': (1, 5) for split in ('val', 'test')}),
    wrong('one class', only_class, options=named('cat')),
    wrong('a link to nowhere', link('{split}/cat/a.png', 'nowhere.png')),
    wrong('a broken image', replaced(lambda i: b'', CAT, index=0), 'cat0.png', 'empty', in_images=True),
    right('a list', listed_images('{} {}'.format), options=LISTED),
    wrong('a list with a mark', listed_images('{} {}'.format, 'utf-8-sig'), options=LISTED),
    wrong('tabs', listed_images('{}\t{}'.format), options=LISTED),
    wrong('labels from 1', listed_images(lambda path, label: f'{path} {label + 1}'), options=LISTED),
    wrong('no classes, and a label that the head does not have',
          listed_images(lambda path, label: f'{path} {label + 1}'),
          options={**LISTED, **everywhere(metainfo={'_delete_': True})}),
    wrong('images that are missing', listed_images(lambda path, label: f'{path.replace("cat1", "cat9")} {label}'),
          options=LISTED),
)  # fmt: skip


def flipped(content: bytes) -> bytes:
    """Change a byte of the pixels."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


@pytest.fixture
def cases_of(tmp_path):
    def run(cases, kind, every_split, name):
        assert_told(name, '\n'.join(line for case in each(cases) for line in hold(case, kind, tmp_path, every_split)))

    return run


def test_boxes_of_images_with_an_orientation(cases_of):
    """Boxes and masks are repaired where sizes tell of which pixels they are; their AP is 1."""
    words = 'orientation', 'exiftool'
    cases = (
        right('tag 5, as shown', tagged(5)),
        right('tag 8, as shown', tagged(8)),
        warned('tag 5, as stored', tagged(5, stored=True), *words, '5', 'stored pixels', score=1.0),
        warned('tag 8, as stored', tagged(8, stored=True), *words, '8', 'stored pixels', score=1.0),
        warned('tag 4, both fit', tagged(4), *words, '4', 'near 0', score=1.0),
        wrong('TIFF, as stored', tagged(6, stored=True, form='TIFF'), in_images=True),
        right('TIFF, as shown', tagged(6, form='TIFF')),
    )
    cases_of(cases, COCO, True, 'refused-orientation')


@of_splits
def test_label_maps(cases_of, every_split):
    cases_of(CASES_OF_MAPS, MAPS, every_split, 'refused-maps')


@of_splits
def test_folders_of_classes(cases_of, every_split):
    cases_of(CASES_OF_FOLDERS, CLASS_FOLDERS, every_split, 'refused-folders')


def late(content: bytes) -> bytes:
    """Return a PNG whose tag stands behind its pixels."""
    begin = content.index(b'eXIf') - 4
    end = begin + 12 + int.from_bytes(content[begin : begin + 4], 'big')
    return content[:begin] + content[end:-12] + content[begin:end] + content[-12:]


FORMS = {
    'PNG': {},
    'PNG, late': {},
    'TIFF': {},
    'JPEG': dict(quality=100, subsampling=0),
    'MPO': dict(quality=100, subsampling=0, save_all=True, append_images=[Image.new('RGB', (9, 9))]),
    'WEBP': dict(lossless=True),
    'AVIF': dict(quality=100),
}
"""Forms that carry a tag of EXIF, and options with which Pillow writes them."""


def test_an_image_is_turned_by_its_tag_in_each_form(tmp_path):
    """By each decoder alike, and its header has its size; annotations of the stored pixels are found by their size."""
    image, _ = scene(0)
    stored, file = np.asarray(image), tmp_path / 'image'
    exif, none = Image.Exif(), Image.Exif()
    for form, tag in each(itertools.product(FORMS, range(9))):
        exif[0x112] = tag
        content = saved(image, form.partition(',')[0], exif=exif if tag else none, **FORMS[form])
        file.write_bytes(late(content) if ',' in form and tag else content)
        shown = TURN.get(tag, np.array)(stored)
        for backend in ('cv2', 'pillow'):
            loader = ImageLoader(imdecode_backend=backend)
            loaded = loader.load(str(file))
            np.testing.assert_array_equal(seen(loaded.pixels[..., ::-1]), seen(shown))
            assert shown_size(file) == loaded.size == shown.shape[1::-1]
            annotated = loader.load(str(file), lambda: Annotated(image.size))
            is_turned = form != 'TIFF' and tag > 1  # which every decoder turns
            assert annotated.annotated == ('' if not is_turned else EITHER if tag < 5 else STORED)
            np.testing.assert_array_equal(annotated.size, image.size if is_turned else loaded.size)


def tiff(pixels: np.ndarray, order: str = '<', planar: str = 'contig', extra: str = 'unspecified') -> bytes:
    """Return a TIFF of (H, W, bands), with what is said of those behind the third one."""
    file = io.BytesIO()
    bands = np.moveaxis(pixels, 2, 0) if planar == 'separate' else pixels
    options = dict(byteorder=order, planarconfig=planar, extrasamples=[extra] * (pixels.shape[2] - 3), metadata=None)
    tifffile.imwrite(file, bands, photometric='rgb', **options)
    return file.getvalue()


def test_the_colours_of_a_tiff_are_those_of_its_bands(tmp_path):
    """In each layout, whatever its fourth band is called; of 16 bits the upper eight."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 17, 4), np.uint8)
    layouts = ('contig', 'separate'), ('unspecified', 'assocalpha', 'unassalpha'), (3, 4)
    for wide, order, planar, extra, bands in each(itertools.product((0, 1), '<>', *layouts)):
        values = pixels[..., :bands] * np.uint16(257) if wide else pixels[..., :bands]
        (tmp_path / 'a.tif').write_bytes(tiff(values, order, planar, extra))
        loaded = ImageLoader().load(str(tmp_path / 'a.tif')).pixels[..., ::-1]
        np.testing.assert_array_equal(loaded, pixels[..., :3])


def test_a_test_with_other_options_than_the_validation_is_checked(tmp_path):
    """Of the same files."""
    make_maps(tmp_path)
    cfg = maps_config(tmp_path)
    assert [summary.split for summary in full_check(cfg, SPLITS).summaries] == ['train', 'val']
    cfg.test_dataloader.dataset.reduce_zero_label = False
    [group, *_] = full_check(cfg, SPLITS).errors
    assert group.split == 'test' and 'the label id 3' in group.examples[0]


def test_images_beyond_the_limit_of_opencv(tmp_path, monkeypatch):
    monkeypatch.setattr(images, 'MOST_PIXELS', 64 * 40 - 1)
    scene(0)[0].save(tmp_path / 'a.png')
    with pytest.raises(DataError, match=r'a\.png is 64 x 40 pixels, more than the 2\^30'):
        open_image(str(tmp_path / 'a.png'))
