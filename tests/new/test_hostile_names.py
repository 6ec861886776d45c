"""Names of classes, files and folders are data to `mmlape new` and to every command after it, whatever stands in them.

Each name would run code where its text was pasted into a config, or be replaced as MMEngine's variables are.
"""

import json
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
import pytest
import yaml
from mmengine.config import Config
from PIL import Image

from mmlape.cli import main

RUNS = "__import__('os').mkdir('canary')"
NAMES = (
    '{{x}}',
    "{{$X:x|',__import__('os').mkdir('canary'),#" + 'p' * 60 + '}}',
    "'''+" + RUNS + "+'''",
    '"""+' + RUNS + '+"""',
    '{{ fileBasename }}{{_base_.model}}{{{$HOME:a}}}',
    '\\',
    '$PATH [red]%s{}',
)
LINES = '"""\n' + RUNS + '\n"""'
COUNT = 14
RANDOM = np.random.default_rng(0)


def image(path: Path, values: np.ndarray | None = None) -> str:
    """Write an image, or a label map."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = RANDOM.integers(0, 255, (40, 40, 3)) if values is None else values
    Image.fromarray(values.astype(np.uint8)).save(path)
    return path.name


def label_maps(root: Path, names: tuple[str, ...]) -> list[str]:
    for number in range(COUNT):
        image(root / f'images/{number}.jpg')
        image(root / f'labels/{number}.png', np.arange(1600).reshape(40, 40) % len(names))
    return ['--classes', *names]


def coco(root: Path, names: tuple[str, ...]) -> list[str]:
    files = [image(root / f'images/{number}.jpg') for number in range(COUNT)]
    images = [dict(id=number, file_name=file, width=40, height=40) for number, file in enumerate(files)]
    box = dict(bbox=[2, 2, 20, 20], area=400, iscrowd=0)
    boxes = [dict(box, id=number + 1, image_id=number, category_id=number % len(names)) for number in range(COUNT)]
    categories = [dict(id=number, name=name) for number, name in enumerate(names)]
    (root / 'a.json').write_text(json.dumps(dict(images=images, annotations=boxes, categories=categories)))
    return []


def yolo(root: Path, names: tuple[str, ...]) -> list[str]:
    (root / 'labels/train').mkdir(parents=True)
    for number in range(COUNT):
        image(root / f'images/train/{number}.jpg')
        (root / f'labels/train/{number}.txt').write_text(f'{number % len(names)} 0.5 0.5 0.4 0.4\n')
    description = dict(path='.', train='images/train', val='images/train', names=list(names))
    (root / 'data.yaml').write_text(yaml.safe_dump(description))
    return []


def voc(root: Path, names: tuple[str, ...]) -> list[str]:
    (root / 'Annotations').mkdir(parents=True)
    bounds = '<bndbox><xmin>3</xmin><ymin>3</ymin><xmax>20</xmax><ymax>20</ymax></bndbox>'
    size = '<size><width>40</width><height>40</height><depth>3</depth></size>'
    for number in range(COUNT):
        image(root / f'JPEGImages/{number}.jpg')
        label = f'<object><name>{escape(names[number % len(names)])}</name>{bounds}</object>'
        (root / f'Annotations/{number}.xml').write_text(f'<annotation>{size}{label}</annotation>')
    return []


def labelme(root: Path, names: tuple[str, ...]) -> list[str]:
    for number in range(COUNT):
        file = image(root / f'{number}.jpg')
        shape = dict(label=names[number % len(names)], points=[[3, 3], [20, 20]], shape_type='rectangle', flags={})
        content = dict(version='5.5.0', shapes=[shape], imagePath=file, imageData=None)
        (root / f'{number}.json').write_text(json.dumps(content))
    return []


def class_folders(root: Path, names: tuple[str, ...]) -> list[str]:
    for name in names:
        for number in range(6):
            image(root / name / f'{number}.jpg')
    return []


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('X', RUNS)
    yield
    assert not Path('canary').exists()


@pytest.mark.parametrize('form', [label_maps, coco, yolo, voc, labelme, class_folders])
def test_names_are_data(form):
    """Those of classes, and that of the folder; with a new line in it they may be one line of refusal."""
    root = Path(''.join(NAMES))
    root.mkdir()
    options = form(root, NAMES)
    assert main(['new', str(root), '--model', 'mini', '--iters', '20', '--out', 'config.py', *options]) == 0
    assert set(Config.fromfile('config.py').classes) == set(NAMES)


@pytest.mark.parametrize('form', [label_maps, coco, yolo, voc, labelme, class_folders])
def test_a_new_line_in_a_name_is_data_or_refused(form, capsys):
    root = Path(LINES)
    root.mkdir()
    options = form(root, (LINES, 'b'))
    status = main(['new', str(root), '--model', 'mini', '--iters', '20', '--out', 'config.py', *options])
    printed = capsys.readouterr().err
    assert set(Config.fromfile('config.py').classes) == {LINES, 'b'} if status == 0 else printed.count('error:') == 1


def test_a_run_of_such_classes_trains_tests_and_predicts(capsys):
    class_folders(Path('data'), NAMES[:2])
    assert main(['new', 'data', '--model', 'mini', '--iters', '20', '--out', 'config.py']) == 0
    fast = [
        f'{split}_dataloader.{key}' for split in ('train', 'val') for key in ('num_workers=0', 'persistent_workers=0')
    ]
    options = ['--shorten', '0.1', '--allow-batch-mismatch', '--cfg-options', 'train_dataloader.batch_size=2', *fast]
    assert main(['train', 'config.py', '--seed', '1', '--work-dir', 'run', *options]) == 0
    assert main(['test', 'run']) == 0
    assert main(['predict', 'run', 'data', '--out', 'out']) == 0
    assert main(['print-params', 'run']) == 0
    capsys.readouterr()
    assert main(['print-config', 'run']) == 0
    Path('printed.py').write_text(capsys.readouterr().out)
    for file in ('run/config.py', 'printed.py'):
        assert set(Config.fromfile(file).classes) == set(NAMES[:2])
