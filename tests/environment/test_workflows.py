"""The workflows of GitHub: what their steps run are targets and scripts that run here, too."""

import os
import subprocess

import yaml
from each import each
from tiny import ROOT


def test_a_step_runs_a_target_or_a_script():
    for path in each(sorted((ROOT / '.github' / 'workflows').glob('*.yml'))):
        steps = [step for job in yaml.safe_load(path.read_text())['jobs'].values() for step in job['steps']]
        for program, *words in (step['run'].split() for step in steps if 'run' in step):
            if program == 'make':
                plan = subprocess.run(['make', '-n', *words], cwd=ROOT, capture_output=True, text=True)
                assert len(words) == 1 and plan.returncode == 0 and plan.stdout, plan.stderr
            else:
                assert not words and os.access(ROOT / program, os.X_OK)
