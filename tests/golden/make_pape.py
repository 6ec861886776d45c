"""Golden data of PaPE's public code (DTU-PAS/parabolic-position-encoding at 21cb390): its encoder over patches.

``python tests/golden/make_pape.py CHECKOUT``. Its configuration is stubbed, which asks for packages of its command
line; its norm before the first layer, which ours has not, is left out.
"""

import enum
import sys
import types
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from recording import Case, Weights, checkout, fill, image, write
from torch import Tensor, nn
from torch.func import functional_call

from mmlape.models import VisionTransformer

DIMS, DEPTH, HEADS, PARABOLAS = 12, 1, 3, 5
INPUTS = dict(pair=image(0, 2, 3, 12, 20), odd=image(1, 1, 3, 20, 12))


class Positional(enum.StrEnum):
    """The kinds that the public code tells apart."""

    absolute = alibi = lookhere = nope = rope = rope_mixed = pape_ri = 'other'
    pape = 'pape'


checkout()
sys.modules['pape.configs'] = types.SimpleNamespace(Config=object, Positional=Positional)
from pape.nn.encoder import TransformerEncoder  # noqa: E402


def public_encoder() -> nn.Module:
    """Build the public encoder of the small sizes."""
    sizes = dict(
        hidden_size=DIMS, num_heads=HEADS, head_size=DIMS // HEADS, num_layers=DEPTH,
        intermediate_size=2 * DIMS, drop_path=0.0, dropout=0.0,
    )  # fmt: skip
    model = TransformerEncoder(
        SimpleNamespace(
            model=SimpleNamespace(**sizes),
            pape=SimpleNamespace(parabolas=PARABOLAS),
            positional=Positional.pape,
            num_positions=2,
        )
    )
    model.norm_pre = nn.Identity()
    for layer in model.layers:
        layer.attention.position_encoder.prepare_positions = lambda positions: positions  # in their own precision
    return model


def translated(weights: Weights) -> Weights:
    """Give the layers' weights the public names."""
    names = (
        ('blocks.', 'layers.'), ('.attn.qkv.', '.attention.qkv_proj.'), ('.attn.proj.', '.attention.out_proj.'),
        ('.attn.pape_position', '.attention.position_encoder.position.weight'),
        ('.attn.pape_ab', '.attention.position_encoder.ab.weight'), ('.mlp.', '.ffn.'),
    )  # fmt: skip
    out = {}
    for key, value in weights.items():
        for ours, theirs in names:
            key = key.replace(ours, theirs)
        key = f'norm_post.{key[5:]}' if key.startswith('norm.') else key
        if key.startswith(('layers.', 'norm_post.')):
            out[key] = value
    return out


def case(name: str, with_cls_token: bool) -> Case:
    """Return the case of a ViT that gives all its tokens."""
    arch = dict(embed_dims=DIMS, num_layers=DEPTH, num_heads=HEADS, feedforward_channels=2 * DIMS)
    kwargs = dict(
        arch=arch, img_size=[12, 20], patch_size=4, out_type='raw', with_cls_token=with_cls_token,
        pe_type=dict(type='pape', parabolas=PARABOLAS), norm_cfg=dict(type='LN', eps=1e-5),
    )  # fmt: skip
    model = public_encoder()
    model.position_encoder.prepare_positions = lambda positions: positions

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        kernel, bias = (weights[f'patch_embed.proj.{leaf}'] for leaf in ('weight', 'bias'))
        maps = F.conv2d(x, kernel, bias, stride=4)
        rows, columns = (torch.arange(1, side + 1, dtype=x.dtype) for side in maps.shape[-2:])
        positions = torch.cartesian_prod(rows, columns).flip(-1)
        tokens = maps.flatten(2).transpose(1, 2)
        if with_cls_token:
            tokens = torch.cat((weights['cls_token'].expand(len(x), -1, -1), tokens), dim=1)
            positions = F.pad(positions, (0, 0, 1, 0))
        return [functional_call(model, translated(weights), (tokens, positions[None]))]

    return Case(name, 'VisionTransformer', kwargs, fill(VisionTransformer(**kwargs).state_dict()), run)


if __name__ == '__main__':
    write('pape', INPUTS, [case('pape', False), case('pape-class-token', True)], {})
