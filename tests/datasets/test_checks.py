"""The check of data beside the contract: counts, duplicates, heads, a format of one's own, what is told of defects."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from contract import edit_json
from data_helpers import annotations_of, build, coco_config, folders_config, make_coco, make_maps, maps_config, refusal
from drawn_data import NAMES
from mmengine import Config
from PIL import Image
from test_contract_coco import COCO
from test_contract_maps import CLASS_FOLDERS, MAPS
from told import assert_told

from mmlape.lab.datasets.checks import check_data, full_check, print_report, write_report
from mmlape.lab.datasets.folders import read_lines
from mmlape.lab.datasets.formats import FORMATS
from mmlape.lab.datasets.formats.base import WARNING, DataIssue, DataSource, ImageEntry
from mmlape.lab.datasets.retarget import retarget_data
from mmlape.lab.datasets.transforms import patch_size
from mmlape.registry import DATASETS


@pytest.mark.parametrize('kind', [COCO, MAPS, CLASS_FOLDERS], ids=['COCO', 'label maps', 'folders'])
def test_counts_are_exact(kind, tmp_path):
    kind.make(tmp_path)
    files = [np.asarray(Image.open(path)) for path in sorted(tmp_path.glob('labels/train/*'))]
    pixels = [sum(int((ids == label).sum()) for ids in files) for label in (1, 2, 3)]
    counts = [3, 3, 2] if kind is COCO else pixels if kind is MAPS else [2, 2, 2]
    report = full_check(kind.config(tmp_path), ('train', 'val'))
    assert report.summaries[0].labels == dict(enumerate(counts))
    assert [summary.checked for summary in report.summaries] == [summary.images for summary in report.summaries]


def test_images_in_training_and_validation(tmp_path):
    make_coco(tmp_path)
    train, val = (sorted((tmp_path / folder).iterdir()) for folder in ('train2017', 'val2017'))

    def found(**options):
        issues = full_check(coco_config(tmp_path), ('train', 'val'), **options).issues
        return {(group.split, group.severity, group.topic): group for group in issues}

    shutil.copy(train[2], val[1])
    shutil.copy(train[0], train[3])
    issues = found()
    shared = issues[('val', 'warning', 'image in train and val')]
    assert shared.count == 1 and str(val[1]) in shared.examples[0] and str(train[2]) in shared.examples[0]
    assert issues[('train', 'warning', 'duplicate image')].count == 1
    for path, other in zip(val, train):
        shutil.copy(other, path)
    shared = found()[('val', 'error', 'image in train and val')]
    assert shared.count == 4 and 'All 4 images' in shared.examples[0]
    assert ('val', 'warning', 'image in train and val') in found(sample=3), 'a sample proves less'


def test_heads_that_differ_from_the_data(tmp_path):
    make_coco(tmp_path)
    text = refusal(coco_config(tmp_path, count=80))
    assert 'model.roi_head.bbox_head.num_classes is 80' in text and 'has 3 classes' in text
    assert f'data_root={tmp_path},' in text
    cfg = coco_config(tmp_path, NAMES[1:], 2)
    assert check_data(cfg)[0].split == 'train' and build(cfg).metainfo['classes'] == NAMES[1:]
    cfg.model.panoptic_head = dict(num_things_classes=80, num_stuff_classes=0)
    assert 'model.panoptic_head.num_things_classes is 80' in refusal(cfg)
    cfg.model.panoptic_head.num_stuff_classes = 53
    check_data(cfg)
    MAPS.make(tmp_path / 'maps')
    cfg = maps_config(tmp_path / 'maps')
    cfg.model.auxiliary_head[0].num_classes = 150
    assert 'model.auxiliary_head[0].num_classes is 150' in refusal(cfg)
    CLASS_FOLDERS.make(tmp_path / 'folders')
    cfg = folders_config(tmp_path / 'folders')
    cfg.data_preprocessor.num_classes = 1000
    assert 'data_preprocessor.num_classes is 1000' in refusal(cfg)


@DATASETS.register_module()
class ListedImages:
    """A dataset of a format that the package does not know: a text file of image names."""

    METAINFO = dict(classes=('grey',))


class ListSource(DataSource):
    instructions = 'write images.txt'

    def read_classes(self):
        return ('grey', 'white')

    def check_structure(self, complete):
        self.require(self.ann_file, 'List', os.path.isfile)
        yield from self.match_classes(self.read_classes(), f'The names in {self.ann_file}')
        self.entries = [ImageEntry(os.path.join(self.root, name)) for name in read_lines(self.ann_file)]

    def check_annotation(self, entry, size, facts):
        if size[0] != size[1]:
            facts.issues.append(DataIssue(WARNING, 'not square', f'{entry.path} is not square.'))


def test_a_format_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setitem(FORMATS, 'ListedImages', ListSource)
    dataset = dict(type='mmlape.ListedImages', data_root='data', ann_file='images.txt')
    model = dict(head=dict(num_classes=1))
    cfg = Config(dict(data_root='data', train_dataloader=dict(dataset=dataset), model=model))
    assert 'List data/images.txt' in refusal(cfg) and 'write images.txt' in refusal(cfg)
    (tmp_path / 'images.txt').write_text('a.png\nb.png\n')
    for name, size in (('a.png', (20, 20)), ('b.png', (20, 30))):
        Image.new('RGB', size).save(tmp_path / name)
    assert 'model.head.num_classes: 1 -> 2' in retarget_data(cfg, tmp_path)
    assert [summary.num_classes for summary in check_data(cfg)] == [2]
    report = full_check(cfg, ['train'])
    assert [(group.topic, group.count) for group in report.issues] == [('not square', 1)]
    assert report.summaries[0].checked == 2
    (tmp_path / 'a.png').write_bytes(b'no image')
    assert str(tmp_path / 'a.png') in refusal(cfg)


def test_patch_size_is_the_backbones_own():
    for backbone, size in (
        (dict(type='mmlape.VisionTransformer', patch_size=8), 8),
        (dict(type='mmlape.ViTAdapter'), 16),
        (dict(type='mmpretrain.VisionTransformer', patch_size=(4, 2)), 4),
        (dict(type='mmpretrain.ResNet', depth=50), 1),
        ({}, 1),
    ):
        assert patch_size(Config(dict(model=dict(backbone=backbone)))) == size


def spoil_coco(root: Path) -> None:
    def change(content):
        content['annotations'][0]['bbox'] = [10, 10, -5, 3]
        content['annotations'][1]['category_id'] = 99
        content['annotations'][2]['image_id'] = 12345
        content['images'][1]['width'] += 1

    edit_json(annotations_of(root, 'train'), change)
    images = sorted((root / 'train2017').iterdir())
    images[0].write_bytes(b'no image')
    images[2].unlink()
    (root / 'val2017' / 'copy.png').write_bytes(images[3].read_bytes())


def spoil_maps(root: Path) -> None:
    maps = sorted((root / 'labels' / 'train').iterdir())
    Image.fromarray(np.full((40, 64), 77, np.uint8)).save(maps[0])
    Image.fromarray(np.zeros((30, 64), np.uint8)).save(maps[1])
    maps[2].unlink()
    (root / 'images' / 'val' / 'note.txt').write_text('no image')


@pytest.mark.parametrize(
    ('name', 'make', 'config', 'spoil'),
    [('coco', make_coco, coco_config, spoil_coco), ('maps', make_maps, maps_config, spoil_maps)],
)
def test_what_is_told_of_defects(name, make, config, spoil, tmp_path, capsys, monkeypatch):
    """A defect of each kind: what is printed and written."""
    monkeypatch.setenv('COLUMNS', '180')
    monkeypatch.chdir(tmp_path)  # tables wrap long paths
    make(Path(name))
    spoil(Path(name))
    report = full_check(config(name), ('train', 'val'), workers=1)
    report.seconds = 2.0
    capsys.readouterr()  # what packages print when they are imported
    print_report(report)
    write_report(report, 'config.py', 'report.json')
    written = json.dumps(json.loads(Path('report.json').read_text()), indent=1)
    sampled = full_check(config(name), ('train',), sample=2, workers=1)
    sampled.seconds = 1.0
    print_report(sampled)
    assert_told(f'data-{name}', capsys.readouterr().out + written)
