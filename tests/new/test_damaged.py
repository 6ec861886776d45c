"""`mmlape new` on damaged folders: an error that names the file, or books that balance, and the right classes."""

import json
import shutil
from pathlib import Path

import pytest
from drawn_data import (
    NAMES,
    class_folders,
    coco,
    labelme,
    listed_maps,
    photo,
    public_coco,
    roboflow,
    split_maps,
    voc,
    yolo,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from mmlape.errors import DataError
from mmlape.new.command import look

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
    """Damage a file of a folder, and return its name and those of the files that the fault may be seen in."""
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
