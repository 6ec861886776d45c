"""What a folder is: exports as tools write them, damaged ones, and frames of one video.

They are read as they are, or an error names the file, and books balance; a clip is in one part of the division.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from drawn_data import (
    NAMES,
    class_folders,
    coco,
    labelme,
    listed_maps,
    maps,
    photo,
    public_coco,
    regions,
    roboflow,
    split_maps,
    voc,
    yolo,
)
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, TiffImagePlugin
from properties import examples
from test_new import contents

from mmlape.errors import DataError
from mmlape.new.clips import divide as divide_names
from mmlape.new.clips import find_clips
from mmlape.new.command import look

LAYOUTS = ('{}/{}', 'images/{}_{}', 'train/{}_{}', 'train/{}/{}', 'ds/img/{}_{}')


def each_image(file: str, line: Callable[[str], str], head: str = '') -> Callable[[list[str]], dict[str, str]]:
    """Write one file with a line, or several of them, for each image."""
    return lambda images: {file: head + ''.join(f'{line(image)}\n' for image in images)}


def beside(folder: str, name: str, text: str) -> Callable[[list[str]], dict[str, str]]:
    """Write a file for each image, by its name or its stem."""
    return lambda images: {f'{folder}/{name.format(name=Path(one).name, stem=Path(one).stem)}': text for one in images}


def as_json(file: str, content: Callable[[list[str]], object]) -> Callable[[list[str]], dict[str, str]]:
    return lambda images: {file: json.dumps(content([Path(image).name for image in images]))}


BOX = dict(x=20, y=20, width=10, height=8)
UNREAD: dict[str, Callable[[list[str]], dict[str, str]]] = {
    'TensorFlow Object Detection CSV': each_image(
        'train/_annotations.csv', lambda one: f'{Path(one).name},48,40,cat,4,6,16,16', 'filename,width,height,class\n'
    ),
    'RetinaNet CSV': each_image('_annotations.csv', lambda one: f'{one},4,6,16,16,cat'),
    'VIA CSV': each_image(
        'via.csv', lambda one: f'{Path(one).name},9,"{{}}",1,0,"{{""name"":""rect""}}","{{}}"', 'filename,file_size\n'
    ),
    'CSV of ids': each_image('boxes.csv', lambda one: f'{Path(one).stem};4;6;16;16', 'image_id;x;y\r\n'),
    'CSV in UTF-16': each_image('boxes.csv', lambda one: f'{Path(one).name}\t4\t6\t16\t16'),
    'several labels': each_image('train/_classes.csv', lambda one: f'{Path(one).name}, 1, 0', 'filename, cat, dog\n'),
    'keras-yolo': each_image('boxes.txt', lambda one: f'/home/me/{one} 4,6,16,16,0 1,2,3,4,1'),
    'CUB': each_image('images.txt', lambda one: f'1 {Path(one).name}'),
    'JSON lines': each_image('train.jsonl', lambda one: json.dumps({'image': f's3://bucket/{one}', 'boxes': [BOX]})),
    'Label Studio JSON': as_json('tasks.json', lambda names: [{'data': {'image': f'/data/{one}'}} for one in names]),
    'createML': as_json(
        '_annotations.createml.json', lambda names: [{'image': one, 'annotations': [BOX]} for one in names]
    ),
    'VIA JSON': as_json(
        'via.json', lambda names: {'_via_img_metadata': {f'{one}9': {'filename': one, 'regions': []} for one in names}}
    ),
    'Datumaro': as_json(
        'annotations/default.json',
        lambda names: {'info': {}, 'categories': {'label': {}}, 'items': [{'image': {'path': one}} for one in names]},
    ),
    'CVAT for images': lambda images: {
        'annotations.xml': '<annotations>' + ''.join(f'<image name="{one}"/>' for one in images) + '</annotations>'
    },
    'Supervisely': beside('ds/ann', '{name}.json', '{"size": {"height": 40, "width": 48}, "objects": []}'),
    'KITTI': beside('label_2', '{stem}.txt', 'Car 0.00 0 -1.58 4.0 6.0 16.0 16.0 1.6 1.6 3.7 1.0 1.7 9.8 -1.6\n'),
    'DOTA': beside('labelTxt', '{stem}.txt', '4 6 16 6 16 16 4 16 plane 0\n'),
    'OIDv4': beside('Label', '{stem}.txt', 'Cat face 4.0 6.0 16.0 16.0\n'),
    'masks of NumPy': beside('labels', '{stem}.npy', '\x93NUMPY\0'),
}


@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_file_about_images_that_nobody_reads_is_an_error_that_names_it(layout, tmp_path):
    images = [f'{layout.format(NAMES[place % 2], place)}.jpg' for place in range(12)]
    for image in images:
        photo(tmp_path / image)
    (tmp_path / 'README.md').write_text('Photographs of cats, such as ![one](images/cat_0.jpg).\n')
    for form in each(UNREAD):
        files = UNREAD[form](images)
        for file, text in files.items():
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_bytes(text.encode('utf-16' if 'UTF-16' in form else 'utf-8'))
        with pytest.raises(DataError, match='is in no form that is read') as error:
            look(tmp_path)
        assert any(file in str(error.value) for file in files)
        if '{}/{}' in layout:
            assert look(tmp_path, 'classes').classes == NAMES[:2]
        for file in files:
            (tmp_path / file).unlink()


def test_files_that_say_nothing_of_images_leave_folders_of_classes(tmp_path):
    """Lists of images, prose, numbers, names of classes, and what programs keep for themselves."""
    class_folders(tmp_path)
    images = [f'{name}/{number}.jpg' for name in NAMES for number in range(6)]
    texts = dict.fromkeys(('train.txt', 'lists/all.lst'), '\n'.join(images)) | {
        'README.md': 'A cat is cat/0.jpg\n\n<img src="cat/0.jpg" width="200">\n- 1.jpg: blurred\n',
        'md5sums.txt': ''.join(f'{"0a" * 16}  {Path(image).name}\n' for image in images),
        'labels.csv': 'file,label,year\n' + ''.join(f'{image},{image[0]},2024\n' for image in images),
        'ids.csv': ''.join(f'{image},{NAMES.index(image[:3])}\n' for image in images),
        'metadata.jsonl': ''.join(json.dumps(dict(file_name=image, label=image[:3])) + '\n' for image in images),
        'classes.txt': '\n'.join(NAMES),
        'shares.csv': 'class,share\n0,0.2\n1,0.3\n',
        'train.cache': f'\0{images}',
        'meta.json': '{"version": 3, "classes": 3}',
        'meta/train.json': json.dumps([image.removesuffix('.jpg') for image in images]),
    }
    for file, text in texts.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    found = look(tmp_path)
    assert found.counts == dict.fromkeys(NAMES, 6)
    (tmp_path / 'train.txt').unlink()
    assert look(tmp_path).counts == found.counts
    (tmp_path / 'labels.csv').write_text(''.join(f'{image},{images.index(image) % 3}\n' for image in images))
    with pytest.raises(DataError, match='labels.csv names images'):
        look(tmp_path)


def test_another_file_beside_annotations_is_left(tmp_path):
    """Lists of Pascal VOC, checksums and tables of metadata name images without objects, too."""
    yolo(tmp_path)
    before = contents(look(tmp_path))
    (photo(tmp_path / 'images/train/none.jpg'), photo(tmp_path / 'images/train/more.jpg'))
    (tmp_path / 'metadata.csv').write_text('none.jpg,Nikon,1,2,3,4\nmore.jpg,Nikon,1,2,3,4\n')
    assert contents(look(tmp_path)) == before


def test_a_category_without_objects_is_no_class(tmp_path):
    """Roboflow's first one is the parent of the others; one of a single split stays."""
    roboflow(tmp_path)
    expected = look(tmp_path)
    for file in tmp_path.rglob('*.json'):
        content = json.loads(file.read_text())
        content['categories'].insert(0, dict(id=0, name='animals', supercategory='none'))
        if file.parent.name == 'train':
            content['annotations'] = [one for one in content['annotations'] if one['category_id'] != 3]
        file.write_text(json.dumps(content))
    found = look(tmp_path)
    assert found.classes == expected.classes == NAMES
    assert found.remarks() == [
        'no object of animals, in no split: the model has no such class',
        'nothing to learn of hat: in no image for training',
    ]


