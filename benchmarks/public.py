"""The public ViT-Adapter, LaPE, iRPE, T2T-ViT and CeiT code, run from a checkout that stays outside this repository.

Nothing of that code is here. Its modules are imported from the given folder; what today's stack lacks is replaced by
stand-ins while they are imported: the registries (classes are taken as they are), ``mmcv.runner.BaseModule`` (torch's
``Module``), checkpoint loaders (not used), and the deformable attention that users compile by hand. In its place runs
mmcv's op: on a GPU the same CUDA kernel in float32, as published; on the CPU, where the published op does not run at
all, mmcv's PyTorch function.
"""

import importlib
import importlib.util
import io
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from benchmarks.agreement import renamed
from benchmarks.comparison import Settings
from benchmarks.models import arch_of, ceit, prepared, t2t_vit, windows, without_dropout
from mmlape.errors import ConfigError

HINTS = {
    'vit-adapter': 'git clone https://github.com/czczup/ViT-Adapter',
    'lape': 'git clone https://github.com/Ingrid725/LaPE',
    'dinov3': 'git clone https://github.com/facebookresearch/dinov3',
    'irpe': 'git clone https://github.com/microsoft/Cream, iRPE/DeiT-with-iRPE in it',
    't2t': 'git clone https://github.com/yitu-opensource/T2T-ViT',
    'ceit': 'git clone https://github.com/coeusguo/ceit',
    'compact': 'git clone https://github.com/SHI-Labs/Compact-Transformers',
}


def checkout(settings: Settings, name: str, file: str) -> Path:
    """Return the folder of a checkout, which must hold a file.

    Raises:
        ConfigError: It is not a checkout of that repository.
    """
    root = Path(settings.checkouts[name]).expanduser().resolve()
    if not (root / file).is_file():
        raise ConfigError(f'--{name} {root} has no {file}: give the folder of {HINTS[name]}')
    return root


def public_adapter(settings: Settings, weights: dict[str, Tensor]) -> nn.Module:
    """Build the public detection code's ViT-Adapter with our weights."""
    folder = 'detection/mmdet_custom/models/backbones'
    root = checkout(settings, 'vit-adapter', f'{folder}/vit_adapter.py')
    with _stand_ins(root / 'detection'):
        build = _package('public_vit_adapter', root / folder, 'vit_adapter').ViTAdapter
    arch = arch_of(settings)
    depth = arch['num_layers'] // 4
    model = build(
        pretrain_size=224, img_size=224, embed_dim=arch['embed_dims'], depth=arch['num_layers'],
        num_heads=arch['num_heads'], mlp_ratio=arch['feedforward_channels'] / arch['embed_dims'], deform_num_heads=6,
        conv_inplane=64, n_points=4, cffn_ratio=0.25, deform_ratio=1.0, init_values=0.1,
        interaction_indexes=[[i * depth, (i + 1) * depth - 1] for i in range(4)],
        window_attn=windows(arch['num_layers'])['window_attn'], window_size=[14] * arch['num_layers'],
    )  # fmt: skip
    model.load_state_dict(weights)
    return prepared(model, settings)


OF_BEIT = ((r'\.gamma([12])$', r'.gamma_\1'),)
"""How the public BEiT names its parameters, from our names."""


def public_beit_adapter(settings: Settings, size: int, weights: dict[str, Tensor]) -> nn.Module:
    """Build the public segmentation code's ViT-Adapter over BEiT with our weights."""
    folder = 'segmentation/mmseg_custom/models/backbones'
    root = checkout(settings, 'vit-adapter', f'{folder}/beit_adapter.py')
    with _stand_ins(root / 'detection'):  # the folder of the ops that both tasks share
        build = _package('public_beit_adapter', root / folder, 'beit_adapter').BEiTAdapter
    arch = arch_of(settings)
    depth = arch['num_layers'] // 4
    model = build(
        img_size=size, embed_dim=arch['embed_dims'], depth=arch['num_layers'], num_heads=arch['num_heads'],
        mlp_ratio=arch['feedforward_channels'] / arch['embed_dims'], qkv_bias=True, use_abs_pos_emb=False,
        use_rel_pos_bias=True, deform_num_heads=6, conv_inplane=64, n_points=4, cffn_ratio=0.25, deform_ratio=1.0,
        init_values=0.1, interaction_indexes=[[i * depth, (i + 1) * depth - 1] for i in range(4)],
    )  # fmt: skip
    indices = {name: value for name, value in model.state_dict().items() if name.endswith('relative_position_index')}
    model.load_state_dict(renamed(weights, OF_BEIT) | indices)
    return prepared(model, settings)


