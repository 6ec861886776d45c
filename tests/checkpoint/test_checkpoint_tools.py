"""Inspecting, converting, publishing and averaging checkpoints: round trips are exact, refusals say why."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from checkpoint_helpers import assert_same, run_file, save
from model_helpers import randomise, vit

from mmlape.checkpoint import load_model, read_checkpoint, state_dict_of
from mmlape.checkpoint.converting import average, convert, publish
from mmlape.checkpoint.inspecting import inspect
from mmlape.cli import main
from mmlape.errors import CheckpointError

TOOL = (*tiny.MMLAPE, 'checkpoint')


@pytest.mark.parametrize(
    ('kwargs', 'to', 'reason'),
    [
        (dict(pe_joining='lape'), 'timm', ("pe_joining='lape'", r'blocks\.\*\.pe_norm\.weight')),
        (dict(layer_scale_init_value=0.1), 'lape', ('layer_scale_init_value=', r'blocks\.\*\.gamma1')),
        (dict(patch_norm='dual'), 'lape', ("patch_norm='dual'", r'patch_embed\.norm0\.weight')),
        (dict(final_norm=False), 'lape', ('final_norm=False', 'a model without a last norm')),
        (dict(pe_type='none'), 'lape', ("pe_type='none'", 'a model without a position encoding')),
        (dict(with_prefix_pe=False), 'lape', ('with_prefix_pe=False', 'tokens without a row of the PE')),
    ],
)
def test_a_layout_without_a_place_for_something_refuses(tmp_path, kwargs, to, reason):
    """The record of a file of ours tells it, the names of another's."""
    source = vit(**kwargs)
    files = run_file(tmp_path / 'a.pth', source), save(tmp_path / 'foreign.pth', source.state_dict())
    for path, told in zip(files, reason):
        with pytest.raises(CheckpointError, match=f'the {to} layout has no place for .*({told}).*use --to mmlape'):
            convert(path, tmp_path / 'b.pth', to)
    assert not (tmp_path / 'b.pth').exists()


def test_average_is_the_mean_and_refuses_other_models(tmp_path):
    models = [vit(), vit()]
    paths = [save(tmp_path / f'{i}.pth', m.state_dict(), 'state_dict') for i, m in enumerate(models)]
    average(paths, tmp_path / 'mean.pth')
    load_model(mean := vit(), str(tmp_path / 'mean.pth'))
    for name, value in mean.state_dict().items():
        parts = [m.state_dict()[name] for m in models]
        torch.testing.assert_close(value, (parts[0] + parts[1]) / 2)
    other = save(tmp_path / 'other.pth', vit(pe_joining='lape').state_dict(), 'state_dict')
    with pytest.raises(CheckpointError, match='are not of one model'):
        average([paths[0], other], tmp_path / 'x.pth')
    with pytest.raises(CheckpointError, match='is there already'):
        average(paths, tmp_path / 'mean.pth')


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


def test_the_numbers_of_parameters_are_without_buffers(tmp_path):
    model = vit()
    extra = {'head.weight': torch.zeros(5, 24), 'norm.num_batches_tracked': torch.tensor(3)}
    own = sum(parameter.numel() for parameter in model.parameters())
    told = inspect(save(tmp_path / 'a.pth', model.state_dict() | extra))
    assert told['parameters'] == f'{own:,} in the backbone, {own + 120:,} in the file'


def test_the_tool_on_the_command_line(tmp_path):
    path = run_file(tmp_path / 'a.pth', randomise(vit(pe_joining='lape')))
    shown = tiny.run(*TOOL, 'inspect', path, cwd=tmp_path)
    assert 'lape-shared' not in shown
    assert f"checkpoint='{path}'))\n" in shown.split("to load it: backbone=dict(type='mmlape.VisionTransformer'")[1]
    assert hashlib.sha256(Path(path).read_bytes()).hexdigest() in shown
    refused = tiny.run(*TOOL, 'convert', path, tmp_path / 'b.pth', '--to', 'timm', cwd=tmp_path, status=1)
    assert refused.startswith('mmlape: error: ') and 'Traceback' not in refused


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
