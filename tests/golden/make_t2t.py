"""Golden data of T2T-ViT: yitu-opensource/T2T-ViT (at 0f63dc9), with tokens by performer and by transformer.

    python tests/golden/make_t2t.py CHECKOUT

The public performer casts to float32, which is left out for the float64 data. LaPE is the public model with hooks.
"""

import contextlib
import importlib
import sys
import types
from unittest import mock

import torch
from recording import Case, Weights, call, checkout, fill, image, lape_hooks, write
from torch import Tensor

package = types.ModuleType('t2t')
package.__path__ = [f'{checkout()}/models']  # whose __init__ imports what other variants need
sys.modules['t2t'] = package
T2T_ViT = importlib.import_module('t2t.t2t_vit').T2T_ViT

ARCH = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=32, token_dims=8)
INPUTS = dict(small=image(0, 2, 3, 32, 32), large=image(1, 1, 3, 48, 48))


def t2t_case(tokens_type: str, joining: str, key: str) -> Case:
    """Return the case of a kind of tokens and a joining, with the input of one size."""
    size = INPUTS[key].shape[-1]
    model = T2T_ViT(
        img_size=size,
        tokens_type=tokens_type,
        num_classes=0,
        embed_dim=ARCH['embed_dims'],
        depth=ARCH['num_layers'],
        num_heads=ARCH['num_heads'],
        mlp_ratio=2.0,
        token_dim=ARCH['token_dims'],
    )
    state = dict(model.state_dict())
    to_public = dict
    if joining == 'lape':
        norm = model.blocks[0].norm1
        for i in range(len(model.blocks)):
            state |= {f'blocks.{i}.pe_norm.{leaf}': value for leaf, value in norm.state_dict().items()}
        to_public = lape_hooks(model.blocks, norm.eps)

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        cast = contextlib.nullcontext()
        if x.dtype == torch.float64:
            cast = mock.patch.object(torch.Tensor, 'float', lambda tensor: tensor)
        with cast:
            return [call(model, to_public(weights), x)]

    kwargs = dict(arch=ARCH, img_size=size, tokens_type=tokens_type, pe_joining=joining, drop_path_rate=0.3)
    weights = fill(state, fixed=('pos_embed',))
    return Case(f'{tokens_type}-{joining}-{key}', 'T2TViT', kwargs, weights, run, ('pos_embed',), inputs=[key])


if __name__ == '__main__':
    kinds = [(tokens, joining) for tokens in ('performer', 'transformer') for joining in ('default', 'lape')]
    write('t2t', INPUTS, [t2t_case(*kind, key) for kind in kinds for key in INPUTS])
