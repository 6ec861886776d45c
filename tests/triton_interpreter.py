"""deformops' Triton kernels beside our row sums, on the CPU: how far apart outputs and gradients are, as JSON.

A process of its own, since Triton reads the variable that turns its interpreter on when it is imported.
"""

import json
import os
import sys
from contextlib import nullcontext
from unittest import mock

os.environ['TRITON_INTERPRET'] = '1'

import torch
from triton.runtime import interpreter

torch.library.wrap_triton = lambda kernel: kernel  # what it adds is for compilers, and knows no interpreter
from deformops.backends.triton.msda import msda_triton  # noqa: E402

from mmlape.models.adapter import deform_attn  # noqa: E402

patch_tensors = interpreter._patch_lang_tensor


def patch_tensors_for_numpy(tensor, scope) -> None:
    """Do what Triton does; NumPy no longer takes an array of one number for a number, as Triton 3.6 wants it to."""
    patch_tensors(tensor, scope)
    scope.set_attr(tensor, '__index__', lambda self: self.handle.data.item())


interpreter._patch_lang_tensor = patch_tensors_for_numpy

# name: (shapes, batch, queries, heads, channels of a head, points)
CASES = {
    'three levels': (((6, 4), (3, 2), (2, 1)), 2, 5, 2, 8, 2),
    'more queries than a block has': (((5, 3),), 1, 37, 1, 4, 1),
    'odd numbers': (((3, 5),), 1, 3, 3, 5, 3),
    'one row': (((1, 7), (1, 3)), 2, 4, 1, 4, 2),
    'one column': (((7, 1), (3, 1)), 1, 4, 2, 4, 2),
    'one cell': (((1, 1),), 1, 1, 1, 4, 1),
    'first level empty': (((0, 0), (3, 4)), 2, 4, 2, 4, 2),
    'level without rows': (((3, 4), (0, 5), (2, 2)), 1, 4, 2, 4, 2),
    'last level without columns': (((3, 4), (2, 0)), 2, 4, 2, 4, 2),
}


def inputs(shapes, batch, queries, heads, dims, points) -> list[torch.Tensor]:
    """Return values, places and weights; a third of the places are outside, none on the border of a cell."""
    cells = sum(rows * columns for rows, columns in shapes)
    sizes = torch.tensor([(max(columns, 1), max(rows, 1)) for rows, columns in shapes])[:, None]
    places = torch.rand(batch, queries, heads, len(shapes), points, 2) * 1.8 - 0.4
    places = ((places * sizes * 4).floor() + 0.4) / 4 / sizes
    weights = torch.rand(batch, queries, heads, len(shapes) * points).softmax(-1).unflatten(-1, (-1, points))
    return [torch.randn(batch, cells, heads, dims), places, weights]


def outputs(backend: str, shapes, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    out = deform_attn.multi_scale_deformable_attention(leaves[0], shapes, *leaves[1:], backend=backend)
    direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    return [out.detach(), *torch.autograd.grad((out * direction).sum(), leaves)]


def main() -> None:
    torch.manual_seed(0)
    found = {}
    with mock.patch('torch.cuda.device', lambda device: nullcontext()):
        for name, (shapes, *sizes) in CASES.items():
            tensors = inputs(shapes, *sizes)
            expected = outputs('embedding_bag', shapes, tensors)
            with mock.patch.object(deform_attn, '_load_backend', lambda name: (msda_triton, '')):
                theirs = outputs('deformops', shapes, tensors)
            found[name] = [float((a - b).norm() / b.norm()) for a, b in zip(theirs, expected, strict=True)]
    json.dump(found, sys.stdout)


if __name__ == '__main__':
    main()
