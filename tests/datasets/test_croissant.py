"""The Croissant metadata of mini data are valid, and lead to its annotations and images, by MLCommons' own reader."""

import json
import sys
from pathlib import Path

import pytest
import tiny

pytestmark = pytest.mark.release  # mlcroissant is installed in an environment of its own


def test_mlcroissant_accepts_and_reads_it(tmp_path):
    data = tmp_path / 'mini'
    tiny.run(*tiny.MMLAPE, 'make-mini-data', data, '--digits', 10, '--train', 4, '--val', 2, cwd=tmp_path)
    uv = Path(sys.prefix, 'uv', 'bin', 'uv')
    of_its_own = ('run', '-q', '--no-project', '--with', 'mlcroissant==1.1.1')
    written = tiny.run(uv, *of_its_own, 'python', tiny.ROOT / 'docs' / 'croissant.py', data, cwd=tmp_path)
    assert 'wrote' in written
    read = (
        'import mlcroissant as mlc, sys, json\n'
        'found = mlc.Dataset(jsonld=sys.argv[1])\n'
        'assert not found.metadata.issues.errors\n'
        'boxes = list(found.records(record_set="annotations-val"))\n'
        'images = list(found.records(record_set="coco-images-files"))\n'
        'print(json.dumps([len(boxes), len(images)]))\n'
    )
    printed = tiny.run(uv, *of_its_own, 'python', '-c', read, data / 'croissant.json', cwd=tmp_path)
    instances = json.loads((data / 'coco/annotations/instances_val2017.json').read_text())
    assert json.loads(printed.splitlines()[-1]) == [len(instances['annotations']), 6]
