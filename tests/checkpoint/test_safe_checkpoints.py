"""Checkpoints of real runs load by the safe rules, optimiser and averages included; files that are no such thing, or
carry something to run, end every tool with one line.
"""

import contextlib
import logging
import re

import pytest
import torch
from checkpoint_helpers import Payload
from mmengine.config import Config
from tiny import train, write_config, write_data

from mmlape.checkpoint import read_checkpoint
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


def test_what_a_run_saves_loads_by_the_safe_rules(trained):
    content = read_checkpoint(trained[1] / 'iter_3.pth')
    state = content['optimizer']['state']
    assert state and all({'exp_avg', 'exp_avg_sq', 'step'} <= set(values) for values in state.values())
    assert content['ema_state_dict']['steps'] == 3
    assert content['message_hub']['log_scalars']['train/loss'].current() > 0
    assert content['param_schedulers'] and content['meta']['iter'] == 3


def bad_files(folder, good: bytes):
    """Files that are no checkpoint, by name, and what is said of them."""
    payload = Payload()
    payload.path = str(folder / 'ran')
    torch.save({'state_dict': {'x': torch.zeros(1)}, 'extra': payload}, folder / 'hostile.pth')
    numbers = {'state_dict': {'x': 1}, 'optimizer': {}, 'meta': {'iter': 1, 'epoch': 0}, 'message_hub': {}}
    torch.save(numbers, folder / 'numbers.pth')
    (folder / 'cut.pth').write_bytes(good[: len(good) // 2])
    return {
        'hostile.pth': 'would run code', 'numbers.pth': 'no tensors in it', 'cut.pth': 'truncated',
        'none.pth': 'no such file',
    }  # fmt: skip


@pytest.mark.parametrize('use', ['inspect', 'init_cfg', 'load_from', 'resume', 'test'])
def test_a_bad_file_ends_each_tool_with_one_line(trained, tmp_path, capsys, monkeypatch, use):
    config, done = trained
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging, 'raiseExceptions', False)  # MMEngine's logger keeps the stream of an earlier test
    for name, message in bad_files(tmp_path, (done / 'iter_4.pth').read_bytes()).items():
        file = tmp_path / name
        new = ['train', str(config), '--work-dir', f'{use}-{name}']
        words = {
            'inspect': ['checkpoint', 'inspect', str(file)],
            'init_cfg': [
                *new,
                '--cfg-options',
                f'model.backbone.init_cfg={{"type":"Pretrained","checkpoint":"{file}"}}',
            ],
            'load_from': [*new, '--cfg-options', f'load_from={file}'],
            'resume': [*new, '--resume', str(file)],
            'test': ['test', str(config), str(file), '--out', 'metrics.json'],
        }[use]
        with contextlib.suppress(SystemExit):
            assert main(words) == 1, (name, use)
        printed = capsys.readouterr().err
        line = printed[printed.index('mmlape: error: ') :]
        assert name in line and line.count('\n') == 1 and 'Traceback' not in printed, printed
        messages = (message, 'damaged, or not written by torch') if use == 'resume' else (message,)
        assert any(expected in line for expected in messages)
        assert not (tmp_path / 'ran').exists()


def test_the_state_of_another_optimiser_is_no_traceback(trained, tmp_path, capsys):
    content = torch.load(trained[1] / 'iter_3.pth', weights_only=False)
    content['optimizer']['param_groups'].pop()
    torch.save(content, tmp_path / 'iter_3.pth')
    resume = ['--resume', str(tmp_path / 'iter_3.pth')]
    assert main(['train', str(trained[0]), '--work-dir', str(tmp_path), '--amp', 'bf16', *resume]) == 1
    assert 'cannot be resumed with this configuration: ValueError' in capsys.readouterr().err


def test_text_stored_as_a_configuration_is_never_run(trained, tmp_path, monkeypatch):
    """MMEngine's resume evaluates it as Python; here a run goes on from it, starts from it and is tested with it."""
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
    monkeypatch.chdir(tmp_path)
    assert main(['test', str(config), str(hostile), '--out', 'metrics.json']) == 0
    assert main(['checkpoint', 'inspect', str(hostile)]) == 0
    assert not marker.exists()
