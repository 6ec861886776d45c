"""Each form of data in its layouts: `mmlape new` finds it, the check accepts it, and datasets read what was drawn.

What the written config's datasets have of an image is compared with what a perfect model sees in its pixels.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import pixels_of
from data_helpers import KEPT
from drawn_data import (
    HUES,
    NAMES,
    cityscapes,
    class_folders,
    coco,
    labelme,
    listed_maps,
    maps,
    picture,
    public_coco,
    roboflow,
    seen,
    split_maps,
    voc,
    write_list,
    yolo,
)
from mmengine.config import Config
from mmengine.registry import DATASETS, HOOKS, init_default_scope
from PIL import Image
from test_contract_coco import COCO
from test_contract_maps import CLASS_FOLDERS

from mmlape.cli import main


@dataclass(frozen=True)
class Layout:
    """Files of one form, and what `mmlape new` makes of them."""

    make: Callable[[Path], Any]
    classes: tuple[str, ...] = NAMES
    labels: tuple[int, ...] = (0, 1, 2)  # of what is drawn as each of the three classes
    options: tuple[str, ...] = ()
    images: int = 12
    val: int | None = 4  # of them for validation, where the data say
    palette: Any = None  # of the tool
    told: str = ''  # among what is printed


def of_maps(make, classes=('class 0', 'class 1', 'class 2'), labels=(0, 1, 2), images=8, val=None, **more) -> Layout:
    return Layout(make, classes, labels, images=images, val=val, **more)


def yolo_without_val(root: Path) -> None:
    """As small public sets are: the images of train are named for val, too."""
    yolo(root)
    for folder in ('images', 'labels'):
        for file in (root / folder / 'val').iterdir():
            file.rename(root / folder / 'train' / file.name)
    description = root / 'data.yaml'
    description.write_text(description.read_text().replace('val: images/val', 'val: images/train'))


def camvid(root: Path) -> None:
    for split, numbers in (('train', range(6)), ('val', range(6, 8)), ('test', range(8, 10))):
        maps(root, f'{split}/{split}{{}}.png', f'{split}_labels/{split}{{}}_L.png', numbers, lambda ids: HUES[ids])
    (root / 'class_dict.csv').write_text('name,r,g,b\nVoid,0,0,0\nRoad,200,30,0\nSky,0,90,255\n')


def obj_data(root: Path) -> None:
    """As CVAT writes YOLO 1.1: its lists begin with a folder that is not there."""
    yolo(root, 'obj_{split}_data', 'obj_{split}_data', described=False)
    (root / 'classes.txt').rename(root / 'obj.names')
    (root / 'obj.data').write_text('classes = 3\ntrain = data/train.txt\nnames = data/obj.names\nbackup = backup/\n')
    for split in ('train', 'val'):
        images = sorted((root / f'obj_{split}_data').glob('*.jpg'))
        write_list(root / f'{split}.txt', [f'data/{image.relative_to(root)}' for image in images])


def ultralytics(root: Path) -> None:
    yolo(root)
    for split in ('train', 'val'):
        images = sorted((root / f'images/{split}').glob('*.jpg'))
        write_list(root / f'{split}.txt', [f'data/{image.relative_to(root)}' for image in images])
    lists = 'train: train.txt\nval: val.txt\ntest: ../test/images\n'  # without images, as Roboflow leaves it
    (root / 'data.yaml').write_text(f'path: .\n{lists}names: {{0: cat, 1: dog, 2: hat}}\n')


def label_studio(root: Path) -> None:
    yolo(root, described=False)
    categories = [dict(id=number, name=name) for number, name in enumerate(NAMES)]  # as in classes.txt
    (root / 'notes.json').write_text(json.dumps(dict(categories=categories, info=dict(contributor='Label Studio'))))


def mixed_maps(root: Path) -> None:
    """Images of two suffixes, and one without a map."""
    maps(root)
    picture(root / 'images/new.jpg', 9)
    picture(root / 'images/00.png', 0)
    (root / 'images/00.jpg').unlink()


def roboflow_masks(root: Path) -> None:
    for split, numbers in (('train', range(8)), ('valid', range(8, 12))):
        name = f'{split}{{}}_jpg.rf.0a'
        maps(root, f'{split}/{name}.jpg', f'{split}/{name}_mask.png', numbers)
        (root / split / '_classes.csv').write_text('Pixel Value, Class\n0, cat\n1, dog\n2, hat\n')


def cvat_masks(root: Path, convert=lambda ids: HUES[ids]) -> None:
    maps(root, 'JPEGImages/{}.jpg', 'SegmentationClass/{}.png', convert=convert)
    lines = [f'{name}:{",".join(map(str, colour))}::' for name, colour in zip(NAMES, HUES)]
    (root / 'labelmap.txt').write_text('\n'.join(['# label:color_rgb:parts:actions', *lines]) + '\n')


def palette_masks(root: Path) -> None:
    maps(root)
    for file in (root / 'labels').iterdir():
        image = Image.open(file)
        image.putpalette(HUES.ravel().tolist())
        image.save(file)


def changed(change: Callable[[Path, dict], Any], masks: bool = False) -> Callable[[Path], None]:
    """Return a maker of Roboflow's files, each with one change."""

    def make(root: Path) -> None:
        roboflow(root, masks)
        for file in root.rglob('*.json'):
            content = json.loads(file.read_text())
            change(file, content)
            file.write_text(json.dumps(content))

    return make


