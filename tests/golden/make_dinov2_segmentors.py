"""Golden data of DINOv2's public segmentors (facebookresearch/dinov2): its adapter, and its ViT below a linear head.

Names of old OpenMMLab releases that the code imports are stubbed; of its deformable attention, whose function has no
backward, its own PyTorch formulation is called directly. Its ViT resizes the PE in float32, so no finite difference
checks its gradients. Images have few values, so that the file stays small.
"""

import importlib
import logging
import math
import sys
import types

import torch
import torch.nn.functional as F
from recording import Case, Weights, call, checkout, fill, image, write
from torch import Tensor, nn

DIMS, DEPTH, HEADS = 4, 4, 2
INPUTS = {
    'square': image(0, 1, 3, 224, 224).round(),
    'wide': image(1, 1, 3, 224, 448).round(),
    'odd': image(2, 2, 3, 51, 37),
}
ADAPTER = dict(
    conv_inplane=2,
    deform_num_heads=2,
    deform_ratio=0.5,
    cffn_ratio=0.5,
    init_values=0.1,
    interaction_indexes=[[0, 0], [1, 1], [2, 2], [3, 3]],
)


def stub(name: str, **attributes) -> None:
    """Put a module of that name, with its parents, into ``sys.modules``, with just these attributes."""
    parts = name.split('.')
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault('.'.join(parts[:i]), types.ModuleType('.'.join(parts[:i])))
    vars(sys.modules[name]).update(attributes)


class Registry:
    """A registry that returns classes as they are."""

    @staticmethod
    def register_module():
        return lambda cls: cls


class BaseDecodeHead(nn.Module):
    """What the public head takes from the old base class."""

    def __init__(self, in_channels: list[int], num_classes: int):
        super().__init__()
        self.in_channels = self.channels = sum(in_channels)
        self.in_index = list(range(len(in_channels)))
        self.input_transform, self.align_corners = 'resize_concat', False
        self.conv_seg = nn.Conv2d(self.channels, num_classes, 1)

    def cls_seg(self, x: Tensor) -> Tensor:
        """Classify."""
        return self.conv_seg(x)


def resize(input: Tensor, size: tuple[int, int], mode: str, align_corners: bool) -> Tensor:
    """What the public head takes from the old operations."""
    return F.interpolate(input, tuple(size), mode=mode, align_corners=align_corners)


def load_classes(folder: str) -> tuple[type, type, type]:
    """Import the public adapter, ViT and linear head."""
    stub('mmcv.runner', BaseModule=nn.Module, load_checkpoint=None)
    stub('mmseg.ops', resize=resize)
    stub('mmseg.utils', get_root_logger=logging.getLogger)
    stub('mmseg.models.builder', BACKBONES=Registry, HEADS=Registry)
    stub('mmseg.models.decode_heads.decode_head', BaseDecodeHead=BaseDecodeHead)
    m2f = 'dinov2.eval.segmentation_m2f'
    for name in ('dinov2', 'dinov2.eval', m2f, f'{m2f}.models', f'{m2f}.models.backbones', 'dinov2.eval.segmentation',
                 'dinov2.eval.segmentation.models', 'dinov2.eval.segmentation.models.decode_heads'):  # fmt: skip
        package = types.ModuleType(name)
        package.__path__ = [f'{folder}/{name.replace(".", "/")}']
        sys.modules[name] = package
    attention = importlib.import_module(f'{m2f}.ops.modules.ms_deform_attn')

    class InPyTorch:
        @staticmethod
        def apply(value, shapes, starts, locations, weights, step):
            return attention.ms_deform_attn_core_pytorch(value, shapes, locations, weights)

    attention.MSDeformAttnFunction = InPyTorch
    return (
        importlib.import_module(f'{m2f}.models.backbones.vit_adapter').ViTAdapter,
        importlib.import_module('dinov2.models.vision_transformer').DinoVisionTransformer,
        importlib.import_module('dinov2.eval.segmentation.models.decode_heads.linear_head').BNHead,
    )