# label maps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ('dtype', 'nothing', 'named', 'learnt'),
    [
        *((np.int32, -9999, {}, False), (np.uint16, 65535, {}, False), (np.uint8, 254, {}, False)),
        *((np.uint8, 255, {}, False), (np.uint8, 0, {}, False)),
        *((np.uint8, 0, dict(background=True), True), (np.uint8, 254, dict(names=['1=a', '2=b', '254=c']), True)),
    ],
)
def test_what_a_raster_calls_no_data_is_not_learnt_unless_its_owner_names_it(dtype, nothing, named, learnt, tmp_path):
    drawn = {number: np.where(regions(number) == 0, nothing, regions(number)).astype(dtype) for number in range(8)}
    for number, values in drawn.items():
        photo(tmp_path / f'data/images/{number}.tif', values.shape[::-1])
        (tmp_path / 'data/labels').mkdir(exist_ok=True)
        tags = TiffImagePlugin.ImageFileDirectory_v2()
        tags[42113] = f'{nothing} '
        Image.fromarray(values).save(tmp_path / f'data/labels/{number}.tif', tiffinfo=tags)
    found = look(tmp_path / 'data', **named)
    found.divide(None, 0)
    (tmp_path / 'out').mkdir()
    part = found.prepare(tmp_path / 'out')['train']
    assert len(found.classes) == 2 + learnt
    for number, values in drawn.items():
        labels = np.array(Image.open(Path(part['data_prefix']['seg_map_path'], f'{number}.png')))
        np.testing.assert_array_equal(labels == 255, (values == nothing) & (not learnt))


