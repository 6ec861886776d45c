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
TESTED = {'lint', 'docs', 'core', 'locked', 'oldest', 'newest'}


def read(path):
    content = yaml.safe_load(path.read_text())
    content['on'] = content.pop(True)  # YAML 1.1 reads the key so
    return content


def steps():
    for path in WORKFLOWS:
        for name, job in read(path)['jobs'].items():
            for number, step in enumerate(job['steps']):
                yield pytest.param(path, step, id=f'{path.stem}-{name}-{number}')


@pytest.mark.parametrize('path', WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_valid(path):
    content = read(path)
    assert set(content) <= {'name', 'on', 'permissions', 'jobs'} and content['name'] == path.stem
    assert set(content['on']) <= {'push', 'pull_request', 'schedule', 'workflow_dispatch'}
    assert content['permissions'] == {'contents': 'read'}
    for job in content['jobs'].values():
        assert set(job) <= {
            'name', 'needs', 'if', 'runs-on', 'permissions', 'environment', 'concurrency', 'steps',
        }  # fmt: skip
        assert job['runs-on'] == 'ubuntu-latest' and job.get('needs', job) in (job, *content['jobs'])


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


def test_every_stack_is_tested():
    jobs = read(FOLDER / 'tests.yml')['jobs']
    assert set(jobs) == TESTED
    pythons = {name: job['steps'][1]['with']['python-version'] for name, job in jobs.items()}
    assert (pythons['oldest'], pythons['newest']) == ('3.10', '3.13')  # strings: YAML reads 3.10 as a number
    project = (ROOT / 'pyproject.toml').read_text()
    assert "requires-python = '>=3.10'" in project and "'Programming Language :: Python :: 3.13'" in project


def test_a_release_is_built_from_a_tag_and_tested_before_it_is_published():
    content = read(FOLDER / 'release.yml')
    assert content['on'] == {'push': {'tags': ['v*']}}
    assert [step['run'] for step in content['jobs']['build']['steps'] if 'run' in step] == [
        'make dist',
        'make sbom',
        'make release-check',
    ]
    assert content['jobs']['publish']['needs'] == 'build'


def test_each_night_runs_what_is_too_long_for_a_change():
    content = read(FOLDER / 'nightly.yml')
    minute, hour, *every = content['on']['schedule'][0]['cron'].split()
    assert 0 <= int(minute) < 60 and 0 <= int(hour) < 24 and every == ['*'] * 3
    steps = [step for job in content['jobs'].values() for step in job['steps'] if 'run' in step]
    assert [(step['run'], step.get('env')) for step in steps] == [
        ('make release-check', None),
        ('make wrong-lines', None),
        ('make test', {'ARGS': '--random-order'}),
        ('make test-alone', None),
        ('make test-newest', None),
        ('make test-processors', None),
    ]


def test_the_readme_s_badges_are_of_workflows():
    badges = re.findall(r'\]\(\.\./\.\./actions/workflows/([^/\s]+)\)', (ROOT / 'README.md').read_text())
    assert set(badges) == {'tests.yml', 'docs.yml'}
    assert all((FOLDER / name).is_file() for name in badges)
