"""Projects: each name that one offers is there, and all can be left out."""

import os
import shutil
import subprocess
import sys

import pytest
from each import each
from import_graph import ROOT

from mmlape import projects
from mmlape.registry import DATASETS, HOOKS, METRICS, MODELS, TRANSFORMS

WITHOUT = """
import mmlape
from mmlape.cli import main
from mmlape.commands import COMMANDS
from mmlape.registry import DATASETS, MODELS

assert not {'vtab', 'few-shot', 'size-sweep', 'probe', 'visualize-pe'} & set(COMMANDS)
assert main(['vtab', 'studies/vtab.yml']) == 2
assert MODELS.get('CeiT') is MODELS.get('LiT') is DATASETS.get('CaptionDataset') is None
names = mmlape.list_models()
assert 'deit-tiny-lape' in names and 'swin-tiny' in names and not any('ceit' in name for name in names)
assert sum(p.numel() for p in mmlape.get_model('deit-tiny-lape').parameters()) > 5e6
print('done')
"""


def test_a_registry_knows_each_name():
    for name in each(projects.BACKBONES | projects.MODELS | projects.REGISTERED):
        found = [registry.get(f'mmlape.{name}') for registry in (MODELS, DATASETS, TRANSFORMS, METRICS, HOOKS)]
        assert [kind for kind in found if kind is not None] == [getattr(projects, name)]


@pytest.mark.release
def test_the_package_works_without_projects(tmp_path):
    shutil.copytree(ROOT / 'mmlape', tmp_path / 'mmlape', ignore=shutil.ignore_patterns('.mim', '__pycache__'))
    for path in (tmp_path / 'mmlape' / 'projects').iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != '__init__.py':
            path.unlink()
    env = dict(os.environ, PYTHONPATH=str(tmp_path))
    done = subprocess.run([sys.executable, '-c', WITHOUT], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.endswith('done\n'), done.stderr