def named(name: str) -> Callable[[Path], None]:
    """Return a maker of files whose names of images are paths."""

    def change(file: Path, content: dict) -> None:
        for one in content['images']:
            folder, image = file.parent, one['file_name']
            one['file_name'] = name.format(root=folder.parent.resolve(), folder=folder.name, name=image)

    return changed(change)


def without_area(file: Path, content: dict) -> None:
    for one in content['annotations']:
        del one['area'], one['iscrowd']


def spread_ids(file: Path, content: dict) -> None:
    """Number categories as COCO does, which has left some out."""
    for one in content['categories']:
        one['id'] = 10 * one['id'] + 3
    for one in content['annotations']:
        one['category_id'] = 10 * one['category_id'] + 3


def move_boxes(file: Path, content: dict) -> None:
    for one in content['annotations']:
        one['bbox'][0] += 5


LAYOUTS = {
    'segmentation': {
        'two folders': of_maps(maps),
        'splits by folder': of_maps(split_maps, images=9, val=3),
        'one folder, same stem': of_maps(lambda root: maps(root, 'all/{}.jpg', 'all/{}.png')),
        'one folder, a word behind': of_maps(lambda root: maps(root, 'all/{}.png', 'all/{}_mask.png')),
        'two suffixes': of_maps(mixed_maps, told='no annotation: 1'),
        'palette': of_maps(lambda root: maps(root, mode='P')),
        'names': of_maps(lambda root: listed_maps(root, NAMES), NAMES),
        'names, none for 0': of_maps(lambda root: listed_maps(root, NAMES[:2]), ('background', *NAMES[:2])),
        'ids from 1': of_maps(lambda root: listed_maps(root, NAMES, lambda ids: ids + 1), NAMES),
        'binary': of_maps(
            lambda root: maps(root, convert=lambda ids: np.where(ids == 2, 255, 0)),
            ('background', 'object'),
            (0, 0, 1),
        ),
        'sparse ids': of_maps(lambda root: maps(root, convert=lambda ids: ids * 7 + 3), ('id 3', 'id 10', 'id 17')),
        'ids of 16 bits': of_maps(
            lambda root: maps(root, convert=lambda ids: ids * 300), ('id 0', 'id 300', 'id 600')
        ),
        'colours': of_maps(
            lambda root: maps(root, convert=lambda ids: HUES[ids]),
            ('background', 'colour 0,90,255', 'colour 200,30,0'),
            (0, 2, 1),
            palette=[HUES[place].tolist() for place in (0, 2, 1)],
        ),
        'Cityscapes': of_maps(cityscapes, val=2, told='beside the map of the classes: 20'),
        'CamVid': of_maps(camvid, ('Void', 'Road', 'Sky'), val=2, palette=HUES.tolist(), told='for testing: 2'),
        'masks of Roboflow': of_maps(roboflow_masks, NAMES, images=12, val=4),
        'masks of CVAT': of_maps(cvat_masks, NAMES, palette=HUES.tolist()),
        'palette that is one': of_maps(palette_masks, palette=HUES.tolist()),
        'grey in three channels': of_maps(
            lambda root: maps(root, convert=lambda ids: np.repeat(ids[..., None], 3, axis=2))
        ),
    },
    'boxes': {
        'roboflow': Layout(roboflow),
        'roboflow, masks left out': Layout(lambda root: roboflow(root, True), options=('--task', 'boxes')),
        'one file, no split': Layout(lambda root: coco(root, 'all.json', 'pictures/deep', range(12)), val=None),
        'YOLO': Layout(yolo),
        'YOLO, a folder a split': Layout(lambda root: yolo(root, '{split}/images', '{split}/labels')),
        'YOLO, beside the images': Layout(lambda root: yolo(root, '{split}', '{split}')),
        'YOLO, bare': Layout(lambda root: yolo(root, described=False)),
        'YOLO, train for val': Layout(yolo_without_val, val=None),
        'YOLO of CVAT': Layout(obj_data),
        'YOLO of Ultralytics': Layout(ultralytics),
        'YOLO of Label Studio': Layout(label_studio),
        'Pascal VOC': Layout(voc),
        'paths from the file': Layout(named('../{folder}/{name}')),
        'ids with gaps': Layout(changed(spread_ids)),
        'complete paths': Layout(named('{root}/{folder}/{name}')),
        'paths of Windows': Layout(named('..\\{folder}\\{name}')),
        'LabelMe, rectangles': Layout(lambda root: labelme(root, True)),
    },
    'masks': {
        'roboflow': Layout(lambda root: roboflow(root, True)),
        "COCO's folders": Layout(public_coco),
        'YOLO, polygons': Layout(lambda root: yolo(root, polygon=True)),
        'LabelMe': Layout(labelme),
        'no area': Layout(changed(without_area, True)),
        'boxes beside their outlines': Layout(
            changed(move_boxes, True), told='24 objects have a box beside their outline, whose extent is taken'
        ),
    },
    'classes': {
        'no split': Layout(class_folders, images=18, val=None),
        'train and val': Layout(lambda root: class_folders(root, 'train', 'val'), images=36, val=18),
        'train and test': Layout(lambda root: class_folders(root, 'train', 'test'), images=36, val=18),
    },
}
LOADS: dict[str, list[dict]] = {
    'segmentation': [dict(type='LoadAnnotations', reduce_zero_label=False), dict(type='PackSegInputs')],
    'boxes': [dict(type='LoadAnnotations', with_bbox=True), dict(type='PackDetInputs')],
    'masks': [dict(type='LoadAnnotations', with_bbox=True, with_mask=True), dict(type='PackDetInputs')],
    'classes': [dict(type='PackInputs')],
}