def public_lape(settings: Settings, size: int, weights: dict[str, Tensor]) -> nn.Module:
    """Build the public LaPE ViT with our weights; it returns the class token (B, D)."""
    from functools import partial

    root = checkout(settings, 'lape', 'vision_transformer.py')
    with _stand_ins(root):
        module = _package('public_lape', root, 'vision_transformer')
    arch = arch_of(settings)
    model = module.VisionTransformer(
        img_size=size, patch_size=16, num_classes=0, embed_dim=arch['embed_dims'], depth=arch['num_layers'],
        num_heads=arch['num_heads'], mlp_ratio=arch['feedforward_channels'] / arch['embed_dims'], qkv_bias=True,
        norm_layer=partial(nn.LayerNorm, eps=1e-6), pe='learnable', join_type='LaPE',
    )  # fmt: skip
    model.load_state_dict(weights)
    return prepared(model, settings)


def public_dinov3(settings: Settings) -> nn.Module:
    """Build DINOv3's adapter over its frozen ViT, with random weights; deformable attention is mmcv's function."""
    root = checkout(settings, 'dinov3', 'dinov3/models/vision_transformer.py')
    sys.path.insert(0, str(root))
    try:
        for name in ('eval', 'eval/segmentation', 'eval/segmentation/models'):
            full = f'dinov3.{name.replace("/", ".")}'
            sys.modules.setdefault(full, _module(full, __path__=[str(root / 'dinov3' / name)]))
        module = importlib.import_module('dinov3.eval.segmentation.models.backbone.dinov3_adapter')
        vision = importlib.import_module('dinov3.models.vision_transformer')
    finally:
        sys.path.remove(str(root))
    deform = importlib.import_module('dinov3.eval.segmentation.models.utils.ms_deform_attn')
    deform.MSDeformAttnFunction = DeformableFunction
    arch = arch_of(settings)
    vit = vision.DinoVisionTransformer(
        embed_dim=arch['embed_dims'], depth=arch['num_layers'], num_heads=arch['num_heads'], n_storage_tokens=4,
        layerscale_init=1e-5, norm_layer='layernormbf16', mask_k_bias=True, pos_embed_rope_dtype='fp32',
    )  # fmt: skip
    vit.init_weights()
    quarter = arch['num_layers'] // 4
    layers = [(i + 1) * quarter - 1 for i in range(4)]
    heads = 4 if settings.arch == 'mini' else 16
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        model = module.DINOv3_Adapter(vit, interaction_indexes=layers, deform_num_heads=heads)
    return prepared(model, settings)


def public_cct(settings: Settings, arch: str, size: int, weights: dict[str, Tensor]) -> nn.Module:
    """Build the public CCT with our weights; it returns the pooled tokens (B, D)."""
    from mmlape.projects.compact.model import ARCHS, conv_stride

    root = checkout(settings, 'compact', 'src/cct.py')
    with _stand_ins(root):
        build = _package('public_cct', root / 'src', 'cct').CCT
    ours = ARCHS[arch]
    kernel, convs = ours['tokenizer']['kernel_size'], ours['tokenizer']['num_convs']
    model = build(
        img_size=size, embedding_dim=ours['embed_dims'], n_conv_layers=convs, kernel_size=kernel,
        stride=conv_stride(kernel), padding=kernel // 2, attention_dropout=0.0, stochastic_depth=0.0,
        num_layers=ours['num_layers'], num_heads=ours['num_heads'],
        mlp_ratio=ours['feedforward_channels'] / ours['embed_dims'], num_classes=0,
    )  # fmt: skip
    model.classifier.fc = nn.Identity()
    model.load_state_dict({n if n.startswith('tokenizer.') else f'classifier.{n}': v for n, v in weights.items()})
    return prepared(model, settings)


def public_t2t(settings: Settings, size: int, weights: dict[str, Tensor]) -> nn.Module:
    """Build the public T2T-ViT with the weights and widths of ours; it returns the class token (B, D)."""
    root = checkout(settings, 't2t', 'models/t2t_vit.py')
    with _stand_ins(root), redirect_stdout(io.StringIO()):
        module = _package('public_t2t', root / 'models', 't2t_vit')
        arch = t2t_vit(settings, size).arch
        model = module.T2T_ViT(
            img_size=size, num_classes=0, embed_dim=arch['embed_dims'], depth=arch['num_layers'],
            num_heads=arch['num_heads'], mlp_ratio=arch['feedforward_channels'] / arch['embed_dims'],
            token_dim=arch['token_dims'],
        )  # fmt: skip
    model.load_state_dict(weights)
    return prepared(without_dropout(model), settings)


