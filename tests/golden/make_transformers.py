"""Golden data of transformers' vision models (5.24): names and shapes of their files, and the tokens of an image.

    PYTHONPATH=. python tests/golden/make_transformers.py

Run it in an environment with transformers 5. Values are not stored: they follow from the names (`recording.uniform`).
Each model is recorded twice: a file of ``save_pretrained``, with the names of transformers 4, and a state dict.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from recording import FOLDER, uniform
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(FOLDER.parent / 'integrations'))
from transformers_cases import CASES, GRID, SIDE, Case

IMAGE = uniform('image', (1, 3, SIDE, SIDE))


def tokens(case: Case, model: torch.nn.Module) -> list[np.ndarray]:
    with torch.no_grad():
        return [out.numpy() for out in case.run(model.double().eval(), IMAGE)]


def filled(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: uniform(name, value.shape).float() for name, value in state.items()}


def of_file(case: Case) -> tuple[dict, list[np.ndarray]]:
    """Return names and shapes in a file, and the tokens of a model that is read from it."""
    with tempfile.TemporaryDirectory() as folder:
        case.kind(case.config).save_pretrained(folder)
        file = Path(folder, 'model.safetensors')
        state = filled(load_file(file))
        save_file(state, file, {'format': 'pt'})
        model, info = case.kind.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return shapes(state), tokens(case, model)


def of_state(case: Case) -> tuple[dict, list[np.ndarray]]:
    """Return the same for a state dict."""
    model = case.kind(case.config)
    model.load_state_dict(filled(model.state_dict()))
    return shapes(model.state_dict()), tokens(case, model)


def shapes(state: dict[str, torch.Tensor]) -> dict[str, list[int]]:
    return {name: list(value.shape) for name, value in state.items()}


if __name__ == '__main__':
    data, index = {}, {}
    for name, case in CASES.items():
        entry = dict(
            layout=case.layout, cls=case.cls, kwargs={**case.base, **case.own}, target=case.target, table=case.table
        )
        for form, record in (('file', of_file), ('state', of_state)):
            entry[form], outputs = record(case)
            data |= {f'{name}/{form}/{i}': out for i, out in enumerate(outputs)}
        index[name] = dict(entry, tolerance=case.tolerance, grid=GRID)
    data['index'] = np.array(json.dumps(index))
    path = FOLDER / 'layouts' / 'transformers.npz'
    np.savez_compressed(path, **data)
    print(f'{path.name}: {len(index)} models, {path.stat().st_size / 1e3:.0f} KB')