ADAPTER_CLASS, VIT, HEAD = load_classes(checkout())


def adapter_case(name: str, key: str, public: dict, ours: dict, hidden: int, cls_token: bool = True) -> Case:
    """Return a case of the adapter, whose table is made for 56 pixels."""
    sizes = dict(img_size=56, pretrain_size=56, embed_dim=DIMS, depth=DEPTH, num_heads=HEADS, patch_size=14)
    model = ADAPTER_CLASS(**sizes, **ADAPTER, use_cls=cls_token, **public)
    weights = fill(model.state_dict())
    if 'norm_pre.weight' in weights:
        weights['patch_embed.proj.bias'] = torch.zeros(DIMS)  # ours has one, the public stem has none

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        own = {name: value for name, value in weights.items() if name in model.state_dict()}
        return list(call(model, own, x))

    kwargs = dict(
        arch=dict(embed_dims=DIMS, num_layers=DEPTH, num_heads=HEADS, feedforward_channels=hidden),
        img_size=56,
        patch_size=14,
        with_cls_token=cls_token,
        vit_feature_source='interaction',
        **ADAPTER,
        **ours,
    )
    fixed = ['patch_embed.proj.bias'] if 'norm_pre.weight' in weights else []
    return Case(name, 'DINOv2 adapter', kwargs, weights, run, inputs=(key,), gradients=() if fixed else (key,))


class Segmentor(nn.Module):
    """The public ViT below the public head: windows are padded on all sides to complete patches."""

    def __init__(self, layers: list[int]):
        super().__init__()
        options = dict(init_values=1.0, interpolate_antialias=False, interpolate_offset=0.1, block_chunks=0)
        self.layers = layers
        self.backbone = VIT(img_size=56, patch_size=14, embed_dim=8, depth=3, num_heads=2, mlp_ratio=2, **options)
        self.decode_head = HEAD(in_channels=[8] * len(layers), num_classes=3)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Return logits of the padded window."""
        missing = [math.ceil(side / 14) * 14 - side for side in x.shape[2:]]
        rows, columns = ((side // 2, side - side // 2) for side in missing)
        maps = self.backbone.get_intermediate_layers(F.pad(x, (*columns, *rows)), n=self.layers, reshape=True)
        return [self.decode_head(list(maps))]


def linear_case(name: str, layers: list[int]) -> Case:
    """Return a case of a linear head on some layers."""
    model = Segmentor(layers)
    state = {key: value for key, value in model.state_dict().items() if key != 'backbone.mask_token'}
    weights = {key.replace('ls1.gamma', 'gamma1').replace('ls2.gamma', 'gamma2'): v for key, v in state.items()}
    weights = fill(weights)

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        own = {key.replace('.gamma1', '.ls1.gamma').replace('.gamma2', '.ls2.gamma'): v for key, v in weights.items()}
        own['backbone.mask_token'] = model.backbone.mask_token.to(x.dtype)
        return list(call(model, own, x))

    backbone = dict(
        arch=dict(embed_dims=8, num_layers=3, num_heads=2, feedforward_channels=16),
        img_size=56,
        patch_size=14,
        out_indices=layers,
        out_type='featmap',
        layer_scale_init_value=1.0,
        final_norm='every',
        patch_padding='center',
        interpolate_mode='bicubic-offset',
    )
    kwargs = dict(backbone=backbone, decode_head=dict(in_channels=[8] * len(layers), num_classes=3))
    return Case(name, 'linear segmentor', kwargs, weights, run, inputs=('odd',), gradients=())


if __name__ == '__main__':
    swiglu = dict(ffn_type='swiglu', pre_norm=True, mlp_ratio=3)
    write(
        'dinov2_segmentors',
        INPUTS,
        [
            adapter_case('adapter', 'wide', dict(mlp_ratio=2), {}, 2 * DIMS),
            adapter_case('adapter-swiglu', 'square', swiglu, dict(ffn_type='swiglu', patch_norm='post-posemb'), 8),
            linear_case('linear', [2]),
            linear_case('ms', [1, 2]),
        ],
    )
