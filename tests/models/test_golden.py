"""Models against the public code: outputs and gradients of every parameter, with no weight left at its initial value.

Gradients are compared in float64; in float32 the model runs as in inference, with what is computed beforehand.

``golden/*.npz`` holds the data; ``golden/made.txt`` says what made it. Errors are relative to the largest
element of a tensor where that is above one.
"""

from itertools import product

import pytest
import torch
from each import each
from golden.recording import project
from golden_models import MODEL_CLASSES, TOLERANCE, TOLERANCES, assert_close, build, cases, load, sources, state_dict

SOURCES = [source for source in sources() if source != 'lookhere']  # no model: test_lookhere.py
FIXED = [(source, name) for source in SOURCES for name, case in cases(source).items() if case['fixed']]


def test_a_new_model_has_the_public_codes_tables():
    """Sinusoids and the index of relative positions, which a checkpoint would overwrite."""
    for source, name in each(FIXED):
        case = cases(source)[name]
        tables = MODEL_CLASSES[case['model']](**case['kwargs']).state_dict()
        for key in case['fixed']:
            stored = state_dict(source, case)[key]
            torch.testing.assert_close(tables[key].view_as(stored), stored, atol=1e-6, rtol=0)


@pytest.mark.parametrize('source', SOURCES)
def test_outputs_and_gradients_are_the_public_codes(source):
    found = [(name, key) for name, case in cases(source).items() for key in case['inputs']]
    for (name, key), dtype in each(product(found, (torch.float64, torch.float32))):
        data, case, prefix = load(source), cases(source)[name], f'{name}/{key}'
        tolerance = TOLERANCES.get(case['model'], TOLERANCE)[dtype]
        model, x = build(source, case, dtype), torch.from_numpy(data[f'inputs/{key}']).to(dtype)
        with torch.set_grad_enabled(dtype == torch.float64):
            outputs = model(x)
        label = str(dtype).removeprefix('torch.')
        stored = [data[path] for path in sorted(data) if path.startswith(f'{prefix}/{label}/')]
        for i, (ours, golden) in enumerate(zip(outputs, stored, strict=True)):
            assert_close(ours, torch.from_numpy(golden), tolerance, f'output {i}')
        if case['training']:
            state, learned = model.state_dict(), set(case['parameters'])
            buffers = [state[path].flatten().double() for path in case['state'] if path not in learned]
            assert_close(
                torch.cat(buffers), torch.from_numpy(data[f'{prefix}/buffers']), tolerance, 'batch statistics'
            )
        if key not in case['gradients'] or dtype == torch.float32:
            continue
        project(outputs).backward()
        parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
        assert set(parameters) == set(case['parameters'])
        sizes = [parameters[path].numel() for path in case['parameters']]
        gradients = torch.from_numpy(data[f'{prefix}/gradients']).split(sizes)
        for path, golden in zip(case['parameters'], gradients, strict=True):
            assert_close(parameters[path].grad.flatten(), golden, tolerance, f'gradient of {path}')
