"""Small ViTs of timm in the forms that it has."""

from functools import partial
from unittest import mock

import pytest
import timm
import torch
from model_helpers import randomise
from timm.layers import RmsNorm
from timm.models import model_entrypoint
from timm.models.deit import VisionTransformerDistilled
from timm.models.eva import Eva
from timm.models.vision_transformer import ResPostBlock, VisionTransformer

DIMS, DEPTH = 24, 2
SHAPE = dict(img_size=32, patch_size=8, embed_dim=DIMS, depth=DEPTH, num_heads=3, mlp_ratio=2, num_classes=5)
ROPE = dict(use_rot_pos_emb=True, num_heads=2)
FORMS = {
    'class token': (VisionTransformer, dict()),
    'registers': (VisionTransformer, dict(reg_tokens=2)),
    'no prefix': (VisionTransformer, dict(class_token=False, global_pool='avg')),
    'no_embed_class': (VisionTransformer, dict(no_embed_class=True, reg_tokens=2, init_values=1e-5)),
    'distilled': (VisionTransformerDistilled, dict()),
    'norm_pre': (VisionTransformer, dict(pre_norm=True, norm_layer=partial(torch.nn.LayerNorm, eps=1e-5))),
    'any size': (VisionTransformer, dict(dynamic_img_size=True, reg_tokens=1)),
    'any size, distilled': (VisionTransformerDistilled, dict(dynamic_img_size=True)),
    'any size, no_embed_class': (VisionTransformer, dict(dynamic_img_size=True, no_embed_class=True)),
    'RMSNorm': (VisionTransformer, dict(norm_layer=RmsNorm)),
    'norm behind': (VisionTransformer, dict(block_fn=ResPostBlock, init_values=1e-5)),
    'Eva': (Eva, dict()),
    'Eva, rotary too': (Eva, dict(**ROPE, init_values=1.0)),
    'Eva, rotary of each layer': (Eva, dict(**ROPE, rope_type='mixed', dynamic_img_size=True)),
    'Eva, registers': (Eva, dict(num_reg_tokens=2, no_embed_class=True, dynamic_img_size=True)),
    'Eva, norm behind': (Eva, dict(use_post_norm=True)),
}


def build(form='class token', **options):
    cls, own = FORMS[form]
    return randomise(cls(**{**SHAPE, **own, **options}))


def known(names):
    """Return the names that the installed timm has, with the tag of their weights."""
    return [name for name in names if (timm.is_model_pretrained if '.' in name else timm.is_model)(name)]


class _Called(Exception):
    pass


def families(modules, sizes, names=''):
    """Return, by the first name, the arguments of each family of modules of timm, but for its sizes.

    Nothing is built: what builds a model in timm only records the arguments.
    """

    def record(variant, pretrained=False, distilled=False, **kwargs):
        raise _Called(distilled, {key: value for key, value in kwargs.items() if key not in sizes})

    found, known_ones = {}, set()
    for name in timm.list_models(names):
        module = model_entrypoint(name).__module__
        if module not in modules:
            continue
        with mock.patch(f'{module}.{modules[module]}', record), pytest.raises(_Called) as called:
            model_entrypoint(name)()
        distilled, kwargs = called.value.args
        switches = repr((module, distilled, sorted(kwargs.items(), key=str)))
        if switches not in known_ones:
            known_ones.add(switches)
            found[name] = distilled, kwargs
    return found


def shape_of(model):
    return [(name, type(module)) for name, module in model.named_modules()], list(model.state_dict())
