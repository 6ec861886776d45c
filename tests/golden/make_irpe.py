"""Golden data of iRPE: microsoft/Cream's DeiT with iRPE (at 4a13c40), and its buckets.

``python tests/golden/make_irpe.py CHECKOUT/iRPE/DeiT-with-iRPE``. It takes square images only; buckets are recorded
for other grids, too.
"""

import sys
import types

import numpy as np
import torch
from recording import Case, Settings, Weights, call, checkout, fill, image, write
from torch import Tensor

checkout()
sys.modules['easydict'] = types.SimpleNamespace(EasyDict=Settings)
from irpe import METHOD, get_bucket_ids_2d, get_rpe_config  # noqa: E402
from rpe_vision_transformer import VisionTransformer  # noqa: E402

DIMS, DEPTH, PATCH = 16, 2, 4
ARCH = dict(embed_dims=DIMS, num_layers=DEPTH, num_heads=2, feedforward_channels=2 * DIMS)
INPUTS = dict(square=image(0, 2, 3, 32, 32))
PUBLIC = {'euclidean': 'euc', 'quantization': 'quant', 'cross': 'cross', 'product': 'product'}
CASES = {
    'product-k': dict(),
    'product-qkv-per-head': dict(on='qkv', share_heads=False),
    'product-q': dict(on='q', ratio=2.5),
    'product-bias-qk': dict(mode='bias', on='qk'),
    'cross-qkv': dict(method='cross', on='qkv', ratio=3.0),
    'cross-bias-per-head': dict(method='cross', mode='bias', share_heads=False),
    'euclidean-qk': dict(method='euclidean', on='qk', ratio=3.0),
    'quantization-kv': dict(method='quantization', on='kv', ratio=5.0),
}
GRIDS = ((14, 14), (5, 7), (3, 24))
STEPS = ((1.9, 3.8, 15.2), (2.0, 4.0, 16.0), (3.5, 7.0, 28.0), (20.0, 40.0, 160.0), (33.0, 66.0, 264.0))


def irpe_case(name: str, options: dict) -> Case:
    """Return the case of a model, normed tokens of the class."""
    config = get_rpe_config(
        ratio=options.get('ratio', 1.9),
        method=PUBLIC[options.get('method', 'product')],
        mode=options.get('mode', 'contextual'),
        shared_head=options.get('share_heads', True),
        skip=1,
        rpe_on=options.get('on', 'k'),
    )
    model = VisionTransformer(
        img_size=32, patch_size=PATCH, num_classes=0, embed_dim=DIMS, depth=DEPTH, num_heads=2, mlp_ratio=2,
        qkv_bias=True, rpe_config=config, norm_layer=lambda dims: torch.nn.LayerNorm(dims, eps=1e-6),
    )  # fmt: skip

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        return [call(model, weights, x)]

    kwargs = dict(arch=ARCH, img_size=32, patch_size=PATCH, pe_type=['learnable', dict(type='irpe', **options)])
    return Case(name, 'VisionTransformer', kwargs, fill(model.state_dict()), run)


def buckets() -> dict[str, np.ndarray]:
    """Return the public buckets of every pair, by method, steps and grid."""
    methods = dict(
        euclidean=METHOD.EUCLIDEAN,
        quantization=METHOD.QUANT,
        rows=METHOD.CROSS_ROWS,
        columns=METHOD.CROSS_COLS,
        product=METHOD.PRODUCT,
    )
    found = {}
    for name, method in methods.items():
        for steps in STEPS:
            for rows, columns in GRIDS:
                ids, count = get_bucket_ids_2d(method, rows, columns, 1, *steps)
                found[f'buckets/{name}/{steps[0]}/{rows}x{columns}'] = np.append(ids.numpy().ravel(), count).astype(
                    np.int16
                )
    return found


if __name__ == '__main__':
    write('irpe', INPUTS, [irpe_case(name, options) for name, options in CASES.items()], buckets())
