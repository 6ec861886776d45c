"""Inspecting, converting, publishing and averaging checkpoints: round trips are exact, refusals say why."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from checkpoint_helpers import assert_same, save
from model_helpers import vit

from mmlape.checkpoint import read_checkpoint, state_dict_of
from mmlape.checkpoint.converting import average, inspect, publish
from mmlape.cli import main
from mmlape.errors import CheckpointError


def test_an_average_is_summed_in_float64_whatever_the_files_have(tmp_path):
    """bfloat16 has eight bits: its own sums of these are 1 to 3 % off. Counters are the last file's."""
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.uniform(1, 2, (9, 50)))
    paths = []
    for number, row in enumerate(values):
        tensors = {'half': row.bfloat16(), 'single': (row * 1e8).float(), 'steps': torch.tensor(number * 7)}
        tensors['single'][0] = (3e8, -1.0, -3e8)[number % 3]
        paths.append(save(tmp_path / f'{number}.pth', tensors, 'state_dict'))
    average(paths, tmp_path / 'mean.pth')
    mean = torch.load(tmp_path / 'mean.pth', weights_only=True)['state_dict']
    exact = values.bfloat16().double().mean(0)
    assert torch.equal(mean['half'], exact.bfloat16()) and mean['half'].dtype is torch.bfloat16
    assert float(mean['single'][0]) == pytest.approx(-1 / 3, rel=1e-6) and mean['single'].dtype is torch.float32
    torch.testing.assert_close(mean['single'][1:], (values * 1e8).float().double().mean(0)[1:].float())
    assert mean['steps'] == 56 and mean['steps'].dtype is torch.int64
    with pytest.raises(CheckpointError, match='at least two checkpoints'):
        average(paths[:1], tmp_path / 'one.pth')
    other = save(tmp_path / 'other.pth', {'half': values[0].bfloat16()}, 'state_dict')
    with pytest.raises(CheckpointError, match='are not of one model'):
        average([paths[0], other], tmp_path / 'two.pth')


def test_publish_keeps_weights_only_and_names_the_hash(tmp_path):
    model = vit()
    path = save(tmp_path / 'a.safetensors', model.state_dict(), 'state_dict', optimizer={'x': 1})
    publish(path, path)
    (there := tmp_path / 'out' / 'vit.safetensors').parent.mkdir()
    there.write_text('of somebody else')
    file = publish(path, there)
    assert 'optimizer' in read_checkpoint(path) and there.read_text() == 'of somebody else'
    assert {*there.parent.iterdir()} == {file, there} and inspect(file)['sha256'][:8] in file.name
    assert_same(model, SimpleNamespace(state_dict=lambda: read_checkpoint(file)))
    with pytest.raises(CheckpointError, match='no EMA weights in it'):
        publish(save(tmp_path / 'b.pth', model.state_dict()), tmp_path / 'c.safetensors', 'ema')
    with pytest.raises(CheckpointError, match=r'c\.pth: published weights are a \.safetensors file'):
        publish(path, tmp_path / 'c.pth')


@pytest.mark.parametrize('writer', ['EMAHook', 'timm'])
def test_publish_takes_the_weights_that_are_asked_for(tmp_path, writer):
    """MMEngine's hook saves the average as the model's weights, and the plain ones beside it; timm does not."""
    plain, mean = {'w': torch.ones(3), 'n': torch.tensor(7)}, {'w': torch.zeros(3), 'n': torch.tensor(7)}
    beside = {**{f'module.{name}': value for name, value in plain.items()}, 'steps': torch.tensor(9)}
    path = save(tmp_path / 'a.pth', mean if writer == 'EMAHook' else plain, 'state_dict',
                **({'ema_state_dict': beside} if writer == 'EMAHook' else {'state_dict_ema': mean}))  # fmt: skip
    for weights, expected in (('plain', plain), ('ema', mean)):
        file = publish(path, tmp_path / f'{weights}.safetensors', weights)
        found = read_checkpoint(file)
        assert set(found) == {'w', 'n', 'meta'} and torch.equal(found['w'], expected['w']) and found['n'] == 7
        assert hashlib.sha256(file.read_bytes()).hexdigest()[:8] in file.name
    assert torch.equal(state_dict_of(read_checkpoint(path), path)['w'], (mean if writer == 'EMAHook' else plain)['w'])


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
@pytest.mark.parametrize('action', ['convert', 'average'])
def test_a_file_that_is_there_is_written_over_only_if_asked(tmp_path, capsys, action, suffix):
    first, second, there = tmp_path / 'a.pth', tmp_path / 'b.pth', tmp_path / f'there{suffix}'
    for path in (first, second):
        save(path, vit().state_dict(), 'state_dict')
    there.write_bytes(b'kept')
    words = [str(first), str(there), '--to', 'mmlape']
    words = words if action == 'convert' else [str(first), str(second), '--out', str(there)]
    assert main(['checkpoint', action, *words]) == 1
    assert f'{there} is there already' in capsys.readouterr().err and there.read_bytes() == b'kept'
    assert main(['checkpoint', action, *words, '--overwrite']) == 0
    assert read_checkpoint(there)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(['a.pth', 'b.pth', there.name])
