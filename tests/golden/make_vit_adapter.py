"""Golden data of ViT-Adapter's public code (czczup/ViT-Adapter at fd64a51): both tasks' classes.

Names of old OpenMMLab releases that the code imports are stubbed; of its compiled operation, its own PyTorch
formulation is used. There is no public LaPE adapter: those cases run the public class with a zero PE, and hooks add
LaPE's chain of normed PE to attention's input, as in ``make_lape.py``. The code takes sides that are multiples of 32:
other images are padded with zeros on the right and the bottom, and their maps cropped, as ours does inside.
"""

import importlib
import logging
import sys
import types

import torch
import torch.nn.functional as F
from recording import Case, Weights, call, checkout, fill, image, write
from torch import Tensor, nn

DEPTH, DIMS, HEADS, SIDE = 5, 6, 3, 64
ARCH = dict(embed_dims=DIMS, num_layers=DEPTH, num_heads=HEADS, feedforward_channels=2 * DIMS)
DROPS = dict(drop_rate=0.1, attn_drop_rate=0.2, drop_path_rate=0.3)  # of no effect in evaluation mode
INPUTS = dict(pair=image(0, 2, 3, 64, 32), single=image(1, 1, 3, 64, 96), odd=image(2, 1, 3, 50, 37))
SHARED = dict(
    conv_inplane=2,
    n_points=4,
    deform_num_heads=3,
    init_values=0.1,
    interaction_indexes=[[0, 1], [2, 2], [3, 3], [4, 4]],
    cffn_ratio=0.5,
)
WINDOWED = dict(window_attn=[True, True, False, True, False], window_size=[3, 4, 14, 2, 14])


def stub(name: str, **attributes) -> None:
    """Put a module of that name, with its parents, into ``sys.modules``, with just these attributes."""
    parts = name.split('.')
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault('.'.join(parts[:i]), types.ModuleType('.'.join(parts[:i])))
    vars(sys.modules[name]).update(attributes)


class Registry:
    """A registry that returns classes as they are."""

    @staticmethod
    def register_module(**kwargs):
        return lambda cls: cls


def load_classes(folder: str) -> dict[str, type[nn.Module]]:
    """Import the two public classes."""
    stub('mmcv.runner', BaseModule=nn.Module)
    stub('mmcv_custom', my_load_checkpoint=None)
    stub('MultiScaleDeformableAttention')
    classes = {}
    sys.path.insert(0, f'{folder}/detection')  # of the folder ops, which both tasks share
    for task, toolbox in (('detection', 'mmdet'), ('segmentation', 'mmseg')):
        stub(f'{toolbox}.models.builder', BACKBONES=Registry)
        stub(f'{toolbox}.utils', get_root_logger=logging.getLogger)
        package = types.ModuleType(task)
        package.__path__ = [f'{folder}/{task}/{toolbox}_custom/models/backbones']
        sys.modules[task] = package
        classes[task] = importlib.import_module(f'{task}.vit_adapter').ViTAdapter
    functions = importlib.import_module('ops.functions.ms_deform_attn_func')

    class InPyTorch:
        @staticmethod
        def apply(value, shapes, starts, locations, weights, step):
            return functions.ms_deform_attn_core_pytorch(value, shapes, locations, weights)

    importlib.import_module('ops.modules.ms_deform_attn').MSDeformAttnFunction = InPyTorch
    return classes


CLASSES = load_classes(checkout())


def lape_hooks(model: nn.Module, w: Tensor, own: Weights) -> list:
    """Register hooks that add w_l = LN_l(w_{l-1}) to the input of each layer's attention."""
    hooks = []
    for i, block in enumerate(model.blocks):
        weight, bias = (own[f'blocks.{i}.pe_norm.{leaf}'] for leaf in ('weight', 'bias'))
        w = F.layer_norm(w, (DIMS,), weight, bias, 1e-6)
        hooks.append(block.norm1.register_forward_hook(lambda module, args, out, w=w: out + w))
    return hooks


