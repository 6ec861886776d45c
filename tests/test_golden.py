"""Models against what the public code computes: outputs and gradients of all parameters, with weights that hide nothing.

``golden/*.npz`` holds the data, made by the script of the same source beside it. Errors are relative to the largest
element of a tensor.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mmlape.models import DistilledVisionTransformer, ViTAdapter, VisionTransformer

FOLDER = Path(__file__).parent / 'golden'
CLASSES = {cls.__name__: cls for cls in (DistilledVisionTransformer, ViTAdapter, VisionTransformer)}
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5}
# the public adapter computes reference points in float32
ADAPTER_TOLERANCE = {torch.float64: 5e-6, torch.float32: 1e-4}


@cache
def load(source: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / f'{source}.npz') as file:
        return dict(file)


@cache
def cases(source: str) -> dict[str, dict]:
    return {case['name']: case for case in json.loads(str(load(source)['index']))}


SOURCES = sorted(path.stem for path in FOLDER.glob('*.npz'))
ALL = [(source, name) for source in SOURCES for name in cases(source)]


def state_dict(source: str, case: dict) -> dict[str, Tensor]:
    data = load(source)
    keys = ((name, f'{case["name"]}/weights/{name}') for name in case['state'])
    return {name: torch.from_numpy(data.get(key, data.get(f'weights/{name}')).copy()) for name, key in keys}


def build(source: str, case: dict, dtype: torch.dtype) -> nn.Module:
    model = CLASSES[case['model']](**case['kwargs'])
    model.load_state_dict(state_dict(source, case), strict=True)
    return model.to(dtype).train(case['training'])


def run(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The outputs, one after the other."""
    return list(model(x))


def project(outputs: list[Tensor]) -> Tensor:
    """As ``project`` of ``golden/recording.py``."""
    return sum((out.flatten() * torch.arange(1, out.numel() + 1, dtype=out.dtype).cos()).sum() for out in outputs)


def assert_close(ours: Tensor, golden: Tensor, tolerance: float, what: str) -> None:
    assert ours.shape == golden.shape, what
    scale = max(golden.abs().max().item(), 1e-2)
    error = (ours.double() - golden.double()).abs().max().item() / scale
    assert error <= tolerance, f'{what}: {error:.1e} apart'


def compare(source: str, case: dict, key: str, dtype: torch.dtype) -> None:
    """Outputs, gradients and, in training mode, batch statistics for one input."""
    data, name, label = load(source), case['name'], str(dtype).removeprefix('torch.')
    tolerance = (ADAPTER_TOLERANCE if case['model'] == 'ViTAdapter' else TOLERANCE)[dtype]
    model = build(source, case, dtype)
    x = torch.from_numpy(data[f'inputs/{key}']).to(dtype)
    outputs = run(model, x)
    stored = [torch.from_numpy(data[f'{name}/{key}/{label}/{i}']) for i in range(len(outputs))]
    assert f'{name}/{key}/{label}/{len(outputs)}' not in data
    for i, pair in enumerate(zip(outputs, stored, strict=True)):
        assert_close(*pair, tolerance, f'output {i}')
    if key not in case['gradients']:
        return
    project(outputs).backward()
    parameters = dict(model.named_parameters())
    assert set(parameters) == set(case['parameters'])
    sizes = [parameters[parameter].numel() for parameter in case['parameters']]
    gradients = torch.from_numpy(data[f'{name}/{key}/gradients']).split(sizes)
    for parameter, golden in zip(case['parameters'], gradients, strict=True):
        assert_close(parameters[parameter].grad.flatten(), golden, tolerance, f'gradient of {parameter}')


@pytest.mark.parametrize(('source', 'name'), [pair for pair in ALL if cases(pair[0])[pair[1]]['fixed']])
def test_a_new_model_has_the_public_codes_tables(source, name):
    """Sinusoids and the index of relative positions, which a checkpoint would overwrite."""
    case = cases(source)[name]
    tables = CLASSES[case['model']](**case['kwargs']).state_dict()
    for key in case['fixed']:
        stored = state_dict(source, case)[key]
        torch.testing.assert_close(tables[key].view_as(stored), stored, atol=1e-6, rtol=0)


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32], ids=['float64', 'float32'])
@pytest.mark.parametrize(('source', 'name'), ALL)
def test_outputs_and_gradients_are_the_public_codes(source, name, dtype):
    case = cases(source)[name]
    for key in case['inputs']:
        compare(source, case, key, dtype)