FORMS = {
    'label maps': lambda root: listed_maps(root, NAMES),
    'label maps by split': split_maps,
    "COCO's form": lambda root: roboflow(root, True),
    "COCO's folders": public_coco,
    "COCO's form, one file": lambda root: coco(root, 'all.json', 'images', range(12)),
    "YOLO's form": yolo,
    "YOLO's form, without data.yaml": lambda root: yolo(root, '{split}', '{split}', described=False),
    "Pascal VOC's form": voc,
    "LabelMe's form": labelme,
    'class folders': lambda root: class_folders(root, 'train', 'val'),
}
IMAGES, MAPS = ('.jpg',), ('.png',)
EXTRA = {
    'README.md': b'# nuts and bolts',
    'version.json': b'{"version": 3}',
    'Thumbs.db': b'\0\1',
    'labels/notes.csv': b'a,b\n1,2\n',
    'settings.yaml': b'lr: 0.1\n',
}


def annotations(root: Path) -> list[Path]:
    return [file for file in sorted(root.rglob('*')) if file.is_file() and file.suffix not in IMAGES]


def texts(root: Path) -> list[Path]:
    return [file for file in annotations(root) if file.suffix not in MAPS]


def damage(root: Path, kind: str, choose) -> set[str]:
    """Damage a file of a folder, and return its name; none where files were only added."""
    kept = [file for file in texts(root) if file.suffix in ('.json', '.xml', '.yaml', '.txt')]
    images = [file for file in sorted(root.rglob('*')) if file.suffix in IMAGES]
    if kind == 'extra files':
        for name, content in EXTRA.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_bytes(content)
        return set()
    if kind == 'image removed':
        image = choose(images)
        image.unlink()
        return {image.name}
    if kind == 'image added':
        photo(choose(images).with_name('another.jpg'))
        return set()
    if kind == 'image twice':
        image = choose(images)
        photo(image.with_suffix('.bmp'))
        return set()
    file = choose((annotations(root) if kind in ('cut off', 'annotation removed') else kept) or images)
    content = file.read_bytes()
    if kind == 'annotation removed':
        file.unlink()
    elif kind == 'cut off':
        begin = content.find(b'train:') + 6  # a description without its splits is another program's
        file.write_bytes(content[: choose(range(max(begin, 1), max(begin + 1, 2, len(content) - 8)))])
    elif kind == 'BOM':
        file.write_bytes(b'\xef\xbb\xbf' + content)
    elif kind == 'another encoding':
        file.write_bytes(content.replace(b'cat', 'k\u00e4tz'.encode('latin-1')).replace(b'0.', '\u732b'.encode('gbk')))
    elif kind == 'in a list' and file.suffix == '.json':
        file.write_bytes(b'[' + content + b']')
    elif kind == 'key removed' and file.suffix == '.json':
        values = json.loads(content)
        values.pop(choose(sorted(values)))
        file.write_text(json.dumps(values))
    elif kind == 'key removed' and file.suffix == '.xml':
        tag = choose(['name', 'bndbox', 'xmin', 'object'])
        file.write_bytes(content.replace(f'<{tag}>'.encode(), b'<other>').replace(f'</{tag}>'.encode(), b'</other>'))
    return {file.name}


KINDS = (
    'extra files', 'image removed', 'image added', 'image twice', 'cut off', 'annotation removed', 'BOM',
    'another encoding', 'in a list', 'key removed',
)  # fmt: skip


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    roots = {}
    for form, make in FORMS.items():
        roots[form] = tmp_path_factory.mktemp('whole') / 'data'
        make(roots[form])
    return roots


