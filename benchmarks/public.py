"""The public ViT-Adapter code, run from a checkout that stays outside this repository.

Nothing of that code is here. Its modules are imported from the given folder; what today's stack lacks is replaced by
stand-ins while they are imported: the registries (classes are taken as they are), ``mmcv.runner.BaseModule`` (torch's
``Module``), checkpoint loaders (not used), and the deformable attention that users compile by hand. In its place runs
mmcv's op: on a GPU the same CUDA kernel in float32, as published; on the CPU, where the published op does not run at
all, mmcv's PyTorch function.
"""

import importlib
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from benchmarks.comparison import Settings
from benchmarks.models import arch_of, heads_of, prepared, windows
from mmlape.errors import ConfigError

REPOSITORY = 'git clone https://github.com/czczup/ViT-Adapter'


def public_adapter(settings: Settings, weights: dict[str, Tensor]) -> nn.Module:
    """Build the public detection code's ViT-Adapter with our weights."""
    folder = 'detection/mmdet_custom/models/backbones'
    root = Path(str(settings.public)).expanduser().resolve()
    if not (root / folder / 'vit_adapter.py').is_file():
        raise ConfigError(f'{root} has no {folder}/vit_adapter.py: give the folder of {REPOSITORY}')
    with _stand_ins(root / 'detection'):
        build = _package('public_vit_adapter', root / folder, 'vit_adapter').ViTAdapter
    arch = arch_of(settings)
    depth = arch['num_layers'] // 4
    model = build(
        pretrain_size=224, img_size=224, embed_dim=arch['embed_dims'], depth=arch['num_layers'],
        num_heads=arch['num_heads'], mlp_ratio=arch['feedforward_channels'] / arch['embed_dims'],
        deform_num_heads=heads_of(settings), conv_inplane=64, n_points=4, cffn_ratio=0.25, deform_ratio=1.0,
        init_values=0.1, interaction_indexes=[[i * depth, (i + 1) * depth - 1] for i in range(4)],
        window_attn=windows(arch['num_layers'])['window_attn'], window_size=[14] * arch['num_layers'],
    )  # fmt: skip
    model.load_state_dict(weights)
    return prepared(model, settings)


class DeformableFunction:
    """Stands in for the compiled autograd function; the same arguments."""

    @staticmethod
    def apply(value, shapes, starts, locations, weights, step: int) -> Tensor:
        from mmcv.ops import multi_scale_deform_attn as mmcv_op

        with torch.autocast(value.device.type, enabled=False):
            precision = torch.promote_types(value.dtype, torch.float32)
            value, locations, weights = (tensor.to(precision) for tensor in (value, locations, weights))
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
