"""A user's own dataset format, and the facts of a model that data must fit."""

import os

from data_helpers import refusal
from mmengine import Config
from PIL import Image

from mmlape.lab.datasets.checks import check_data, full_check
from mmlape.lab.datasets.folders import read_lines
from mmlape.lab.datasets.formats import FORMATS
from mmlape.lab.datasets.formats.base import WARNING, DataIssue, DataSource, ImageEntry
from mmlape.lab.datasets.retarget import retarget_data
from mmlape.lab.datasets.transforms import patch_size
from mmlape.registry import DATASETS


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
        yield from self.match_classes(self.read_classes(), self.ann_file)
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
