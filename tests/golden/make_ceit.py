"""Golden data of CeiT: coeusguo/ceit (at 44c16d3), with the default PE and, by hooks, with LaPE.

python tests/golden/make_ceit.py CHECKOUT
"""

from functools import partial

from recording import Case, Weights, call, checkout, fill, image, lape_hooks, write
from torch import Tensor, nn

checkout()
from ceit_model import CeIT, Image2Tokens  # noqa: E402  (found in the checkout)

ARCH = dict(embed_dims=16, num_layers=3, num_heads=2, feedforward_channels=64, stem_channels=8)
INPUTS = dict(small=image(0, 2, 3, 32, 32), large=image(1, 1, 3, 48, 48))


def ceit_case(joining: str, key: str, training: bool = False) -> Case:
    """Return the case of a joining, with the input of one size."""
    size = INPUTS[key].shape[-1]
    model = CeIT(
        hybrid_backbone=Image2Tokens(out_chans=ARCH['stem_channels']),
        img_size=size,
        patch_size=4,
        num_classes=0,
        embed_dim=ARCH['embed_dims'],
        depth=ARCH['num_layers'],
        num_heads=ARCH['num_heads'],
        qkv_bias=True,
        norm_layer=partial(nn.LayerNorm, eps=1e-6),
    )
    state = dict(model.state_dict())
    to_public = dict
    if joining == 'lape':
        norm = model.blocks[0].norm1
        for i in range(len(model.blocks)):
            state |= {f'blocks.{i}.pe_norm.{leaf}': value for leaf, value in norm.state_dict().items()}
        to_public = lape_hooks(model.blocks, norm.eps)

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        return [call(model, to_public(weights), x, training)]

    kwargs = dict(arch=ARCH, img_size=size, pe_joining=joining)
    mode = '-training' if training else ''
    return Case(f'{joining}-{key}{mode}', 'CeiT', kwargs, fill(state), run, inputs=[key], training=training)


if __name__ == '__main__':
    cases = [ceit_case(joining, key) for joining in ('default', 'lape') for key in INPUTS]
    write('ceit', INPUTS, [*cases, ceit_case('lape', 'small', training=True), ceit_case('default', 'large', True)])
