"""The full check of data: its counts, and images that are there twice."""

import json
import shutil
from collections import Counter

import numpy as np
from data_helpers import FOLDERS, ade_cfg, coco_cfg, folder_cfg
from PIL import Image

from mmlape.lab.datasets.checks import full_check

SPLITS = ('train', 'val')


def test_good_data_has_no_errors_and_exact_counts(mini):
    stored = json.loads((mini / 'coco/annotations/instances_train2017.json').read_text())
    maps = [np.asarray(Image.open(path)) for path in (mini / 'ade/annotations/training').iterdir()]
    pixels = np.bincount(np.concatenate([labels.ravel() for labels in maps]), minlength=13)[1:]
    images = [len(list((mini / 'digits/train' / name).iterdir())) for name in FOLDERS]
    for cfg, counts in (
        (coco_cfg(mini / 'coco'), Counter(entry['category_id'] - 1 for entry in stored['annotations'])),
        (ade_cfg(mini / 'ade'), dict(enumerate(pixels.tolist()))),
        (folder_cfg(mini / 'digits', metainfo=dict(classes=FOLDERS)), dict(enumerate(images))),
    ):
        report = full_check(cfg, SPLITS)
        assert not report.errors
        assert report.summaries[0].labels == Counter(counts)
        assert [summary.checked for summary in report.summaries] == [summary.images for summary in report.summaries]


def test_images_in_training_and_validation(mini):
    coco = mini / 'coco'

    def found(**options):
        issues = full_check(coco_cfg(coco), SPLITS, **options).issues
        return {(group.split, group.severity, group.topic): group for group in issues}

    shutil.copy(coco / 'train2017/000000000005.jpg', coco / 'val2017/000000000002.jpg')
    shutil.copy(coco / 'train2017/000000000001.jpg', coco / 'train2017/000000000004.jpg')
    issues = found()
    shared = issues[('val', 'warning', 'image in train and val')]
    assert shared.count == 1 and 'val2017/000000000002.jpg' in shared.examples[0]
    assert 'train2017/000000000005.jpg' in shared.examples[0]
    assert issues[('train', 'warning', 'duplicate image')].count == 1
    for path in (coco / 'val2017').iterdir():
        shutil.copy(coco / 'train2017' / path.name, path)
    shared = found()[('val', 'error', 'image in train and val')]
    assert shared.count == 3 and 'All 3 images' in shared.examples[0]
    assert ('val', 'warning', 'image in train and val') in found(sample=3), 'a sample proves less'
