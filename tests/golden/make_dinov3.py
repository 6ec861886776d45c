"""Golden data of DINOv3's public code (facebookresearch/dinov3 at 6876159): its ViT, and the adapter over it.

The packages' ``__init__`` files are stubbed, since they import what is not installed. Of the compiled operation of
deformable attention its own PyTorch formulation is used, and rotary angles are computed in the weights' precision.
The adapter takes sides that are multiples of 32: other images are padded with zeros on the right and the bottom, and
their maps cropped, as ours does inside. Its ViT runs without gradients.
"""

import importlib
import sys
import types
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from recording import Case, Weights, call, checkout, fill, image, write
from torch import Tensor, nn

from mmlape.models import TimmViT, TimmViTAdapter

DIMS, DEPTH, HEADS = 16, 4, 2
INPUTS = dict(pair=image(0, 2, 3, 64, 32), wide=image(1, 1, 3, 64, 96), odd=image(2, 1, 3, 50, 37))
SIZES = dict(embed_dim=DIMS, depth=DEPTH, num_heads=HEADS)
ADAPTER = dict(conv_inplane=2, deform_num_heads=4)
NAMES = (
    ('.gamma_1', '.ls1.gamma'),
    ('.gamma_2', '.ls2.gamma'),
    ('reg_token', 'storage_tokens'),
    ('.mlp.fc1_g.', '.mlp.w1.'),
    ('.mlp.fc1_x.', '.mlp.w2.'),
)


def load_classes(folder: str) -> tuple[type, type]:
    """Import the public ViT and adapter."""
    for name in ('eval', 'eval.segmentation', 'eval.segmentation.models'):
        package = types.ModuleType(f'dinov3.{name}')
        package.__path__ = [f'{folder}/dinov3/{name.replace(".", "/")}']
        sys.modules[package.__name__] = package
    functions = importlib.import_module('dinov3.eval.segmentation.models.utils.ms_deform_attn')

    class InPyTorch:
        @staticmethod
        def apply(value, shapes, starts, locations, weights, step):
            return functions.ms_deform_attn_core_pytorch(value, shapes, locations, weights)

    functions.MSDeformAttnFunction = InPyTorch
    vit = importlib.import_module('dinov3.models.vision_transformer').DinoVisionTransformer
    adapter = importlib.import_module('dinov3.eval.segmentation.models.backbone.dinov3_adapter').DINOv3_Adapter
    return vit, adapter


VIT, ADAPTER_CLASS = load_classes(checkout())


def public_vit(swiglu: bool) -> nn.Module:
    """Build the public ViT of the small sizes."""
    ffn = dict(ffn_layer='swiglu', ffn_ratio=6) if swiglu else {}
    options = dict(n_storage_tokens=4, layerscale_init=1e-5, norm_layer='layernormbf16', mask_k_bias=True)
    model = VIT(**SIZES, **options, **ffn, pos_embed_rope_dtype='fp32')
    model.init_weights()
    return model


def translated(weights: Weights, state: Weights, prefix: str) -> Weights:
    """Give weights the public names; what has none of ours (masks, periods, the mask token) stays as in ``state``."""
    dtype = weights['vit.cls_token'].dtype
    out = {key: value.to(dtype) for key, value in state.items()}
    for key, value in weights.items():
        if not key.startswith('vit.'):
            out[key] = value
            continue
        key = prefix + key.removeprefix('vit.')
        for ours, theirs in NAMES:
            key = key.replace(ours, theirs)
        if 'mlp.w1.' in key or 'mlp.w2.' in key or prefix + 'blocks.0.mlp.w1.weight' in state:
            key = key.replace('.mlp.fc2.', '.mlp.w3.')
        if key.endswith('.q_bias'):
            other = weights['vit.' + key.removeprefix(prefix).replace('q_bias', 'v_bias')]
            out[key.replace('q_bias', 'qkv.bias')] = torch.cat((value, torch.zeros_like(value), other))
        elif not key.endswith('.v_bias'):
            out[key] = value
    return out


class Outputs(nn.Module):
    """Normed maps of some layers of the public ViT."""

    def __init__(self, vit: nn.Module, layers: list[int]):
        super().__init__()
        self.vit, self.layers = vit, layers

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return one map a layer."""
        return self.vit.get_intermediate_layers(x, n=self.layers, reshape=True, norm=True)


def vit_case(name: str, timm_name: str, swiglu: bool = False) -> Case:
    """Return the case of a ViT alone."""
    layers = [1, 3]
    model = Outputs(public_vit(swiglu), layers)
    kwargs = dict(model_name=timm_name, model_args=SIZES, out_indices=layers)

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        model.vit.rope_embed.dtype = x.dtype
        return list(call(model, translated(weights, model.state_dict(), 'vit.'), x))

    return Case(name, 'TimmViT', kwargs, fill(TimmViT(**kwargs).state_dict()), run, inputs=('pair', 'wide'))


def adapter_case() -> tuple[Case, list[str]]:
    """Return the case of the adapter, and the names that its public file has."""
    vit = public_vit(False)
    model = ADAPTER_CLASS(vit, list(range(DEPTH)), drop_path_rate=0.0, with_cp=False, **ADAPTER)
    frozen = dict(model_name='vit_small_patch16_dinov3_qkvb', model_args=SIZES, frozen=True)
    kwargs = dict(vit=frozen, mode='read-only', **ADAPTER)
    weights = fill(TimmViTAdapter(**kwargs).state_dict())

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        height, width = x.shape[2:]
        x = F.pad(x, (0, -width % 32, 0, -height % 32))
        vit.rope_embed.dtype = x.dtype
        maps = call(model, translated(weights, model.state_dict(), 'backbone.'), x)
        return [maps[str(i)][..., : -(-height // s), : -(-width // s)] for i, s in enumerate((4, 8, 16, 32), 1)]

    frozen_names = [key for key in weights if key.startswith('vit.')]
    case = Case('adapter', 'TimmViTAdapter', kwargs, weights, run, gradients=('pair',), frozen=frozen_names)
    return case, list(model.state_dict())


if __name__ == '__main__':
    warnings.filterwarnings('ignore', message='.*CUDA is not available.*')
    adapter, names = adapter_case()
    write(
        'dinov3',
        INPUTS,
        [
            vit_case('vit', 'vit_small_patch16_dinov3_qkvb'),
            vit_case('vit-swiglu', 'vit_small_plus_patch16_dinov3_qkvb', swiglu=True),
            adapter,
        ],
        {'adapter/public_names': np.array(names)},
    )
