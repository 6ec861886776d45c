"""Initial values that constructors give: each parameter of each family and of each encoding has those of one row."""

import math
import re
from functools import partial

import torch
from each import each
from model_helpers import is_normal, is_uniform
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models import DistilledVisionTransformer, SwinTransformer, VisionTransformer, ViTAdapter
from mmlape.models.position import PE_NORMS
from mmlape.projects import CeiT, CompactTransformer, T2TViT

FAMILIES = {
    'ViT': partial(DistilledVisionTransformer, 'deit-tiny', pe_joining='lape', patch_norm='dual'),
    'ViT, a table a layer': partial(VisionTransformer, 'deit-tiny', pe_joining='unshared', num_registers=4),
    'adapter': partial(ViTAdapter, 'deit-tiny', pe_joining='lape'),
    'T2T-ViT': partial(T2TViT, 't2t-vit-7', pe_joining='lape'),
    'CeiT': partial(CeiT, 'tiny', pe_joining='lape'),
    'Swin': partial(SwinTransformer, pe_type=['learnable', 'rpe']),
    'ViT-Lite': partial(CompactTransformer, 'vit-lite-7/4'),
    'CVT, a table a layer': partial(CompactTransformer, 'cvt-4/4', pe_joining='unshared'),
    'CCT': partial(CompactTransformer, 'cct-7/3x1'),
}


def all_are(number: float):
    return lambda value: bool((value == number).all())


def normal(std: float):
    return lambda value: is_normal(value, std)


def torchs(value: Tensor) -> bool:
    """Uniform in the range that PyTorch's linear maps and convolutions have."""
    return is_uniform(value, value[0].numel() ** -0.5)


def xavier(value: Tensor) -> bool:
    return is_uniform(value, math.sqrt(6 / sum(value.shape)))


def fan_out(value: Tensor) -> bool:
    """He et al.'s, of a convolution or of one of each channel, forward; a transposed one has its axes swapped."""
    groups = len(value) if value.shape[1] == 1 else 1
    return is_normal(value, math.sqrt(2 / (value[0, 0].numel() * len(value) / groups)))


def star(value: Tensor) -> bool:
    """Head h looks along the angle 2 pi h / heads, point p at p + 1 cells, on the unit square."""
    offsets = value.view(6, -1, 4, 2)
    for head, point in ((head, point) for head in range(6) for point in range(4)):
        x, y = math.cos(math.pi * head / 3), math.sin(math.pi * head / 3)
        ray = torch.tensor((x, y)) / max(abs(x), abs(y)) * (point + 1)
        torch.testing.assert_close(offsets[head, :, point], ray.expand(offsets.shape[1], 2), atol=1e-5, rtol=0)
    return True


ROWS = {
    r'sampling_offsets\.bias': star,
    r'(sampling_offsets|attention_weights)\.(weight|bias)': all_are(0),
    r'(value_proj|output_proj)\.weight': xavier,
    r'injector\.gamma': all_are(0),
    r'gamma[12]': all_are(1),
    r'level_embed': normal(1.0),
    r'(^spm\..*|^up|\.dwconv)\.weight': fan_out,
    r'^tokenizer\..*weight': lambda value: is_normal(value, math.sqrt(2 / value[0].numel())),
    r'^positional_emb\d*': normal(0.2),
    r'pos_layer_embed|class_emb': all_are(0),
    r'((^|\.)(absolute_)?pos_embed\d*|_token|relative_position_bias_table)$': normal(0.02),
}
"""What no kind of layer tells, by the name of the parameter."""


def expected(name: str, module: nn.Module):
    """Return the check of a parameter; None for PyTorch's own values."""
    if isinstance(module, nn.LayerNorm | _BatchNorm):
        return all_are(float(name.endswith(('weight', 'running_var'))))
    for pattern, check in ROWS.items():
        if re.search(pattern, name):
            return check
    if isinstance(module, nn.Linear):
        return all_are(0) if name.endswith('bias') else normal(0.02)
    assert isinstance(module, nn.Conv2d | nn.ConvTranspose2d), name
    return all_are(0) if name.startswith(('spm.', 'up.', 'interactions.')) else None


def test_every_parameter_of_every_family():
    for name in each(FAMILIES):
        model = FAMILIES[name]()
        for prefix, module in model.named_modules():
            own = dict(module.named_parameters(prefix, recurse=False))
            if isinstance(module, _BatchNorm):
                own |= {key: value for key, value in module.named_buffers(prefix) if 'running' in key}
            for key, value in own.items():
                bound = own.get(f'{prefix}.weight', value)[0].numel() ** -0.5  # of a convolution of PyTorch's
                check = expected(key, module)
                assert check(value) if check else is_uniform(value, bound), key


ENCODINGS = {
    'pos_embed': normal(0.02), 'cpe.weight': torchs, 'cpe.bias': lambda value: is_uniform(value, 1 / 3),
    'rpe_proj.weight': normal(0.02), 'fire_scale': all_are(torch.tensor(0.1)),
    'fire_length': lambda value: value.tolist() == [13, 6],
    'fire_hidden_weight': torchs, 'fire_hidden_bias': lambda value: is_uniform(value, 2**-0.5),
    'fire_out_weight': torchs, 'pape_position': torchs, 'pape_ab': torchs,
}  # fmt: skip
"""Of the parameters of encodings; all others are zero, but frequencies, which are timm's: test_rotary.py."""


def test_every_parameter_of_every_encoding():
    arch = dict(embed_dims=192, num_layers=2, num_heads=3, feedforward_channels=8)
    given = dict(type='learnable', std=0.7)
    more = (given, dict(type='irpe', on='qkv'), dict(type='irpe', method='cross', mode='bias'))
    for kind in each([*POSITION_ENCODINGS.module_dict, *more]):
        model = VisionTransformer(arch, (224, 112), pe_type=kind)
        for prefix, module in model.named_modules():
            own = dict(module.named_parameters())
            for name in own.keys() & {*getattr(module, 'pe_names', ())} - {'freqs'}:
                check = normal(0.7) if kind is given else ENCODINGS.get(name, all_are(0))
                assert check(own[name]), f'{prefix}.{name}'


def test_norms_of_the_pe_and_layer_scale():
    arch = dict(embed_dims=24, num_layers=2, num_heads=3, feedforward_channels=8)
    for pe_norm in each(PE_NORMS):
        model = VisionTransformer(arch, 32, pe_joining='lape', pe_norm=pe_norm, layer_scale_init_value=0.25)
        for name, value in model.named_parameters():
            if '.pe_norm.' in name:
                assert (value == float(name.endswith('weight'))).all()
            assert 'gamma' not in name or (value == 0.25).all()
    assert VisionTransformer(arch, 32).blocks[0].gamma1 is None
    adapter = ViTAdapter(dict(arch, num_layers=4), 64, conv_inplane=8, deform_num_heads=3, init_values=0.3)
    for interaction in adapter.interactions:
        torch.testing.assert_close(interaction.injector.gamma.detach(), torch.full((24,), 0.3))
