"""The script by which lint checks that imports of the package point down, on made-up packages."""

from pathlib import Path

import pytest
from import_graph import problems


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
    'lab/runs/record.py': 'from mmlape import errors\nfrom ..training.trainer import train\n',
    'lab/runs/names.py': '"""Of mmlape.models."""\n\nPLACES = "mmlape.models.vit", "mmlape.lab.training"\n',
    'lab/training/__init__.py': 'from mmlape.lab.training.trainer import train\n',
    'lab/training/trainer.py': 'import mmlape.errors\n\n\ndef train():\n    from . import hooks\n',
    'lab/training/hooks.py': 'from mmlape.lab.training.batch import size\n',
    'lab/training/batch.py': 'def size():\n    import mmlape.lab.training.trainer\n',
    'models/__init__.py': '',
    'models/vit/model.py': 'from torch import nn\nfrom timm import layers\nfrom mmlape.models import weight_init\n',
    'models/timm/model.py': 'import torch\nfrom timm import create_model\n\n\ndef make():\n    import timm\n',
    'models/weight_init.py': 'from mmengine.model import BaseInit\n',
    'projects/detr/model.py': 'from mmdet.models import DETR\nfrom mmlape.projects.t2t.model import nn\n',
    'projects/t2t/model.py': 'from torch import nn\nimport mmcv\n',
}
"""With each violation, in the forms in which it can be written."""


def test_each_violation_is_found(tmp_path):
    root = package(tmp_path, FILES)
    assert problems(root) == [
        'circle: mmlape.lab.training.batch <-> mmlape.lab.training.hooks <-> mmlape.lab.training.trainer',
        'upwards: mmlape.lab.runs.record -> mmlape.lab.training.trainer',
        'upwards, by a string: mmlape.lab.runs.names -> mmlape.models',
        'from project to project: mmlape.projects.detr.model -> mmlape.projects.t2t.model',
        'not for the core: mmlape.models.timm.model -> timm',
        'not for the core: mmlape.models.vit.model -> mmlape.models.weight_init',
        'not for the core: mmlape.models.vit.model -> timm',
        'not for the core: mmlape.projects.t2t.model -> mmcv',
    ]
    package(tmp_path, dict.fromkeys(FILES, '') | {'utils.py': 'import mmlape.errors\n'})
    with pytest.raises(ValueError, match=r'mmlape\.utils: utils has no place'):
        problems(root)
