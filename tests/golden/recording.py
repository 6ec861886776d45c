"""Shared by the scripts in this folder: random weights under which every operation matters, and the golden file.

A golden file, ``NAME.npz``, holds what a public implementation computes: for every case the weights under this
package's names, the outputs for some inputs in float32 and float64, and the float64 gradients of ``project(outputs)``.
The gradients are compared with finite differences before they are written, so they are the function's and not only
one build's of autograd.

A script takes the folder of a checkout of the public code: ``python tests/golden/make_segmenter.py CHECKOUT``.
"""

import json
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

FOLDER = Path(__file__).resolve().parent
Weights = dict[str, Tensor]


@dataclass
class Case:
    """One model of the public code, and how it is built here.

    Attributes:
        name: The test's id.
        model: A class of ``mmlape.models``, or a name that the test knows.
        kwargs: Its arguments.
        weights: Its state dict in float32.
        run: The public code's outputs for those weights, in any dtype, and an image.
        fixed: Names in ``weights`` that are computed and not learned; a new model has them already.
        inputs: The inputs to record outputs for; None for all.
        gradients: The inputs to record gradients for; None for all that outputs are recorded for.
        training: Whether the model is in training mode; then batch statistics are recorded as well.
        frozen: Names in ``weights`` that get no gradient.
    """

    name: str
    model: str
    kwargs: dict
    weights: Weights
    run: Callable[[Weights, Tensor], list[Tensor]]
    fixed: Sequence[str] = ()
    inputs: Sequence[str] | None = None
    gradients: Sequence[str] | None = None
    training: bool = False
    frozen: Sequence[str] = ()

    @property
    def parameters(self) -> list[str]:
        """Names of the weights that are learned."""
        buffers = ('running_mean', 'running_var', 'num_batches_tracked', 'w')  # w: random features of performers
        no_gradient = {*self.fixed, *self.frozen}
        return [name for name in self.weights if name not in no_gradient and name.rpartition('.')[2] not in buffers]


def checkout() -> str:
    """Return the folder named on the command line, and make its modules importable."""
    if len(sys.argv) != 2:
        sys.exit(f'usage: python {sys.argv[0]} CHECKOUT')
    folder = str(Path(sys.argv[1]).resolve())
    sys.path.insert(0, folder)
    return folder


def random_tensor(name: str, like: Tensor) -> Tensor:
    """Return random values for a parameter or buffer, the same for the same name and shape.

    Matrices keep the scale of what they map, scales are around one, nothing is zero, and position embeddings are so
    small that the eps of their norms matters.
    """
    leaf = name.rpartition('.')[2]
    generator = torch.Generator().manual_seed(zlib.crc32(f'{name}{tuple(like.shape)}'.encode()))
    noise = torch.randn(like.shape, generator=generator)
    if leaf == 'num_batches_tracked':
        return torch.randint(1, 100, like.shape, generator=generator)
    if leaf == 'running_var':
        return noise.abs() + 0.5
    if leaf.startswith('pos_embed'):
        return 0.05 * noise
    if 'sampling_offsets' in name:
        return noise if leaf == 'bias' else noise * like.shape[1] ** -0.5
    if like.ndim == 1 or leaf.endswith('gamma'):
        return 0.3 * noise + float(leaf == 'weight' or leaf.startswith('gamma'))
    if leaf in ('cls_token', 'dist_token', 'level_embed', 'cls_emb', 'relative_position_bias_table'):
        return 0.5 * noise
    return noise * like[0].numel() ** -0.5


def fill(state: Weights, fixed: Sequence[str] = ()) -> Weights:
    """Return random values for every entry but the fixed ones."""
    return {name: value.clone() if name in fixed else random_tensor(name, value) for name, value in state.items()}


def image(seed: int, *shape: int) -> Tensor:
    """Return random images."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def uniform(name: str, shape: Sequence[int]) -> Tensor:
    """Return uniform random values in float64, the same for the same name with every version of the packages.

    Vectors that are scales or variances are around one, other values keep the variance of what they map.
    """
    values = torch.from_numpy(2 * np.random.RandomState(zlib.crc32(name.encode())).random_sample(tuple(shape)) - 1)
    if len(shape) == 1:
        return 0.3 * values + float(not name.endswith(('bias', 'running_mean')))
    return values * (3 / values[0].numel()) ** 0.5 if len(shape) in (2, 4) else values


def call(model: nn.Module, weights: Weights, x: Tensor, training: bool = False, **kwargs):
    """Return the model's output with other weights; every parameter and buffer has to be among them."""
    model.train(training)
    return torch.func.functional_call(model, weights, (x,), kwargs, strict=True)


