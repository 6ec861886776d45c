"""The script by which lint checks that imports of the package point down, on made-up packages."""

from pathlib import Path

import pytest
from import_graph import circles, foreign, problems, read, upward


def package(folder: Path, files: dict[str, str]) -> Path:
    """A package with these modules."""
    for name, text in files.items():
        path = folder / 'mmlape' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / 'mmlape'


FILES = {
    '__init__.py': '',
    'errors.py': 'import os\n',
    'lab/__init__.py': '',
    'lab/runs/__init__.py': '',
    'lab/runs/record.py': 'from mmlape import errors\nfrom ..engine.trainer import train\n',
    'lab/engine/__init__.py': 'from mmlape.lab.engine.trainer import train\n',
    'lab/engine/trainer.py': 'import mmlape.errors\n\n\ndef train():\n    from . import hooks\n',
    'lab/engine/hooks.py': 'from mmlape.lab.engine.batch import size\n',
    'lab/engine/batch.py': 'def size():\n    import mmlape.lab.engine.trainer\n',
}
"""With a circle through a lazy import, and an import from `runs` up to `engine`."""


def test_circles_and_upward_imports_are_found_in_every_form(tmp_path):
    root = package(tmp_path, FILES)
    graph = read(root)
    assert graph['mmlape.lab.runs.record'] == {'mmlape.errors', 'mmlape.lab.engine.trainer'}
    assert graph['mmlape.lab.engine.trainer'] == {'mmlape.errors', 'mmlape.lab.engine.hooks'}
    assert circles(graph) == [['mmlape.lab.engine.batch', 'mmlape.lab.engine.hooks', 'mmlape.lab.engine.trainer']]
    assert upward(graph) == [('mmlape.lab.runs.record', 'mmlape.lab.engine.trainer')]
    package(tmp_path, {'lab/engine/batch.py': '', 'lab/runs/record.py': ''})
    assert problems(root) == []
    package(tmp_path, {'utils.py': 'import mmlape.errors\n'})
    with pytest.raises(ValueError, match=r'mmlape\.utils: utils has no place'):
        problems(root)


def test_the_core_imports_what_its_table_says_and_nothing_above_it(tmp_path):
    files = {
        '__init__.py': 'import os\n',
        'log.py': 'import rich\n',
        'registry.py': 'import mmengine\n',
        'weights/reading.py': 'import numpy.lib\nfrom torch import nn\n\n\ndef read():\n    import mmengine\n',
        'checkpoint/loading.py': 'def load():\n    from mmengine import Config\n',
        'models/vit/model.py': 'from torch import nn\nfrom timm.layers import Mlp\nfrom mmlape import registry\n',
        'models/timm/model.py': 'import torch\nfrom timm import create_model\n\n\ndef make():\n    import timm\n',
        'projects/detr/model.py': 'from mmdet.models import DETR\nfrom mmlape.registry import MODELS\n',
        'projects/t2t/model.py': 'from torch import nn\nimport mmcv\n',
        'models/weight_init.py': 'from mmengine.model import BaseInit\n',
        'models/grid.py': 'from mmlape.models.weight_init import CUT\n',
    }
    root = package(tmp_path, files)
    found = foreign(root)
    assert [tuple(name.removeprefix('mmlape.') for name in pair) for pair in found] == [
        ('checkpoint.loading', 'mmengine'),
        ('log', 'rich'),
        ('models.grid', 'models.weight_init'),
        ('models.timm.model', 'timm'),
        ('models.vit.model', 'registry'),
        ('models.vit.model', 'timm'),
        ('projects.t2t.model', 'mmcv'),
    ]
