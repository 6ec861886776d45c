"""Tiny models of transformers, what loads each here, and the tokens that both compute."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import transformers as T
from torch import Tensor, nn

import mmlape.models

GRID, PATCH = 4, 8
SIDE = GRID * PATCH
IMAGE = torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
SIZES = dict(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=SIDE, patch_size=PATCH
)  # fmt: skip
RATIO = {key: value for key, value in SIZES.items() if key != 'intermediate_size'} | dict(mlp_ratio=2)
ARCH = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=24)
WIDE = dict(ARCH, feedforward_channels=32)
SWIN = dict(image_size=SIDE, patch_size=4, embed_dim=8, depths=[2, 2], num_heads=[1, 2], window_size=4)


def eps(value: float) -> dict:
    return dict(norm_cfg=dict(type='LN', eps=value))


def last_tokens(model: nn.Module, image: Tensor) -> list[Tensor]:
    return [model(image).last_hidden_state]


@dataclass
class Case:
    """A class of transformers with its configuration, and the model here that computes the same."""

    kind: type
    config: object
    layout: str
    own: dict
    run: Callable[[nn.Module, Tensor], list[Tensor]] = last_tokens
    cls: str = 'VisionTransformer'
    target: str = ''  # '' where a model is not written for it
    table: bool = True
    tolerance: float = 1e-12
    base: dict = field(default_factory=lambda: dict(img_size=SIDE, patch_size=PATCH, out_type='raw'))


def inside(name: str, run=last_tokens) -> Callable:
    return lambda model, image: run(getattr(model, name), image)


def mae(model: nn.Module, image: Tensor) -> list[Tensor]:
    return [model(image, noise=torch.arange(GRID * GRID).expand(len(image), -1)).last_hidden_state]


def normed_clip(model: nn.Module, image: Tensor) -> list[Tensor]:
    return [model.post_layernorm(model(image).last_hidden_state)]


def masked_beit(model: nn.Module, image: Tensor) -> list[Tensor]:
    return [model.layernorm(model.beit(image).last_hidden_state)]


def backbone_maps(model: nn.Module, image: Tensor) -> list[Tensor]:
    return list(model(image).feature_maps)


def swin_map(model: nn.Module, image: Tensor) -> list[Tensor]:
    tokens = model(image).last_hidden_state
    side = int(tokens.shape[1] ** 0.5)
    return [tokens.mT.unflatten(-1, (side, side))]


def naflex(model: nn.Module, image: Tensor) -> list[Tensor]:
    patches = image.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH).permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)
    sizes = torch.tensor([[GRID, GRID]] * len(image))
    mask = torch.ones(patches.shape[:2], dtype=torch.long)
    return [model(patches, pixel_attention_mask=mask, spatial_shapes=sizes).last_hidden_state]


SIGLIP = dict(with_cls_token=False, act_cfg=dict(type='GELU', approximate='tanh'), **eps(1e-6))
CLIP = dict(patch_norm='post-posemb', **eps(1e-5))
BEIT = dict(qkv_bias='qv', layer_scale_init_value=0.1, **eps(1e-12))
DINOV3 = dict(
    pe_type=dict(type='rope', coordinates='normalised', pairs='half'),
    qkv_bias='qv', num_registers=3, layer_scale_init_value=1.0, **eps(1e-5),
)  # fmt: skip
SCALED = dict(layer_scale_init_value=1.0, **eps(1e-6))
STAGES = dict(embed_dims=8, depths=[2, 2], num_heads=[1, 2])
IN_SWIN = dict(pe_type='rpe', out_type='featmap', norm_cfg=dict(type='LN', eps=1e-5))
OF_SWIN = dict(
    cls='SwinTransformer', layout='transformers-swin', target='transformers-swin', table=False,
    base=dict(img_size=SIDE, patch_size=4, window_size=4, arch=STAGES, patch_norm='post', pad_small_map=False),
)  # fmt: skip


def _cases() -> dict[str, Case]:
    vit = dict(layout='transformers-vit', own=dict(arch=ARCH, **eps(1e-12)))
    deit = dict(
        layout='transformers-vit', own=dict(arch=ARCH, **eps(1e-12)), cls='DistilledVisionTransformer',
        target='transformers-deit',
    )  # fmt: skip
    return {
        'vit': Case(T.ViTModel, T.ViTConfig(**SIZES), target='transformers-vit', **vit),
        'vit without bias': Case(
            T.ViTModel, T.ViTConfig(**SIZES, qkv_bias=False), 'transformers-vit',
            dict(vit['own'], qkv_bias=False), target='transformers-vit',
        ),
        'vit classifier': Case(
            T.ViTForImageClassification, T.ViTConfig(**SIZES), run=inside('vit'), target='transformers-vit', **vit,
        ),
        'deit': Case(T.DeiTModel, T.DeiTConfig(**SIZES), **deit),
        'deit with teacher': Case(
            T.DeiTForImageClassificationWithTeacher, T.DeiTConfig(**SIZES), run=inside('deit'), **deit
        ),
        'beit': Case(
            T.BeitModel, T.BeitConfig(**SIZES, use_relative_position_bias=True, use_mean_pooling=False),
            'transformers-beit', dict(BEIT, arch=ARCH, pe_type='beit'), target='transformers-beit', table=False,
        ),
        'beit shared': Case(
            T.BeitModel, T.BeitConfig(**SIZES, use_shared_relative_position_bias=True, use_mean_pooling=False),
            'transformers-beit', dict(BEIT, arch=ARCH, pe_type='beit'), table=False,
        ),
        'beit classifier': Case(
            T.BeitForImageClassification, T.BeitConfig(**SIZES, use_relative_position_bias=True, use_mask_token=True),
            'transformers-beit', dict(BEIT, arch=ARCH, pe_type='beit', final_norm=False), run=inside('beit'),
            target='transformers-beit', table=False,
        ),
        'beit masked': Case(
            T.BeitForMaskedImageModeling,
            T.BeitConfig(**SIZES, use_relative_position_bias=True, use_mask_token=True),
            'transformers-beit',
            dict(BEIT, arch=ARCH, pe_type='beit'),
            run=masked_beit,
            table=False,
        ),
        'data2vec': Case(
            T.Data2VecVisionModel,
            T.Data2VecVisionConfig(**SIZES, use_relative_position_bias=True, use_mean_pooling=False),
            'transformers-beit',
            dict(BEIT, arch=ARCH, pe_type='beit'),
            table=False,
        ),
        'ijepa': Case(
            T.IJepaModel,
            T.IJepaConfig(**SIZES),
            'transformers-vit',
            dict(arch=ARCH, with_cls_token=False, **eps(1e-12)),
        ),
        'msn': Case(T.ViTMSNModel, T.ViTMSNConfig(**SIZES), 'transformers-vit', dict(arch=ARCH, **eps(1e-6))),
        'beit with a table': Case(
            T.BeitModel, T.BeitConfig(**SIZES, use_absolute_position_embeddings=True, use_mean_pooling=False),
            'transformers-beit', dict(BEIT, arch=ARCH), target='transformers-beit',
        ),
        'dinov2': Case(
            T.Dinov2Model, T.Dinov2Config(**RATIO), 'transformers-dinov2', dict(SCALED, arch=WIDE),
            target='transformers-dinov2',
        ),
        'dinov2 classifier': Case(
            T.Dinov2ForImageClassification, T.Dinov2Config(**RATIO), 'transformers-dinov2', dict(SCALED, arch=WIDE),
            run=inside('dinov2'), target='transformers-dinov2',
        ),
        'dinov2 gated': Case(
            T.Dinov2Model, T.Dinov2Config(**RATIO, use_swiglu_ffn=True), 'transformers-dinov2',
            dict(SCALED, arch=ARCH, ffn_type='swiglu'), target='transformers-dinov2',
        ),
        'dinov2 registers': Case(
            T.Dinov2WithRegistersModel, T.Dinov2WithRegistersConfig(**RATIO, num_register_tokens=3),
            'transformers-dinov2', dict(SCALED, arch=WIDE, num_registers=3),
            target='transformers-dinov2', tolerance=1e-6,
        ),
        'dinov3': Case(
            T.DINOv3ViTModel, T.DINOv3ViTConfig(**SIZES, num_register_tokens=3), 'transformers-dinov3',
            dict(DINOV3, arch=ARCH), target='transformers-dinov3', table=False, tolerance=1e-5,
        ),
        'dinov3 gated': Case(
            T.DINOv3ViTModel, T.DINOv3ViTConfig(**SIZES, num_register_tokens=3, use_gated_mlp=True, hidden_act='silu'),
            'transformers-dinov3', dict(DINOV3, arch=ARCH, ffn_type='swiglu'), target='transformers-dinov3',
            table=False, tolerance=1e-5,
        ),
        'clip': Case(
            T.CLIPVisionModel, T.CLIPVisionConfig(**SIZES, hidden_act='gelu'), 'transformers-clip',
            dict(CLIP, arch=ARCH), run=normed_clip, target='transformers-clip',
        ),
        'clip projection': Case(
            T.CLIPVisionModelWithProjection, T.CLIPVisionConfig(**SIZES, hidden_act='gelu'), 'transformers-clip',
            dict(CLIP, arch=ARCH), run=inside('vision_model', normed_clip), target='transformers-clip',
        ),
        'siglip': Case(
            T.SiglipVisionModel, T.SiglipVisionConfig(**SIZES), 'transformers-siglip', dict(SIGLIP, arch=ARCH),
            target='transformers-siglip',
        ),
        'siglip2 naflex': Case(
            T.Siglip2VisionModel, T.Siglip2VisionConfig(**{k: v for k, v in SIZES.items() if k != 'image_size'},
            num_patches=GRID * GRID), 'transformers-siglip', dict(SIGLIP, arch=ARCH), run=naflex,
        ),
        'mae': Case(T.ViTMAEModel, T.ViTMAEConfig(**SIZES, mask_ratio=0.0), run=mae, target='transformers-vit', **vit),
        'mae with decoder': Case(
            T.ViTMAEForPreTraining, T.ViTMAEConfig(
                **SIZES, mask_ratio=0.0, decoder_hidden_size=8, decoder_num_attention_heads=2,
                decoder_num_hidden_layers=1, decoder_intermediate_size=8,
            ), run=inside('vit', mae), target='transformers-vit', **vit,
        ),
        'swin': Case(T.SwinModel, T.SwinConfig(**SWIN), own=IN_SWIN, run=swin_map, **OF_SWIN),
        'swin classifier': Case(
            T.SwinForImageClassification, T.SwinConfig(**SWIN), own=IN_SWIN, run=inside('swin', swin_map), **OF_SWIN,
        ),
        'swin with a table': Case(
            T.SwinModel, T.SwinConfig(**SWIN, use_absolute_embeddings=True),
            own=dict(IN_SWIN, pe_type=['learnable', 'rpe']), run=swin_map, **OF_SWIN,
        ),
        'swin backbone': Case(
            T.SwinBackbone, T.SwinConfig(**SWIN, out_indices=[1, 2]), own=dict(IN_SWIN, out_indices=[0, 1]),
            run=backbone_maps,
            **dict(OF_SWIN, base=dict(OF_SWIN['base'], pad_small_map=True)),
        ),
    }  # fmt: skip


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every parameter random values, norms and scales too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            scale = 0.3 if value.ndim == 1 else 0.15
            noise = scale * torch.randn(value.shape, generator=generator)
            value.copy_(noise + float(value.ndim == 1 and name.endswith(('norm.weight', 'norm1.weight'))))
    return model


CASES = _cases()


def theirs(name: str) -> nn.Module:
    case = CASES[name]
    return randomise(case.kind(case.config))


def ours(name: str) -> nn.Module:
    case = CASES[name]
    model = randomise(getattr(mmlape.models, case.cls)(**{**case.base, **case.own}), seed=5)
    if 'clip' in name:
        nn.init.zeros_(model.patch_embed.proj.bias)
    return model


def tokens_of(case: Case, model: nn.Module) -> list[Tensor]:
    with torch.no_grad():
        return case.run(model, IMAGE.to(next(model.parameters()).dtype))
