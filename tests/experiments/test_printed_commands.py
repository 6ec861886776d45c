"""The commands that a plan prints are ones that run: our parsers take them, and the files that they name exist."""

import re
import shlex
from pathlib import Path

import pytest
import tiny
from each import each

from mmlape.cli import main
from mmlape.lab.config.config_file import load_config
from mmlape.lab.experiments.multi_seed import show_arms
from mmlape.lab.experiments.planning import processes_of, read_arms, train_options
from mmlape.lab.studies import is_study, read_arm
from mmlape.openmmlab.mim import resolve_path

STUDIES = ('vit-adapter-coco', 'lape-table3', 'fashion-mnist')


def _parsed(command):
    """The options of training in a command, and its number of processes."""
    words = shlex.split(command)
    if words[:2] == ['mmlape', 'train']:
        return words[2], train_options(words[3:]), 1
    assert words[0] == 'bash' and Path(words[1]).name == 'dist_train.sh' and Path(words[1]).is_file()
    return words[2], train_options(words[4:]), int(words[3])


@pytest.mark.parametrize('extra', [(), ('--amp', 'bf16', '--allow-batch-mismatch')])
def test_each_arms_command_runs_alone(extra, capsys):
    for name in each(STUDIES):
        arms, seeds, work_dir = read_arms([str(tiny.ROOT / 'studies' / f'{name}.yml')])
        show_arms(arms[:3], work_dir, seeds, extra)
        lines = re.findall(r'^\S+: (mmlape train .*|bash .*)$', capsys.readouterr().out, re.MULTILINE)
        assert len(lines) == len(arms[:3])
        for line in lines:
            config, options, processes = _parsed(line)
            assert is_study(config) and read_arm(config) and resolve_path(config.rpartition(':')[0])
            assert options.seed == seeds[0] and options.work_dir.startswith(work_dir)
            assert processes == (1 if extra else processes_of(load_config(config)))


def test_a_plan_for_slurm_needs_none_and_shows_the_script(tmp_path, monkeypatch, capsys):
    config = tiny.write_config(tmp_path, tiny.write_data(tmp_path / 'data'), 'load_from = "gone.pth"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr('shutil.which', lambda name: None)
    words = ['multi-seed', str(config), '--seeds', '1', '2', '--work-dir', 'w', '--slurm', '--gpus-per-node', '0']
    assert main([*words, '--dry-run']) == 0
    out = capsys.readouterr().out
    assert out.count('gone.pth') == 1 and 'gone.pth, from which 2 runs would start' in out
    script = out[out.index('#!/bin/bash') :]
    assert re.search(r'^#SBATCH --job-name=tiny-seed_1-', script, re.MULTILINE)
    [command] = re.findall(r'^exec srun .*?train\.py (.*)$', script, re.MULTILINE)
    given, *options = shlex.split(command)
    assert Path(given).is_file() and train_options(options).seed == 1
    assert not Path('w').exists()
    assert main(words) == 1 and 'no sbatch or squeue here' in capsys.readouterr().err
