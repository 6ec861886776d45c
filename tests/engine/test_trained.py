"""Which config and which checkpoint a user names: of a run, of a file, and in every command that takes them."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import tiny
import torch
from each import each

import mmlape
from mmlape.cli import main
from mmlape.errors import CheckpointError, ConfigError, MMLaPEError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.inference.trained_model import complete_config, open_trained, opened_config
from mmlape.lab.training.trainer import train

RESIZE = "\ntest_pipeline.insert(1, dict(type='Resize', scale=(32, 32), keep_ratio=True))\n"


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A finished run of a tiny segmentor in 'run', its config 'tiny.py' and its data."""
    root = tmp_path_factory.mktemp('trained')
    config = tiny.write_config(root, tiny.write_data(root / 'data', train=4, val=2), RESIZE)
    train(load_config(config), root / 'run', seed=0)
    return root


@pytest.fixture
def run(folder, tmp_path):
    return shutil.copytree(folder / 'run', tmp_path / 'run')


def test_of_a_run_it_is_the_best_checkpoint_else_the_newest(run):
    """The best one by run.json, then the newest that is called so, then the one of the most iterations."""
    record = json.loads((run / 'run.json').read_text())
    step, key = record['best']['step'], record['best']['key']
    (kept,) = run.glob('best_*.pth')
    assert kept.name == f'best_{key.rpartition("/")[2]}_iter_{step}.pth'
    other = kept.with_name('best_other_iter_99.pth')
    shutil.copy(kept, other)
    for age, file in enumerate((kept, other)):
        os.utime(file, (10**9 + age, 10**9 + age))
    value = record['best']['metrics'][key]
    for chosen, said in (
        (kept, f'best checkpoint: {kept.name}, {key} {value:.4g}'),
        (other, f'best checkpoint: {other.name}'),
        (run / 'iter_6.pth', 'newest checkpoint: iter_6.pth (no best one was kept)'),
        (run / 'iter_3.pth', 'newest checkpoint: iter_3.pth (no best one was kept)'),
    ):
        found = open_trained(run)
        assert (found.checkpoint, found.chosen, found.is_named) == (str(chosen), said, False)
        assert found.name == f'tiny, {chosen.stem}'
        chosen.unlink()
    for file in run.glob('*.pth'):
        file.unlink()
    with pytest.raises(CheckpointError, match=rf'^{run} has no checkpoint yet: train further'):
        open_trained(run)


def test_every_way_of_naming_a_model_finds_it(folder, run):
    best = next(run.glob('best_*.pth'))
    weights = torch.load(best, weights_only=False)['state_dict']
    for words in each(([run], [best], [run, best], [folder / 'tiny.py', best], ['run', best.name])):
        words = [run / word if word == best.name else run if word == 'run' else word for word in words]
        found = open_trained(words, ['model.decode_head.channels=16'] if len(words) == 3 else None)
        assert Path(found.checkpoint) == best and found.config.model.type == 'EncoderDecoder'
        assert found.is_named == (words[0] == folder / 'tiny.py')
        model = mmlape.load(*words, device='cpu')
        assert all(torch.equal(value, weights[name]) for name, value in model.module.state_dict().items())
    changed = open_trained(run, ['model.backbone.drop_path_rate=0.5'])
    assert changed.config.model.backbone.drop_path_rate == 0.5
    assert open_trained([folder / 'tiny.py', 'none']).checkpoint is None