@pytest.mark.parametrize(('task', 'name'), [(task, name) for task, layouts in LAYOUTS.items() for name in layouts])
def test_what_was_drawn_is_found_accepted_and_read(task, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    layout = LAYOUTS[task][name]
    layout.make(Path('data'))
    assert main(['new', 'data', '--model', 'mini', '--iters', '20', *layout.options]) == 0  # which checks the data
    assert layout.told in capsys.readouterr().out
    cfg = Config.fromfile('data.py')
    assert cfg.classes == layout.classes
    assert task != 'segmentation' or cfg.train_dataloader.dataset.metainfo.get('palette') == layout.palette
    init_default_scope(cfg.default_scope)
    if 'roi_head' in cfg.model:
        assert ('mask_head' in cfg.model.roi_head) == (task == 'masks')
        assert cfg.model.train_cfg.rcnn.sampler.num == 64, 'two objects an image'
        stop = HOOKS.build(cfg.custom_hooks[0])
        assert not any(stop._check_stop_condition(rising)[0] for rising in np.linspace(0, 0.2, 20)), 'AP rises slowly'
    paths = []
    for split in ('train', 'val'):
        pipeline = [dict(type='LoadImageFromFile'), *LOADS[task]]
        dataset = DATASETS.build(dict(cfg[f'{split}_dataloader'].dataset, test_mode=True, pipeline=pipeline, **KEPT))
        for place in range(len(dataset)):
            sample = dataset[place]
            paths.append(sample['data_samples'].img_path)
            if task == 'segmentation':
                ids = sample['data_samples'].gt_sem_seg.data[0].numpy()
                np.testing.assert_array_equal(ids, np.array(layout.labels)[seen(pixels_of(sample)).clip(0)])
            else:
                (CLASS_FOLDERS if task == 'classes' else COCO).require_learnt(sample)
    assert len(paths) == len({*paths}) == layout.images
    assert layout.val in (None, len(dataset))
    assert task != 'segmentation' or all(Path(path).is_symlink() for path in paths)
    for file in Path('data_data').glob('*.json') if name == 'no area' else ():
        annotations = json.loads(file.read_text())['annotations']
        assert annotations and all(one['area'] == one['bbox'][2] * one['bbox'][3] for one in annotations)
