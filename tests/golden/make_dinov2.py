"""Golden data of DINOv2's public code (facebookresearch/dinov2 at b8931f7): its ViT with and without registers.

Without registers its PE is resized otherwise than timm's, so that case has images of the PE's own size only.
"""

import importlib
import warnings

import torch
from recording import Case, Weights, call, checkout, fill, image, write
from torch import Tensor, nn

from mmlape.models import TimmViT

DIMS, SIDE, LAYERS = 16, 56, [1, 2]
SIZES = dict(embed_dim=DIMS, depth=3, num_heads=2)
INPUTS = dict(own=image(0, 2, 3, SIDE, SIDE), portrait=image(1, 1, 3, 84, 42))
checkout()
warnings.filterwarnings('ignore', message='xFormers')
PUBLIC = importlib.import_module('dinov2.models.vision_transformer').DinoVisionTransformer


class Outputs(nn.Module):
    """Normed maps of some layers of the public ViT."""

    def __init__(self, **kwargs):
        super().__init__()
        options = dict(patch_size=14, init_values=1.0, block_chunks=0, num_heads=2, depth=3)
        self.vit = PUBLIC(img_size=SIDE, embed_dim=DIMS, **options, **kwargs)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return one map a layer."""
        return self.vit.get_intermediate_layers(x, n=LAYERS, reshape=True, norm=True)


def case(name: str, timm_name: str, registers: int, inputs: tuple[str, ...], **public) -> Case:
    """Return the case of one model."""
    model = Outputs(num_register_tokens=registers, **public)
    kwargs = dict(model_name=timm_name, img_size=SIDE, model_args=SIZES, out_indices=LAYERS)

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        theirs = {'vit.mask_token': torch.zeros(1, DIMS, dtype=x.dtype), **weights}
        if registers:  # timm has the class token's row of the PE in the token
            table = theirs['vit.pos_embed']
            theirs['vit.pos_embed'] = torch.cat((torch.zeros_like(table[:, :1]), table), dim=1)
            theirs['vit.register_tokens'] = theirs.pop('vit.reg_token')
        return list(call(model, theirs, x))

    # a resized PE is computed in float32, too rough for finite differences
    weights = fill(TimmViT(**kwargs).state_dict())
    return Case(name, 'TimmViT', kwargs, weights, run, inputs=inputs, gradients=('own',))


if __name__ == '__main__':
    write(
        'dinov2',
        INPUTS,
        [
            case('plain', 'vit_small_patch14_dinov2', 0, ('own',), interpolate_offset=0.1),
            case(
                'registers',
                'vit_small_patch14_reg4_dinov2',
                4,
                ('own', 'portrait'),
                interpolate_antialias=True,
                interpolate_offset=0.0,
            ),
        ],
    )