def forward(model: nn.Module, weights: Weights, x: Tensor, training: bool) -> list[Tensor]:
    """Run the public model on images of any size, with LaPE's joining if its norms are among the weights."""
    height, width = x.shape[2:]
    x = F.pad(x, (0, -width % 32, 0, -height % 32))
    own = {key: value for key, value in weights.items() if 'pe_norm' in key}
    rest = {key: value for key, value in weights.items() if key not in own}
    hooks = []
    if own:
        table = rest['pos_embed'][:, 1:].reshape(1, SIDE // 16, SIDE // 16, DIMS).permute(0, 3, 1, 2)
        grid = (x.shape[2] // 16, x.shape[3] // 16)
        w = F.interpolate(table, grid, mode='bicubic', align_corners=False).flatten(2).transpose(1, 2)
        hooks = lape_hooks(model, w, own)
        rest['pos_embed'] = 0 * rest['pos_embed']
    maps = call(model, rest, x, training)
    for hook in hooks:
        hook.remove()
    return [m[..., : -(-height // s), : -(-width // s)] for m, s in zip(maps, (4, 8, 16, 32), strict=True)]


def case(
    name: str,
    task: str,
    windowed: bool,
    public: dict | None = None,
    ours: dict | None = None,
    lape: bool = False,
    gradients: tuple[str, ...] = ('pair',),
    training: bool = False,
    inputs: tuple[str, ...] = ('pair', 'single'),
) -> Case:
    """Return the case of one configuration.

    Args:
        name: Its name.
        task: The public class.
        windowed: Whether attention is windowed, or global in all layers.
        public: Further arguments of the public class.
        ours: The same for ours, if they are other ones.
        lape: Whether hooks make a LaPE adapter of it.
        training: Whether it is in training mode.
        gradients: The inputs to record gradients for.
        inputs: The inputs to record outputs for.
    """
    public = {**SHARED, **(public or {})}
    attention = WINDOWED if windowed else {}
    model = CLASSES[task](
        pretrain_size=SIDE,
        img_size=SIDE,
        patch_size=16,
        embed_dim=DIMS,
        depth=DEPTH,
        num_heads=HEADS,
        mlp_ratio=2,
        **public,
        **attention,
    )
    base = model.state_dict()
    if lape:
        base.update({f'blocks.{i}.pe_norm.weight': torch.ones(DIMS) for i in range(DEPTH)})
        base.update({f'blocks.{i}.pe_norm.bias': torch.zeros(DIMS) for i in range(DEPTH)})

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        return forward(model, weights, x, training)

    kwargs = dict(
        arch=ARCH,
        img_size=SIDE,
        vit_feature_source='last' if task == 'detection' else 'interaction',
        pe_joining='lape' if lape else 'default',
        **attention,
        **({} if training else DROPS),
        **({**SHARED, **ours} if ours is not None else public),
    )
    return Case(name, 'ViTAdapter', kwargs, fill(base), run, inputs=inputs, gradients=gradients, training=training)


if __name__ == '__main__':
    both = ('pair', 'single')
    widths = dict(conv_inplane=3, n_points=2, deform_num_heads=2, cffn_ratio=1.0)
    plain_blocks = dict(layer_scale=False, qkv_bias=False)
    switches = (
        ('no-cffn', 'detection', False, dict(with_cffn=False)),
        ('no-vit-feature', 'segmentation', True, dict(add_vit_feature=False)),
        ('no-extra-extractor', 'segmentation', False, dict(use_extra_extractor=False)),
        ('half-values', 'detection', False, dict(deform_ratio=0.5)),
        ('two-interactions', 'detection', True, dict(interaction_indexes=[[0, 2], [3, 4]])),
        ('other-widths', 'segmentation', False, widths),
        ('plain-blocks', 'detection', True, plain_blocks, dict(layer_scale_init_value=0, qkv_bias=False)),
    )
    write(
        'vit_adapter',
        INPUTS,
        [
            case('detection', 'detection', True, gradients=both, inputs=tuple(INPUTS)),
            case('segmentation', 'segmentation', False),
            case('detection-lape', 'detection', True, lape=True),
            case('segmentation-lape', 'segmentation', False, lape=True),
            case('detection-training', 'detection', True, training=True, gradients=both),
            case('detection-global', 'detection', False, gradients=()),
            case('segmentation-windowed', 'segmentation', True, gradients=()),
            *(case(*arguments, inputs=('pair',)) for arguments in switches),
        ],
    )
