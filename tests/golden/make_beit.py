"""Golden data of the other bases in ViT-Adapter's public code (czczup/ViT-Adapter at fd64a51).

BEiT of both tasks under the adapter, Uni-Perceiver of both, the baselines without an adapter, and how BEiT's tables
are resized. Stand-ins are those of ``make_vit_adapter.py``; the spline that the public code reads tables with has left
SciPy, and ``RectBivariateSpline``, which it names as the replacement, stands in. A LaPE table beside BEiT's bias has
no public code: hooks add the chain of normed PE.
"""

import importlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from make_vit_adapter import ARCH, DEPTH, DIMS, HEADS, SHARED, stub
from recording import Case, Weights, call, fill, image, write
from scipy.interpolate import RectBivariateSpline
from torch import Tensor, nn

SIDE = 64
INPUTS = dict(pair=image(0, 2, 3, 64, 64), single=image(1, 1, 3, 64, 96), odd=image(2, 1, 3, 50, 37))
WINDOWED = dict(window_attn=True, window_size=[3, 4, 6, 2, 5])
PUBLIC = dict(img_size=SIDE, embed_dim=DIMS, depth=DEPTH, num_heads=HEADS, mlp_ratio=2)
BEIT = dict(qkv_bias=True, use_abs_pos_emb=False, use_rel_pos_bias=True)
OURS = dict(arch=ARCH, img_size=SIDE)
OUR_BEIT = dict(pe_type='beit', qkv_bias='qv')
LAYERS = [0, 1, 3, 4]
TABLES = {name: (src, dst) for name, src, dst in (('finer', 14, 20), ('crop', 14, 8), ('fitted', 6, 9))}

stub('mmcv_custom', load_checkpoint=None)
stub('mmcv.runner', load_checkpoint=None, get_dist_info=lambda: (1, 1))
stub('mmcv.fileio', FileClient=None, load=None)
stub('mmcv.parallel', is_module_wrapper=None)
stub('mmcv.utils', mkdir_or_exist=None)
BACKBONES = {
    (task, name): getattr(importlib.import_module(f'{task}.{module}'), name)
    for task in ('detection', 'segmentation')
    for module, name in (
        ('beit_adapter', 'BEiTAdapter'),
        ('uniperceiver_adapter', 'UniPerceiverAdapter'),
        ('vit_baseline', 'ViTBaseline'),
        ('beit_baseline', 'BEiTBaseline'),
    )
    if (task, name) != ('detection', 'BEiTBaseline')
}


def our_beit(name: str) -> str:
    """Return our name of a tensor of BEiT and its baseline."""
    for old, new in (('gamma_', 'gamma'), ('fpn1.', 'up1.'), ('fpn2.0.', 'up2.')):
        name = name.replace(old, new)
    return name


def our_uni_perceiver(name: str) -> str:
    """Return our name of a tensor of Uni-Perceiver; those of the two PE tables stay."""
    for old, new in (
        ('layers.', 'blocks.'),
        ('self_attn.in_proj', 'attn.qkv'),
        ('self_attn.out_proj', 'attn.proj'),
        ('linear', 'mlp.fc'),
        ('gamma_', 'gamma'),
        ('visual_embed.embeddings_norm', 'norm_pre'),
        ('visual_embed.', ''),
    ):
        name = name.replace(old, new)
    return name


