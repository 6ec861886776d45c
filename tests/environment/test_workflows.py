"""The workflows of GitHub: valid, and their steps are the targets and scripts that run here, too."""

import os
import re
import subprocess

import pytest
import yaml
from tiny import ROOT

FOLDER = ROOT / '.github' / 'workflows'
WORKFLOWS = sorted(FOLDER.glob('*.yml'))
ACTIONS = {
    'actions/checkout': None,
    'actions/setup-python': {'python-version'},
    'actions/upload-artifact': {'name', 'path'},
    'actions/download-artifact': {'name', 'path'},
    'actions/upload-pages-artifact': {'path'},
    'actions/deploy-pages': None,
    'pypa/gh-action-pypi-publish': None,
}
"""The actions, with their inputs; all else is a target or a script."""


def read(path):
    content = yaml.safe_load(path.read_text())
    content['on'] = content.pop(True)  # YAML 1.1 reads the key so
    return content


def steps():
    for path in WORKFLOWS:
        for name, job in read(path)['jobs'].items():
            for number, step in enumerate(job['steps']):
                yield pytest.param(path, step, id=f'{path.stem}-{name}-{number}')


@pytest.mark.parametrize(('path', 'step'), steps())
def test_a_step_is_a_known_action_a_target_or_a_script(path, step):
    assert set(step) <= {'id', 'uses', 'with', 'run', 'env'} and ('uses' in step) != ('run' in step)
    if 'uses' in step:
        name, _, version = step['uses'].partition('@')
        assert re.fullmatch(r'v\d+|release/v1', version)
        assert set(step.get('with', {})) == (ACTIONS[name] or set())
        return
    program, *words = step['run'].split()
    if program == 'make':
        plan = subprocess.run(['make', '-n', *words], cwd=ROOT, capture_output=True, text=True)
        assert len(words) == 1 and plan.returncode == 0 and plan.stdout, plan.stderr
    else:
        assert not words and os.access(ROOT / program, os.X_OK)
