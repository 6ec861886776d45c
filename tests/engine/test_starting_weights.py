"""Weights to start from that are not there, or are of another width: told before anything is written, with the fix."""

import re

import pytest
import tiny
from config_helpers import CONFIGS, load
from each import each

from mmlape.cli import main
from mmlape.errors import MissingCheckpointError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.runs.identity import checkpoint_keys, is_missing
from mmlape.lab.training.plan import missing_weights
from mmlape.lab.training.trainer import train
from mmlape.openmmlab.mim import resolve_path


def test_every_file_of_our_configs_has_a_source():
    """The config that makes it, with a model of the same position encoding; or the page that says where it is."""
    made = set()
    for path in each(CONFIGS):
        for key, file in checkpoint_keys(load(path)):
            if file in made or not is_missing(file) or not file.startswith(('pretrained/', 'work_dirs/')):
                continue
            made.add(file)
            source = re.search('`mmlape train (mmlape::[^`]+)` makes it', missing_weights(key, file))
            if source is None:
                assert 'configs/running.md' in missing_weights(key, file) and '_lape' not in file, file
                continue
            backbone = load(resolve_path(source[1])).model.backbone
            assert ('lape' in file) == (backbone.get('pe_joining') == 'lape')
            assert ('dpn' in file) == (backbone.get('patch_norm') == 'dual')
    assert len(made) > 20
    assert not is_missing('hf-hub:timm/vit_base_patch16_224.mae')


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
        assert not (tmp_path / 'run').exists()
        assert main(['train', str(config), '--work-dir', str(tmp_path / 'run'), '--seed', '1']) == 1
        assert f'give one by --cfg-options {key}=FILE' in capsys.readouterr().err