def public_ceit(settings: Settings, size: int, weights: dict[str, Tensor]) -> nn.Module:
    """Build the public CeiT with the weights and widths of ours; it returns the class token (B, D)."""
    from functools import partial

    root = checkout(settings, 'ceit', 'ceit_model.py')
    with _stand_ins(root), redirect_stdout(io.StringIO()):
        module = _package('public_ceit', root, 'ceit_model')
        arch = ceit(settings, size).arch
        model = module.CeIT(
            hybrid_backbone=module.Image2Tokens(out_chans=arch['stem_channels']), img_size=size, patch_size=4,
            num_classes=0, embed_dim=arch['embed_dims'], depth=arch['num_layers'], num_heads=arch['num_heads'],
            mlp_ratio=arch['feedforward_channels'] / arch['embed_dims'], qkv_bias=True,
            norm_layer=partial(nn.LayerNorm, eps=1e-6),
        )  # fmt: skip
    model.load_state_dict(weights)
    return prepared(model, settings)


def public_irpe(settings: Settings, size: int, on: str, weights: dict[str, Tensor]) -> nn.Module:
    """Build the public DeiT with product contextual iRPE and our weights; it returns the class token (B, D)."""
    from functools import partial

    root = checkout(settings, 'irpe', 'rpe_vision_transformer.py')
    with _stand_ins(root), warnings.catch_warnings():
        warnings.simplefilter('ignore')
        sys.modules['easydict'] = _module('easydict', EasyDict=_Attributes)
        module = importlib.import_module('rpe_vision_transformer')
        config = importlib.import_module('irpe').get_rpe_config(1.9, 'product', 'ctx', True, 1, on)
        arch = arch_of(settings)
        model = module.VisionTransformer(
            img_size=size, patch_size=16, num_classes=0, embed_dim=arch['embed_dims'], depth=arch['num_layers'],
            num_heads=arch['num_heads'], mlp_ratio=arch['feedforward_channels'] / arch['embed_dims'], qkv_bias=True,
            norm_layer=partial(nn.LayerNorm, eps=1e-6), rpe_config=config,
        )  # fmt: skip
    model.load_state_dict(weights)
    return prepared(model, settings)


class _Attributes(dict):
    """What iRPE needs of ``easydict``."""

    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__


class DeformableFunction:
    """Stands in for the compiled autograd function; the same arguments."""

    @staticmethod
    def apply(value, shapes, starts, locations, weights, step: int) -> Tensor:
        from mmcv.ops import multi_scale_deform_attn as mmcv_op

        with torch.autocast(value.device.type, enabled=False):
            value, locations, weights = value.float(), locations.float(), weights.float()
            if not value.is_cuda:
                return mmcv_op.multi_scale_deformable_attn_pytorch(value, shapes, locations, weights)
            function = mmcv_op.MultiScaleDeformableAttnFunction
            return function.apply(value, shapes, starts, locations, weights, min(step, len(value)))


class _Registry:
    @staticmethod
    def register_module(*args, **kwargs):
        return lambda cls: cls


def _module(name: str, **contents) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(contents)
    return module


def _package(name: str, folder: Path, module: str) -> ModuleType:
    """Import one module of a folder as part of a package of our naming, without the folder's own ``__init__``."""
    if f'{name}.{module}' not in sys.modules:
        package = _module(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        return importlib.import_module(f'{name}.{module}')


@contextmanager
def _stand_ins(root: Path) -> Iterator[None]:
    """Put the stand-ins where the public code imports from, and the checkout on the path; undo both after."""
    from timm import layers
    from timm.models import _registry

    builder = _module('mmdet.models.builder', BACKBONES=_Registry)
    fakes = {
        'mmdet': _module('mmdet', __path__=[]),
        'mmdet.models': _module('mmdet.models', __path__=[]),
        'mmdet.models.builder': builder,
        'mmdet.utils': _module('mmdet.utils', get_root_logger=logging.getLogger),
        'mmseg': _module('mmseg', __path__=[]),
        'mmseg.models': _module('mmseg.models', __path__=[]),
        'mmseg.models.builder': builder,
        'mmseg.utils': _module('mmseg.utils', get_root_logger=logging.getLogger),
        'mmcv': _module('mmcv', __path__=[]),
        'mmcv.runner': _module('mmcv.runner', BaseModule=nn.Module),
        'mmcv_custom': _module('mmcv_custom', my_load_checkpoint=None, load_checkpoint=None),
        'timm.models.layers': layers,
        'timm.models.helpers': _module('timm.models.helpers', load_pretrained=None),
        'timm.models.registry': _registry,
        'MultiScaleDeformableAttention': _module('MultiScaleDeformableAttention'),
    }
    before = {name: sys.modules.get(name) for name in fakes}
    sys.modules.update(fakes)
    sys.path.insert(0, str(root))
    try:
        if (root / 'ops').is_dir():
            with warnings.catch_warnings():
                warnings.simplefilter('ignore')
                importlib.import_module('ops.modules.ms_deform_attn').MSDeformAttnFunction = DeformableFunction
        yield
    finally:
        sys.path.remove(str(root))
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
