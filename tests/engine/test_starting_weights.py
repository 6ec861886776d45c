"""Weights to start from that are not there, or are of another width: told before anything is written, with the fix."""

import re

import pytest
import tiny
import torch
from config_helpers import CONFIGS, ROOT, load
from each import each
from model_helpers import vit

from mmlape.cli import main
from mmlape.errors import CheckpointError, MissingCheckpointError
from mmlape.lab.engine.config import load_config
from mmlape.lab.engine.plan import missing_weights
from mmlape.lab.engine.trainer import train
from mmlape.lab.runs.identity import checkpoint_keys
from mmlape.mim import resolve_path

MADE = re.compile('`mmlape train (mmlape::[^`]+)` makes it')


def test_every_file_of_our_configs_has_a_source():
    """The config that makes it, with a model of the same position encoding; or the page that says where it is."""
    made = set()
    for path in each(CONFIGS):
        cfg = load(path)
        for key, file in checkpoint_keys(cfg):
            if '://' in file:
                continue
            message = missing_weights(key, file)
            assert message.startswith(f'{key}={file}: there is no such file (')
            source = MADE.search(message)
            if source is None:
                assert 'configs/running.md' in message and f'`{file.rpartition("/")[2]}' in running() + message
                continue
            maker = load(resolve_path(source[1]))
            if 'lape' in file:
                assert maker.model.backbone.pe_joining == 'lape'
            assert ('dpn' in file) == (maker.model.backbone.get('patch_norm') == 'dual')
            made.add(file)
    assert len(made) > 10


def running():
    return (ROOT / 'configs' / 'running.md').read_text()


def test_a_missing_file_leaves_no_record(tmp_path, capsys):
    data = tiny.write_data(tmp_path / 'data', train=2, val=1)
    file = 'work_dirs/deit-mini_1xb32-5e_mini-digits/epoch_5.pth'
    for key, extra in each(
        {
            'load_from': f'load_from = {file!r}\n',
            'model.backbone.init_cfg.checkpoint': f"model['backbone']['init_cfg'] = dict(type='Pretrained', "
            f'checkpoint={file!r})\n',
        }.items()
    ):
        config = tiny.write_config(tmp_path, data, extra)
        with pytest.raises(
            MissingCheckpointError, match=rf'{key}=.*`mmlape train mmlape::deit/deit-mini_.*` makes it'
        ):
            train(load_config(config), tmp_path / 'run', seed=1)
        assert not (tmp_path / 'run' / 'run.json').exists()
        assert main(['train', str(config), '--work-dir', str(tmp_path / 'run'), '--seed', '1']) == 1
        assert f'give one by --cfg-options {key}=FILE' in capsys.readouterr().err


def test_weights_of_another_width_are_told_by_their_shapes(tmp_path):
    torch.save(
        dict(state_dict=vit(dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=64)).state_dict()),
        tmp_path / 'a.pth',
    )
    narrow = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=32)
    for strict in (True, False):
        init = dict(type='Pretrained', checkpoint=str(tmp_path / 'a.pth'), strict=strict)
        with pytest.raises(CheckpointError, match=r'(?s)wrong shape: .* is \(32,\) in the file, \(16,\) in the model'):
            vit(narrow, init_cfg=init).init_weights()
