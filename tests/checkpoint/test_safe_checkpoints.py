"""Checkpoints of real runs load by the safe rules, optimiser and averages included; files that are no such thing, or
carry something to run, end every tool with one line.
"""

import re

import pytest
import torch
from mmengine.config import Config
from tiny import train, write_config, write_data

from mmlape.cli import main

AVERAGED = """
custom_hooks = [dict(type='EMAHook', momentum=0.3)]
default_hooks['checkpoint'].update(interval=1, max_keep_ckpts=-1)
train_cfg.update(max_iters=4)
"""


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A configuration with AdamW and an average of the weights, and the work dir of four bfloat16 iterations of it."""
    folder = tmp_path_factory.mktemp('trained')
    config = write_config(folder, write_data(folder / 'data'), AVERAGED)
    train(config, folder / 'out', '--amp', 'bf16', '--seed', '1')
    return config, folder / 'out'


def test_the_state_of_another_optimiser_is_no_traceback(trained, tmp_path, capsys):
    content = torch.load(trained[1] / 'iter_3.pth', weights_only=False)
    content['optimizer']['param_groups'].pop()
    torch.save(content, tmp_path / 'iter_3.pth')
    resume = ['--resume', str(tmp_path / 'iter_3.pth')]
    assert main(['train', str(trained[0]), '--work-dir', str(tmp_path), '--amp', 'bf16', *resume]) == 1
    assert 'cannot be resumed with this configuration: ValueError' in capsys.readouterr().err


def test_text_stored_as_a_configuration_is_never_run(trained, tmp_path):
    """MMEngine's resume evaluates it as Python; here a run resumes from it, and starts from it."""
    config, done = trained
    marker = tmp_path / 'ran'
    text = f'import os\nos.mkdir({str(marker)!r})\n'
    Config.fromstring(text, '.py')
    assert marker.exists(), 'the text must be one that would run'
    marker.rmdir()
    content = torch.load(done / 'iter_3.pth', weights_only=False)
    content['meta'].update(cfg=text, config=text)
    (tmp_path / 'out').mkdir()
    hostile = tmp_path / 'out' / 'iter_3.pth'
    torch.save(content, hostile)
    printed = train(config, tmp_path / 'out', '--amp', 'bf16', '--resume', hostile)
    assert re.search(rf'checkpoint {hostile} \(complete model layout\): loaded (\d+) of \1\b', printed)
    assert (tmp_path / 'out' / 'iter_4.pth').is_file()
    init = f'model.backbone.init_cfg={{"type":"Pretrained","checkpoint":"{hostile}"}}'
    printed = train(config, tmp_path / 'new', '--cfg-options', f'load_from={hostile}', init, 'train_cfg.max_iters=1')
    assert printed.count(f'checkpoint {hostile} (') == 2
    assert not marker.exists()