@settings(max_examples=60, deadline=None)
@given(form=st.sampled_from(sorted(FORMS)), kind=st.sampled_from(KINDS), draw=st.data())
def test_a_fault_is_named_or_the_books_balance(folders, tmp_path_factory, form, kind, draw):
    root = tmp_path_factory.mktemp('damaged') / 'data'
    shutil.copytree(folders[form], root)
    whole = look(folders[form])
    names = damage(root, kind, lambda items: draw.draw(st.sampled_from(items)))
    try:
        found = look(root)
    except DataError as error:
        # an annotation that is not there cannot be named
        assert kind == 'annotation removed' or any(Path(name).stem in str(error) for name in names), (names, error)
        return
    finally:
        shutil.rmtree(root)
    for book in found.books():
        assert book.total == sum(book.used.values()) + book.left_out.total()
    assert found.images()['train'] <= whole.images()['train'] + (kind in ('image added', 'image twice'))
    # a list of names that lacks its end is a list of names
    if kind != 'annotation removed' and (kind, names) != ('cut off', {'classes.txt'}):
        assert (found.task, found.form, found.classes) == (whole.task, whole.form, whole.classes)
        assert found.images().keys() == whole.images().keys()


CLIPS = st.lists(st.integers(1, 30), min_size=1, max_size=6).filter(lambda counts: sum(counts) >= 4)
FRAMES = st.sampled_from(
    ['{video}/{frame:06}.jpg', 'a/DJI_{video:04}_{frame}.jpg', 'v{video}-{frame:03}_jpg.rf.{hashed:x}.jpg',
     '{hashed:08x}-film{video}_frame {frame}.png', '{video}_{frame}_1080p.jpg']
)  # fmt: skip


@examples()
@given(counts=CLIPS, name=FRAMES, seed=st.integers(0, 99), data=st.data())
def test_a_clip_is_in_one_part_or_gives_a_block_without_a_gap(counts, name, seed, data):
    clips = [
        [name.format(video=video, frame=frame, hashed=16**7 + 10**6 * video + frame * 7919) for frame in range(count)]
        for video, count in enumerate(counts)
    ]
    images = data.draw(st.permutations([image for clip in clips for image in clip]))
    chosen = divide_names(images, [{'a'}] * len(images), seed)
    held = {images[place] for part in chosen for place in part}
    assert sum(map(len, chosen)) == len(held) and 0 < len(held) <= max(0.5 * len(images), 1)
    cut = [clip for clip in clips if 0 < len(held & {*clip}) < len(clip)]
    for clip in cut:
        assert clip[-len(held & {*clip}) :] == sorted(held & {*clip}, key=clip.index)
    total, target = len(images), round(0.2 * len(images))
    if cut and len(counts) > 1:
        assert not [count for count in counts if target <= count <= total / 2], 'a complete clip would do'


@examples()
@given(count=st.integers(4, 40), seed=st.integers(0, 99), alike=st.booleans())
def test_images_with_nothing_in_common_are_drawn(count, seed, alike):
    words = [f'{chr(97 + place // 26)}{chr(97 + place % 26)}' for place in range(count)]
    assert find_clips(words) == [[place] for place in range(count)]
    labels = [{'a' if alike else word} for word in words]
    assert len(divide_names(words, labels, seed)) == max(1, round(0.2 * count))


@examples()
@given(counts=st.lists(st.integers(2, 12), min_size=2, max_size=3), seed=st.integers(0, 9))
def test_classes_that_were_photographed_one_after_another_are_in_both_parts(counts, seed):
    """The opposite fault: a block from the end of all photographs would be the last class alone."""
    labels = [{place} for place, count in enumerate(counts) for _ in range(count)]
    images = [f'IMG_{place:04}.jpg' for place in range(len(labels))]
    if len(images) < 10:
        return
    held = {place for clip in divide_names(images, labels, seed) for place in clip}
    trained = set().union(*(labels[place] for place in range(len(images)) if place not in held))
    assert trained == {*range(len(counts))}


@pytest.mark.parametrize('make', [maps, class_folders])
def test_the_books_balance_and_the_note_names_what_is_held_back(make, tmp_path):
    make(tmp_path)
    found = look(tmp_path)
    found.divide(None, 0)
    for book in found.books():
        assert book.total == sum(book.used.values()) + book.left_out.total() and book.used['val']
    assert make is maps or found.counts.total() == len(found.of_split['train'])
    if make is maps:
        (note,) = found.remarks()
        assert 'images/06.jpg to 07.jpg are for validation; --split random' in note
    parts = [Counter(Path(sample.image).parent for sample in part) for part in found.of_split.values()]
    assert parts[0].keys() == parts[1].keys()
