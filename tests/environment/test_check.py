"""`make check` chooses the tests of what has changed."""

import pytest
from check import select

FILES = {
    'tests/tiny.py': 'import os',
    'tests/runs_helper.py': 'from tiny import run',
    'tests/models/test_vit.py': 'from mmlape.models import ViT',
    'tests/models/test_swin.py': 'import pytest',
    'tests/checkpoint/test_files.py': 'def test():\n    from mmlape.models.swin import layers',
    'tests/checkpoint/test_layouts.py': 'import torch',
    'tests/checkpoint/test_swin_checkpoints.py': 'import torch',
    'tests/configs/test_configs.py': 'import torch',
    'tests/runs/test_resume.py': 'import runs_helper',
    'tests/slurm/test_slurm.py': 'import tiny',
    'tests/environment/test_cli.py': 'from mmlape.cli import main',
}


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ('changed', 'expected'),
    [
        (['tests/models/test_vit.py'], ['models/test_vit']),
        (['tests/models/test_deleted.py'], []),
        (['mmlape/models/vit/model.py'], ['models/test_vit', 'models/test_swin']),
        (['mmlape/models/swin/layers.py'], ['checkpoint/test_files', 'models/test_swin', 'models/test_vit']),
        (['mmlape/models/swin/checkpoint.py'],
         ['checkpoint/test_layouts', 'checkpoint/test_swin_checkpoints', 'models/test_swin', 'models/test_vit']),
        (['mmlape/projects/detr/checkpoint.py'], ['checkpoint/test_layouts']),
        (['tests/tiny.py'], ['runs/test_resume']),
        (['mmlape/cli.py'], ['environment/test_cli']),
        (['configs/segmenter/a.py', 'README.md'], ['configs/test_configs']),
        (['README.md'], []),
    ],
)  # fmt: skip
def test_the_tests_of_a_change(root, changed, expected):
    assert select(changed, root) == [f'tests/{name}.py' for name in expected]