def padded(forward, x: Tensor) -> list[Tensor]:
    """Pad images to multiples of 32, which the public code takes, and crop the maps."""
    height, width = x.shape[2:]
    maps = forward(F.pad(x, (0, -width % 32, 0, -height % 32)))
    return [m[..., : -(-height // s), : -(-width // s)] for m, s in zip(maps, (4, 8, 16, 32), strict=True)]


def beit(
    name: str,
    task: str,
    public: dict,
    ours: dict,
    inputs: tuple[str, ...],
    kind: str = 'BEiTAdapter',
    lape: bool = False,
) -> Case:
    """Return a case of BEiT; with ``lape``, hooks add LaPE's chain to what attention sees."""
    model = BACKBONES[task, kind](**PUBLIC, **BEIT, **public)
    names = {our_beit(key): key for key in model.state_dict()}
    indices = {key: value for key, value in model.state_dict().items() if key.endswith('index')}
    base = {key: model.state_dict()[old] for key, old in names.items() if old not in indices}
    if lape:
        base['pos_embed'] = torch.zeros(1, 1 + (SIDE // 16) ** 2, DIMS)
        base |= {f'blocks.{i}.pe_norm.weight': torch.ones(DIMS) for i in range(DEPTH)}
        base |= {f'blocks.{i}.pe_norm.bias': torch.zeros(DIMS) for i in range(DEPTH)}

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        hooks, pe = [], weights.get('pos_embed')
        for i, block in enumerate(model.blocks if lape else ()):
            pe = F.layer_norm(
                pe, (DIMS,), *(weights[f'blocks.{i}.pe_norm.{leaf}'] for leaf in ('weight', 'bias')), 1e-6
            )
            hooks.append(block.norm1.register_forward_hook(lambda module, args, out, pe=pe: out + pe))
        own = {names[key]: value for key, value in weights.items() if key in names} | indices
        outputs = padded(lambda x: call(model, own, x), x)
        for hook in hooks:
            hook.remove()
        return outputs

    return Case(
        name,
        'ViTAdapter' if kind == 'BEiTAdapter' else 'ViTPyramid',
        OURS | OUR_BEIT | ours,
        fill(base),
        run,
        inputs=inputs,
        gradients=inputs[:1],
    )


def uni_perceiver(name: str, task: str, public: dict, ours: dict, inputs: tuple[str, ...]) -> Case:
    """Return a case of Uni-Perceiver, whose first temporal row is part of our table."""
    model = BACKBONES[task, 'UniPerceiverAdapter'](**PUBLIC, **SHARED, pretrain_size=SIDE, **public)
    names = {our_uni_perceiver(key): key for key in model.state_dict()}
    places, times = (names.pop(f'patch_embed.{kind}_pos_embed.weight') for kind in ('spatial', 'temporal'))
    time = image(7, 8, DIMS)
    base = {key: model.state_dict()[old] for key, old in names.items()}
    base['pos_embed'] = model.state_dict()[places][None]

    def run(weights: Weights, x: Tensor) -> list[Tensor]:
        own = {names[key]: value for key, value in weights.items() if key in names}
        first = time.to(x.dtype)
        own |= {places: weights['pos_embed'][0] - first[0], times: first}
        return padded(lambda x: call(model, own, x), x)

    kwargs = OURS | SHARED | dict(
        with_prefix_pe=False,
        patch_norm='post-posemb',
        norm_cfg=dict(type='LN', eps=1e-5),
        window_padding='before-qkv',
        **ours,
    )  # fmt: skip
    return Case(name, 'ViTAdapter', kwargs, fill(base), run, inputs=inputs, gradients=inputs[:1])


def vit_baseline(name: str) -> Case:
    """Return a case of ``ViTBaseline``, whose norm between deconvolutions wants a width of 32 groups."""
    widths = dict(embed_dim=32, num_heads=2)
    windows = dict(window_attn=[True, False, True, False, True], window_size=[3] * DEPTH)
    public = dict(PUBLIC | widths, pretrain_size=SIDE, out_indices=LAYERS, **windows)
    model = BACKBONES['detection', 'ViTBaseline'](**public)
    arch = dict(embed_dims=32, num_layers=DEPTH, num_heads=2, feedforward_channels=64)
    ours = dict(arch=arch, img_size=SIDE, out_indices=LAYERS, **windows)
    run = lambda weights, x: padded(lambda x: call(model, weights, x), x)  # noqa: E731
    return Case(name, 'ViTPyramid', ours, fill(model.state_dict()), run, inputs=('odd',))


def resized_tables() -> dict[str, np.ndarray]:
    """Return random tables, and how the public loaders resize them."""

    class Spline:
        def __init__(self, x, y, z, kind):
            assert kind == 'cubic'
            self.spline = RectBivariateSpline(y, x, z)

        def __call__(self, dx, dy):
            return self.spline(dy, dx)

    data = {}
    for task in ('segmentation', 'detection'):
        path = f'{sys.path[0]}/../{task}/mmcv_custom/checkpoint.py'
        spec = importlib.util.spec_from_file_location('public_checkpoint', path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.interpolate = type('interpolate', (), dict(interp2d=Spline))
        module.load_state_dict = lambda model, state, strict, logger: data.update(loaded=state)
        for name, (src, dst) in TABLES.items():
            stored = image(3, (2 * src - 1) ** 2 + 3, HEADS)
            rows = (2 * dst - 1) ** 2 + 3 * (task == 'segmentation')
            key = 'blocks.0.attn.relative_position_bias_table'
            model = nn.Module()
            model.patch_embed = nn.Module()
            model.patch_embed.patch_shape = (dst, dst)
            model.state_dict = lambda rows=rows, key=key: {key: torch.zeros(rows, HEADS)}
            module._load_checkpoint = lambda *args, stored=stored, key=key: {'model': {key: stored.clone()}}
            module.load_checkpoint(model, '')
            data[f'tables/{name}/stored'] = stored.numpy()
            data[f'tables/{name}/{task}'] = data.pop('loaded')[key].numpy()
    return data


if __name__ == '__main__':
    windows = dict(WINDOWED, window_padding='before-qkv')
    scale = dict(layer_scale_init_value=0.1)
    with_class = SHARED | scale | dict(with_cls_token=True, vit_feature_source='interaction')
    old = SHARED | windows | scale | dict(vit_feature_source='interaction')
    beside = dict(pe_type=['learnable', 'beit'], pe_joining='lape')
    outputs = dict(out_indices=LAYERS, with_cls_token=True, norm_maps=False, up_norm_cfg=dict(type='SyncBN'))
    every_window = dict(WINDOWED, window_attn=[True] * DEPTH)
    square, detection, segmentation = ('pair',), 'detection', 'segmentation'
    write(
        'beit',
        INPUTS,
        [
            beit('segmentation', segmentation, SHARED, with_class, square),
            beit('segmentation-lape', segmentation, SHARED, with_class | beside, square, lape=True),
            beit('detection', detection, SHARED | WINDOWED, SHARED | windows | scale, ('single', 'pair', 'odd')),
            beit('detection-old', detection, SHARED | WINDOWED | dict(version='old'), old, ('odd',)),
            uni_perceiver('uni-perceiver-windows', detection, every_window, WINDOWED, ('odd',)),
            uni_perceiver('uni-perceiver', segmentation, {}, dict(vit_feature_source='interaction'), ('single',)),
            vit_baseline('vit-baseline'),
            beit(
                'beit-baseline',
                segmentation,
                dict(out_indices=LAYERS, init_values=0.1),
                scale | outputs,
                square,
                kind='BEiTBaseline',
            ),
        ],
        resized_tables(),
    )