def test_what_names_no_model_is_an_error_with_the_fix(folder, run, tmp_path):
    config, best = folder / 'tiny.py', next(run.glob('best_*.pth'))
    (tmp_path / 'arm').mkdir()
    shutil.copytree(run, tmp_path / 'arm' / 'seed_1')
    (without := shutil.copytree(run, tmp_path / 'without')).joinpath('tiny.py').unlink()
    torch.save(dict(state_dict={}), tmp_path / 'plain.pth')
    for words, error, message in (
        ([config], ConfigError, 'tiny.py is a config without weights: give its checkpoint behind it, or the'),
        ([config, config], ConfigError, 'are not a config and its checkpoint: give the folder of a run'),
        ([best, config], ConfigError, 'are not a config and its checkpoint'),
        ([best, best], ConfigError, 'are not a config and its checkpoint'),
        ([config, run], ConfigError, 'are not a config and its checkpoint'),
        ([run, best, best], ConfigError, '3 words name no trained model: give'),
        ([tmp_path / 'nowhere.py', best], ConfigError, 'nowhere.py does not exist'),
        ([tmp_path / 'nothing'], ConfigError, 'nothing does not exist: give the folder of a run'),
        ([tmp_path / 'nothing.pth'], CheckpointError, 'nothing.pth: there is no such file'),
        ([tmp_path / 'plain.pth'], ConfigError, 'plain.pth holds no config: give the config first'),
        ([tmp_path / 'a.onnx'], ConfigError, 'a.onnx holds no config'),
        ([tmp_path / 'arm'], ConfigError, 'arm is no folder of a run; give one of those below it: .*seed_1'),
        ([folder / 'data'], ConfigError, 'data is no folder of a run: it has no run.json'),
        ([without], ConfigError, 'tiny.py does not exist: give the config and the checkpoint instead'),
    ):
        with pytest.raises(error, match=message):
            open_trained(words)


def test_commands_take_a_run_where_they_take_a_config_and_a_checkpoint(folder, run, tmp_path, monkeypatch, capsys):
    """Each says which checkpoint it took, and gives what CONFIG CHECKPOINT gives."""
    monkeypatch.chdir(tmp_path)
    best, config = next(run.glob('best_*.pth')), folder / 'tiny.py'
    images = folder / 'data' / 'images' / 'validation'
    for number, line in enumerate(
        (
            'test {} --out OUT --page OUT.html',
            f'predict {{}} {images} --out OUT --device cpu',
            'visualize-pe {} --out OUT',
        )
    ):
        command, written = line.split()[0], []
        for model in (str(run), f'{config} {best}'):
            named = model.replace(' ', '@') if command == 'visualize-pe' else model
            out = f'{command}{number}{len(written)}'
            status = main(line.replace('OUT', out).replace('{}', named).split())
            printed = capsys.readouterr()
            assert status == 0, printed.err
            is_said = f'best checkpoint: {best.name}, ' in printed.out
            assert is_said == (model == str(run)), (command, printed.out)
            files = sorted(path for path in tmp_path.rglob(f'{out}*') if path.is_file())
            files += sorted(path for path in Path(out).rglob('*') if path.is_file())
            written.append([path.read_bytes() for path in files if path.suffix in ('.png', '.json', '.npz')])
        assert written[0] == written[1], line
    assert main(['size-sweep', str(run), '--sizes', '32', '--out', 'sweep']) == 0
    assert f'best checkpoint: {best.name}' in capsys.readouterr().out


def test_commands_take_a_run_where_they_take_a_config(folder, run, capsys):
    """What they print of it is what they print of the config."""
    for line in ('print-params {}', 'model-cost {} --size 32', 'check-data {} --splits train val', 'print-config {}'):
        printed = []
        for config in (run, folder / 'tiny.py'):
            assert main(line.replace('{}', str(config)).split()) == 0, capsys.readouterr().err
            printed.append(capsys.readouterr().out)
        assert printed[0] == printed[1] or line == 'print-config {}', line
    assert main(['print-config', str(run), '--diff', str(folder / 'tiny.py')]) == 0
    changed = {line.split(':')[0] for line in capsys.readouterr().out.splitlines()}
    assert 'model.backbone.type' not in changed and not any(key.startswith('test_dataloader') for key in changed)


def opened(run, also=()):
    with opened_config(str(run), also=also) as cfg:
        return cfg


def test_the_config_of_a_run_passes_the_gate(run, monkeypatch):
    """For each use of it; only print-config shows what is never built."""
    text = (run / 'tiny.py').read_text()
    for key, hostile in (
        ('optim_wrapper', "dict(type='os.system', command='touch canary')"),
        ('train_dataloader', "dict(dataset=dict(type='spy.Data'))"),
        ('crop_size', "dict(type='os.system')"),
        ('model', "dict(type='os.system')"),
    ):
        (run / 'tiny.py').write_text(f'{text}\n{key} = {hostile}\n')
        also = [key] if key in ('optim_wrapper', 'train_dataloader') else []
        with pytest.raises(MMLaPEError, match=re.escape(f'{run}/tiny.py: refused, {key}')):
            opened(run, also)
        assert complete_config(str(run))[key]
        if also:
            assert key not in opened(run)
