"""Golden data of LookHere: the biases of GreenCUBIC/lookhere (at 641deab) by layer and head, hidden keys as -inf.

``python tests/golden/make_lookhere.py CHECKOUT``. The public code computes them in bfloat16.
"""

import sys
import types

import numpy as np
import torch
from recording import checkout, write

checkout()
# its own ViT, which the biases do not need
sys.modules['vision_transformer'] = types.SimpleNamespace(Attention=object, Block=object, VisionTransformer=object)
from lookhere import create_lh_bias_tensor  # noqa: E402

DEPTH, SLOPES = 3, (1.5, 0.5)
GRIDS = ((4, 4), (3, 5), (6, 4))
HEADS = {
    'halves': ('halves-none', (6, 12, 16)),
    'corners': ('corners-none', (6, 12, 16)),
    'triangles': ('triangles-none', (6, 12, 16)),
    'eighths': ('eighths1-eighths2-none', (12,)),
}
"""The public name of each view, and the numbers of heads that it is for."""


def biases() -> dict[str, np.ndarray]:
    """Return the biases (layers, heads, N, N) by view, heads and grid."""
    found = {}
    for view, (directions, numbers) in HEADS.items():
        config = dict(global_slope=1.0, layer_slopes=SLOPES, head_directions=directions, fill_with='inf')
        for heads in numbers:
            for grid in GRIDS:
                bias = create_lh_bias_tensor(config, grid, DEPTH, heads).float()
                bias = bias.masked_fill(bias < -1e30, -torch.inf)
                found[f'bias/{view}/{heads}/{grid[0]}x{grid[1]}'] = bias.numpy().astype(np.float16)
    return found


if __name__ == '__main__':
    write('lookhere', {}, [], biases())
