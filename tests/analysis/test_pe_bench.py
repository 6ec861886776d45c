"""pe-bench: a user's file, asked before any training, and what it runs."""

import copy
import os
import sys
from types import SimpleNamespace

import pytest

from mmlape.cli import main
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.lab.engine.config import load_config
from mmlape.projects.pe_bench import bench
from mmlape.projects.pe_bench.bench import FULL, QUICK, bench_arms
from mmlape.projects.pe_bench.contract import check_kind, import_kind

HEAD = """
import torch
from torch import nn
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models.position import AbsolutePosition, AttentionPosition
from mmlape.models.position.base import LayerPosition

@POSITION_ENCODINGS.register_module('mine')
"""
GOOD = """
class Mine(AbsolutePosition):
    def table(self, grid, embed_dims, num_prefix):
        return torch.ones(1, num_prefix + grid[0] * grid[1], embed_dims)
"""
INSIDE = """
class Mine(AttentionPosition):
    def attach(self, attn, slot):
        super().attach(attn, slot)
        attn.slope = nn.Parameter(torch.ones(1))
    def logits(self, attn, q, k, grid):
        count = grid[0] * grid[1]
        return attn.slope * torch.{what}
"""
BETWEEN = """
class Mine(LayerPosition):
    def attach(self, layer, embed_dims):
        layer.scale = nn.Parameter(torch.zeros(embed_dims))
    def apply(self, layer, x, grid):
        return {what}
"""


@pytest.fixture
def user_file(tmp_path, monkeypatch):
    """Write a user's file; what its import changes is undone."""
    POSITION_ENCODINGS.import_from_location()
    kinds, path, modules = dict(POSITION_ENCODINGS.module_dict), list(sys.path), set(sys.modules)
    monkeypatch.setenv('PYTHONPATH', os.environ.get('PYTHONPATH', ''))

    def write(text, name='my_own_position'):
        file = tmp_path / f'{name}.py'
        file.write_text(text)
        return str(file)

    yield write
    POSITION_ENCODINGS.module_dict = kinds
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith('my_own'):
            del sys.modules[name]


@pytest.mark.parametrize(
    'text',
    [GOOD, INSIDE.format(what='randn(1, 1, count, count)'), BETWEEN.format(what='x * (1 + layer.scale)')],
    ids=['absolute', 'inside', 'between'],
)
def test_a_kind_of_each_contract_passes(user_file, text):
    file = user_file(HEAD + text)
    assert import_kind(file) == 'mine'
    check_kind(file, 'mine')
    assert import_kind(file) == 'mine', 'a second time in the same process'
    assert os.environ['PYTHONPATH'].split(os.pathsep)[0] == os.path.dirname(file)


@pytest.mark.parametrize('protocol', [FULL, QUICK], ids=['full', 'quick'])
def test_the_users_arm_is_the_studys_default_with_another_encoding(user_file, protocol, tmp_path):
    file = user_file(HEAD + GOOD)
    import_kind(file)
    arms, seeds = bench_arms(file, 'mine', protocol, tmp_path / 'work')
    assert [arm.name for arm in arms] == [
        'mine',
        *sorted(protocol.ours, key=['default', 'lape', 'none', 'rope', 'cpe'].index),
    ]
    assert seeds == (401, 402, 403, 404, 405)[: protocol.seeds]
    del POSITION_ENCODINGS.module_dict['mine'], sys.modules['my_own_position']  # as in a process that trains
    own, default = (load_config(arm.config, list(arm.cfg_options)) for arm in arms[:2])
    assert 'mine' in POSITION_ENCODINGS.module_dict, 'the config imports the file'
    assert own.model.backbone.pe_type == 'mine' and 'my_own_position' in own.custom_imports.imports
    own, default = (copy.deepcopy(cfg.to_dict()) for cfg in (own, default))
    for values in (own, default):
        values['model']['backbone'].pop('pe_type', None)
        values.pop('custom_imports', None)
    assert own == default
    if protocol is QUICK:
        assert default['train_cfg']['max_iters'] == 150
        assert default['test_dataloader']['dataset']['data_root'] == 'data/mini-sizes-quick/ade/'


def test_a_bench_runs_the_commands_of_the_study(user_file, tmp_path, monkeypatch, capsys):
    """What it trains and evaluates is asked of multi-seed's and size-sweep's own functions."""
    file, calls = user_file(HEAD + GOOD), []
    arms = ['mine', *QUICK.ours]

    def study(study, launcher, dry_run):
        calls.append((study.work_dir, [arm.name for arm in study.arms], study.seeds, dry_run))
        return 0

    made = SimpleNamespace(run=lambda args: calls.append((args.path if hasattr(args, 'path') else args, 'data')))
    module = bench.COMMANDS['size-sweep'].module
    monkeypatch.setattr(module, 'run', calls.append)
    monkeypatch.setattr(bench.COMMANDS['make-mini-data'].module, 'run', made.run)
    monkeypatch.setattr(bench, 'run_study', study)
    monkeypatch.chdir(tmp_path)
    assert main(['pe-bench', file, '--quick', '--dry-run', '--work-dir', 'work']) == 0
    assert len(calls) == 1 and calls[0][3] is True
    assert main(['pe-bench', file, '--quick', '--work-dir', 'work']) == 0
    data, trained, swept = calls[1:]
    assert data[1] == 'data' and sorted(trained[1]) == sorted(arms) and len(trained[2]) == 3
    assert swept.scales == [2.0] and swept.baseline == 'mine' and set(swept.arms) == set(arms)
    assert 'first look' in capsys.readouterr().out
