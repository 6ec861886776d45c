"""What commands print about checkpoints, configs, studies, models and data."""

from functools import partial
from pathlib import Path

import pytest
import torch
from checkpoint_helpers import run_file
from model_helpers import filled, new_vit
from tiny import write_config, write_data
from told import assert_calls_told, assert_told, call_command

from mmlape.lab.training.smoke import summary
from mmlape.models import ViTAdapter
from mmlape.openmmlab.mim import mim_root

ARCH = dict(embed_dims=24, num_layers=4, num_heads=3, feedforward_channels=48)


@pytest.fixture(autouse=True)
def _place(monkeypatch, tmp_path):
    """In a folder whose name is in no table, on a console of a width."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('COLUMNS', '160')


def told(name: str, capsys) -> None:
    places = dict(folder=Path.cwd(), tools=(mim_root() / 'tools').resolve())
    assert_calls_told(name, partial(call_command, capsys=capsys), **places)


def test_checkpoints(capsys):
    folder = Path.cwd()
    torch.save(filled(new_vit(arch=ARCH, pe_joining='lape', patch_norm='dual')).state_dict(), 'vit.pth')
    plain = filled(new_vit(arch=ARCH)).state_dict()
    torch.save({**plain, 'head.weight': torch.zeros(10, 24)}, 'plain.pth')
    adapter = ViTAdapter(ARCH, 64, conv_inplane=8, deform_num_heads=3, pe_joining='lape')
    run_file(folder / 'adapter.pth', filled(adapter))
    run_file(folder / 'other.pth', filled(adapter))
    told('checkpoints', capsys)


CONFIG = """_base_ = 'tiny.py'
seed_of_mine = 7
train_cfg = dict(max_iters=9)
model = dict(backbone=dict(pe_joining='default', arch=dict(num_layers=3)))
"""
STUDY = """title: Two joinings
base: tiny.py
paper: A paper
seeds: [1, 2]
arms:
  plain: {overrides: {model.backbone.pe_joining: default}, figure: '40.1'}
  lape: {title: With LaPE, figure: '41.2', also: {aAcc: '80.0'}}
"""


def test_configs_and_studies(capsys, tmp_path):
    write_config(tmp_path, write_data(tmp_path / 'data'))
    (tmp_path / 'mine.py').write_text(CONFIG)
    (tmp_path / 'study.yml').write_text(STUDY)
    (tmp_path / 'broken.py').write_text('a = 1\nb = (\n')
    (tmp_path / 'tiny.py').write_text((tmp_path / 'tiny.py').read_text().replace(str(tmp_path), '.'))
    told('configs', capsys)


def test_lists(capsys):
    told('lists', capsys)


def test_data(capsys):
    told('mini-data', capsys)


def test_the_trial_of_a_run():
    facts = dict(
        seconds_per_iter=0.12345, seconds_per_validation=12.3456, images=500, peak_memory_mib=1234.5,
        memory_kind='allocated on one GPU', checkpoint_mib=98.76, free_mib=54321.0, iterations=1000, validations=5,
        checkpoints=2, hours=1.2345, disk_mib=197.52,
    )  # fmt: skip
    without = {key: value for key, value in facts.items() if key != 'images'}
    lines = [*summary(facts), *summary(dict(facts, validations=0)), *summary(without)]
    assert_told('trial', '\n'.join(lines))
