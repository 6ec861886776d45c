"""Weights with NaN or infinite values: each command that reads them names the first such tensor in one line."""

import pytest
import tiny
import torch
from each import each

from mmlape.checkpoint.loading import load_model
from mmlape.checkpoint.opening import not_finite
from mmlape.cli import main
from mmlape.errors import CheckpointError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.training.optim import build_model


@pytest.fixture(scope='module')
def given(tmp_path_factory):
    """The config of a tiny model, its weights, and a folder of images."""
    root = tmp_path_factory.mktemp('finite')
    config = tiny.write_config(root, tiny.write_data(root / 'data'))
    torch.manual_seed(0)
    model = build_model(load_config(config))
    torch.save(dict(state_dict=model.state_dict(), meta=dict(cfg=load_config(config).pretty_text)), root / 'good.pth')
    return config, root / 'good.pth', root / 'data' / 'images' / 'validation'


def commands(config, good, bad, images, folder):
    out = folder / 'out'
    yield 'test', config, bad, '--work-dir', folder / 'test'
    yield 'predict', bad, images, '--out', folder / 'a'
    yield 'predict', config, bad, images, '--out', folder / 'b'
    yield 'export-onnx', config, bad, '--out', out / 'a.onnx', '--size', 32, 48
    yield 'export-onnx', config, bad, '--out', out / 'a.onnx', '--backbone', '--size', 32, 48
    yield 'checkpoint', 'publish', bad, out / 'a.safetensors'
    yield 'checkpoint', 'average', good, bad, '--out', out / 'a.pth'
    yield 'checkpoint', 'average', bad, good, '--out', out / 'a.pth'
    yield 'checkpoint', 'convert', bad, out / 'a.pth', '--to', 'mmlape'


def test_every_command_names_the_first_tensor(given, tmp_path, capsys):
    config, good, images = given
    content = torch.load(good, weights_only=False)
    names = [name for name, value in content['state_dict'].items() if name.startswith('backbone.') and value.ndim > 1]
    values = (float('nan'), float('inf'), -float('inf'))
    for number, words in each(enumerate(commands(config, good, tmp_path / 'bad.pth', images, tmp_path))):
        broken = {name: value.clone() for name, value in content['state_dict'].items()}
        for name in names[1:3]:
            broken[name].view(-1)[-1] = values[number % 3]
        torch.save(dict(content, state_dict=broken), tmp_path / 'bad.pth')
        assert main([str(word) for word in words]) == 1
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith('mmlape: error')]
        assert f'{tmp_path / "bad.pth"}: ' in line and names[1].removeprefix('backbone.') in line
        assert 'has values that are NaN or infinite, as 1 more of its' in line
        assert not [path for path in tmp_path.rglob('*') if path.suffix in ('.onnx', '.json') or path.name == 'a.pth']


def test_values_of_every_type():
    for dtype in each((torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
                       torch.float8_e5m2, torch.complex64)):  # fmt: skip
        plain = dict(a=torch.ones(2, 3).to(dtype), b=torch.arange(3), c=torch.ones(2, device='meta'))
        assert not_finite(plain) == ''
        for value in (float('nan'), float('inf')):
            if value == float('inf') and dtype is torch.float8_e4m3fn:
                continue  # it has none
            other = torch.tensor([1.0, value]).to(dtype)
            assert not_finite(dict(plain, d=other)) == 'd has values that are NaN or infinite'
            assert not_finite(dict(d=other, e=other, **plain)) == (
                'd has values that are NaN or infinite, as 1 more of its 5 tensors'
            )


def test_a_mask_of_a_model_may_be_infinite(tmp_path):
    model = torch.nn.Linear(2, 2)
    model.register_buffer('mask', torch.tensor([0.0, -float('inf')]))
    torch.save(model.state_dict(), tmp_path / 'a.pth')
    load_model(model, str(tmp_path / 'a.pth'))
    state = model.state_dict()
    state['bias'] = torch.tensor([0.0, float('inf')])
    torch.save(state, tmp_path / 'b.pth')
    before = model.bias.clone()
    with pytest.raises(CheckpointError, match='b.pth: bias has values'):
        load_model(model, str(tmp_path / 'b.pth'))
    assert torch.equal(model.bias, before)
