"""The full check of data: one defect each, in broken mini data; none ends the check."""

import json
import shutil

import numpy as np
import pytest
from data_helpers import FOLDERS, ade_cfg, coco_cfg, folder_cfg
from PIL import Image

from mmlape.lab.datasets.checks import full_check
from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data
from mmlape.lab.datasets.mini.scenes import DIGIT_NAMES

SPLITS = ('train', 'val')


@pytest.fixture(scope='module')
def pristine(tmp_path_factory):
    """20 images to train on, so that every digit occurs in both splits."""
    root = tmp_path_factory.mktemp('data') / 'mini'
    make_mini_data(
        root, MiniOptions(train=20, val=10, digits=50, size=(64, 64), digit_size=(20, 30), per_scene=(3, 5))
    )
    return root


def found(cfg, **options):
    """{(split, severity, kind): group}."""
    report = full_check(cfg, SPLITS, **options)
    return {(group.split, group.severity, group.topic): group for group in report.issues}


def train_json(mini):
    return mini / 'coco' / 'annotations' / 'instances_train2017.json'


def test_good_data_has_no_issues_and_exact_counts(mini):
    stored = json.loads(train_json(mini).read_text())
    report = full_check(coco_cfg(mini / 'coco'), SPLITS)
    assert not len(report.issues) and [summary.checked for summary in report.summaries] == [20, 10]
    names = [DIGIT_NAMES[entry['category_id'] - 1] for entry in stored['annotations']]
    train = report.summaries[0]
    assert {train.classes[label]: count for label, count in train.labels.items()} == {
        name: names.count(name) for name in names
    }
    report = full_check(ade_cfg(mini / 'ade'), SPLITS)
    assert not len(report.issues)
    maps = [np.asarray(Image.open(path)) for path in (mini / 'ade/annotations/training').iterdir()]
    counts = np.bincount(np.concatenate([labels.ravel() for labels in maps]), minlength=13)
    assert [report.summaries[0].labels[label] for label in range(12)] == counts[1:].tolist()
    report = full_check(folder_cfg(mini / 'digits', metainfo=dict(classes=FOLDERS)), SPLITS)
    assert not len(report.issues)
    assert report.summaries[0].labels == {
        label: len(list((mini / 'digits/train' / name).iterdir())) for label, name in enumerate(FOLDERS)
    }


def test_images_in_training_and_validation(mini):
    coco = mini / 'coco'
    shutil.copy(coco / 'train2017/000000000007.jpg', coco / 'val2017/000000000002.jpg')
    shutil.copy(coco / 'train2017/000000000001.jpg', coco / 'train2017/000000000009.jpg')
    issues = found(coco_cfg(coco))
    shared = issues[('val', 'warning', 'image in train and val')]
    assert shared.count == 1 and 'val2017/000000000002.jpg' in shared.examples[0]
    assert 'train2017/000000000007.jpg' in shared.examples[0]
    assert issues[('train', 'warning', 'duplicate image')].count == 1
    for path in (coco / 'val2017').iterdir():
        shutil.copy(coco / 'train2017' / path.name, path)
    shared = found(coco_cfg(coco))[('val', 'error', 'image in train and val')]
    assert shared.count == 10 and 'All 10 images' in shared.examples[0]
    assert ('val', 'warning', 'image in train and val') in found(coco_cfg(coco), sample=10), 'a sample proves less'
