"""What the check of data prints and writes about data with one defect of each kind."""

import json
from pathlib import Path

import numpy as np
import pytest
from data_helpers import ade_cfg, coco_cfg, edit
from PIL import Image
from told import assert_told

from mmlape.lab.datasets.checks import full_check, print_report, write_report


def spoil_coco(mini) -> None:
    def change(content):
        content['annotations'][0]['bbox'] = [10, 10, -5, 3]
        content['annotations'][1]['category_id'] = 99
        content['annotations'][2]['image_id'] = 12345
        content['images'][1]['width'] += 1

    edit(mini / 'coco' / 'annotations' / 'instances_train2017.json', change)
    images = sorted((mini / 'coco' / 'train2017').iterdir())
    images[0].write_bytes(b'no image')
    images[2].unlink()
    (mini / 'coco' / 'val2017' / 'copy.jpg').write_bytes(images[3].read_bytes())


def spoil_ade(mini) -> None:
    maps = sorted((mini / 'ade' / 'annotations' / 'training').iterdir())
    Image.fromarray(np.full((64, 64), 77, np.uint8)).save(maps[0])
    Image.fromarray(np.zeros((30, 64), np.uint8)).save(maps[1])
    maps[2].unlink()
    (mini / 'ade' / 'images' / 'validation' / 'note.txt').write_text('no image')


@pytest.mark.parametrize(('name', 'config', 'spoil'), [('coco', coco_cfg, spoil_coco), ('ade', ade_cfg, spoil_ade)])
def test_what_is_told_of_defects(mini, tmp_path, capsys, monkeypatch, name, config, spoil):
    monkeypatch.setenv('COLUMNS', '180')
    monkeypatch.chdir(mini.parent)  # tables wrap long paths
    spoil(mini)
    report = full_check(config(Path(mini.name) / name), ('train', 'val'), workers=1)
    report.seconds = 2.0
    capsys.readouterr()  # what packages print when they are imported
    print_report(report)
    write_report(report, 'config.py', tmp_path / 'report.json')
    written = json.dumps(json.loads((tmp_path / 'report.json').read_text()), indent=1)
    sampled = full_check(config(Path(mini.name) / name), ('train',), sample=2, workers=1)
    sampled.seconds = 1.0
    print_report(sampled)
    assert_told(f'data-{name}', capsys.readouterr().out + written)