def project(outputs: Sequence[Tensor]) -> Tensor:
    """Project outputs to one number, in which no two elements weigh the same."""
    return sum((out.flatten() * torch.arange(1, out.numel() + 1, dtype=out.dtype).cos()).sum() for out in outputs)


def _cast(weights: Weights, dtype: torch.dtype) -> Weights:
    return {k: v.to(dtype if v.is_floating_point() else v.dtype, copy=True) for k, v in weights.items()}


def _gradients(case: Case, x: Tensor) -> list[Tensor]:
    weights = _cast(case.weights, torch.float64)
    leaves = [weights[name].requires_grad_() for name in case.parameters]
    return list(torch.autograd.grad(project(case.run(weights, x)), leaves))


@torch.no_grad()
def _difference(case: Case, x: Tensor, name: str, direction: Tensor, step: float) -> float:
    """Return the slope along a direction of one parameter, as a central difference."""
    sides = []
    for signed in (step, -step):
        weights = _cast(case.weights, torch.float64)
        weights[name] = weights[name] + signed * direction
        sides.append(project(case.run(weights, x)).item())
    return (sides[0] - sides[1]) / (2 * step)


def _check_gradients(case: Case, x: Tensor, gradients: list[Tensor]) -> float:
    """Return the largest relative distance of a gradient from a finite difference along a random direction."""
    worst = 0.0
    for name, gradient in zip(case.parameters, gradients, strict=True):
        direction = image(zlib.crc32(name.encode()), *gradient.shape).double()
        slope, scale = (gradient * direction).sum().item(), max(gradient.norm().item(), 1e-3)
        for step in (1e-6, 1e-7, 1e-8):  # a smaller one where a step crosses a kink of a ReLU or of bilinear sampling
            distance = abs(_difference(case, x, name, direction, step) - slope) / scale
            if distance < 1e-5:
                break
        else:
            sys.exit(f'{case.name}: the gradient of {name} is {distance:.0e} from its finite difference')
        worst = max(worst, distance)
    return worst


def write(name: str, inputs: Weights, cases: Sequence[Case], more: dict[str, np.ndarray] | None = None) -> None:
    """Run every case, check its gradients and write ``NAME.npz`` beside this file, with more arrays if given."""
    data = {f'inputs/{key}': value.numpy() for key, value in inputs.items()} | (more or {})
    index = []
    for case in cases:
        for key, value in case.weights.items():
            shared = data.setdefault(f'weights/{key}', value.numpy())
            if shared.shape != value.shape or not np.array_equal(shared, value.numpy()):
                data[f'{case.name}/weights/{key}'] = value.numpy()
        used = list(case.inputs or inputs)
        wanted = used if case.gradients is None else list(case.gradients)
        worst = 0.0
        for key in used:
            for dtype, label in ((torch.float32, 'float32'), (torch.float64, 'float64')):
                weights = _cast(case.weights, dtype)
                with torch.no_grad():
                    outputs = case.run(weights, inputs[key].to(dtype))
                for i, out in enumerate(outputs):
                    data[f'{case.name}/{key}/{label}/{i}'] = out.numpy()
                if case.training and dtype == torch.float64:
                    moved = [value.flatten().double() for n, value in weights.items() if n not in case.parameters]
                    data[f'{case.name}/{key}/buffers'] = torch.cat(moved).numpy()
            if key in wanted:
                gradients = _gradients(case, inputs[key].double())
                worst = max(worst, _check_gradients(case, inputs[key].double(), gradients))
                data[f'{case.name}/{key}/gradients'] = torch.cat([g.flatten() for g in gradients]).numpy()
        keys = ('name', 'model', 'kwargs', 'parameters', 'training')
        entry = {key: getattr(case, key) for key in keys}
        index.append(dict(entry, state=list(case.weights), fixed=list(case.fixed), inputs=used, gradients=wanted))
        print(f'{case.name}: {len(case.parameters)} gradients, {worst:.0e} from finite differences')
    data['index'] = np.array(json.dumps(index))
    path = FOLDER / f'{name}.npz'
    np.savez_compressed(path, **data)
    print(f'{path.name}: {path.stat().st_size / 1e6:.2f} MB')
