"""Placements of a layer's norms against timm's layers and against their equations, in float64."""

import math
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from each import each
from model_helpers import ARCH, placements, vit
from timm.models.vision_transformer import Block, ResPostBlock
from torch import nn

from mmlape.models import VisionTransformer

ALL = list(placements())


def layer(placement, **kwargs) -> nn.Module:
    return vit(norm_placement=placement, **kwargs).double().blocks[1]


def agree(ours: nn.Module, theirs: nn.Module, names: dict[str, str] | None = None) -> None:
    """Compare with a public layer on the same weights, whose names are ours where ``names`` has no other."""
    tensors = ours.state_dict()
    names = names or {name: name for name in tensors}
    theirs.double().eval().load_state_dict({public: tensors[name] for name, public in names.items()})
    x = torch.randn(2, 16, 24, dtype=torch.float64)
    torch.testing.assert_close(ours(x, None, (4, 4))[0], theirs(x), atol=1e-12, rtol=0)


def test_pre_and_sub_ln_are_timms():
    options = dict(qkv_bias=True, mlp_ratio=2, norm_layer=partial(nn.LayerNorm, eps=1e-6))
    agree(layer('pre'), Block(24, 3, **options))
    agree(layer('sub-ln'), Block(24, 3, scale_attn_norm=True, scale_mlp_norm=True, **options))


def test_post_on_the_branch_is_timms():
    ours = layer(dict(type='post', on='branch'))
    theirs = ResPostBlock(24, 3, qkv_bias=True, mlp_ratio=2, norm_layer=partial(nn.LayerNorm, eps=1e-6))
    agree(ours, theirs, {name: name.replace('branch_', '') for name in ours.state_dict()})


EQUATIONS = {
    ('pre', 'sum'): lambda x, f, ln: x + f(ln('norm', x)),
    ('post', 'sum'): lambda x, f, ln: ln('sum_norm', x + f(x)),
    ('both', 'sum'): lambda x, f, ln: ln('sum_norm', x + f(ln('norm', x))),
    ('pre', 'branch'): lambda x, f, ln: x + f(ln('norm', x)),
    ('post', 'branch'): lambda x, f, ln: x + ln('branch_norm', f(x)),
    ('both', 'branch'): lambda x, f, ln: x + ln('branch_norm', f(ln('norm', x))),
}


def reference(p: dict, image, placement, lape: bool) -> torch.Tensor:
    """The model once more, from its weights, by the equations above and explicit attention."""
    cfg = dict(placement) if isinstance(placement, dict) else dict(type=placement)
    method = cfg.get('type')
    attn, ffn, on = (cfg.get(key, default) for key, default in (('attn', 'pre'), ('ffn', 'pre'), ('on', 'sum')))
    if method in ('pre', 'post', 'both'):
        attn = ffn = method
    norms = lambda x, name: F.layer_norm(x, x.shape[-1:], p[f'{name}.weight'], p[f'{name}.bias'], 1e-6)  # noqa: E731
    lin = lambda x, name: F.linear(x, p[f'{name}.weight'], p[f'{name}.bias'])  # noqa: E731
    kernel = p['patch_embed.proj.weight']
    if 'patch_embed.norm0.weight' in p:
        x = norms(F.unfold(image, 8, stride=8).mT, 'patch_embed.norm0') @ kernel.flatten(1).T
        x = norms(x + p['patch_embed.proj.bias'], 'patch_embed.norm1')
    else:
        x = F.unfold(image, 8, stride=8).mT @ kernel.flatten(1).T + p['patch_embed.proj.bias']
    x = torch.cat((p['cls_token'].expand(len(x), -1, -1), x), 1)
    w = p['pos_embed']
    x = x if lape else x + w
    for i in range(2):
        b = f'blocks.{i}'
        w = norms(w, f'{b}.pe_norm') if lape else 0.0

        def attention(h, b=b, w=w):
            q, k, v = (t.unflatten(-1, (3, 8)).transpose(1, 2) for t in lin(h + w, f'{b}.attn.qkv').chunk(3, -1))
            heads = (((q @ k.mT) / 8**0.5).softmax(-1) @ v).transpose(1, 2)  # (B, N, heads, d)
            if cfg.get('head_scale'):
                heads = torch.einsum('bnhd,h->bnhd', heads, p[f'{b}.attn.head_scale.weight'])
            h = heads.flatten(2)
            return lin(norms(h, f'{b}.attn.norm') if method == 'sub-ln' else h, f'{b}.attn.proj')

        def mlp(h, b=b):
            h = F.gelu(lin(h, f'{b}.mlp.fc1'))
            return lin(norms(h, f'{b}.mlp.norm') if method in ('sub-ln', 'normformer') else h, f'{b}.mlp.fc2')

        if method == 'normformer':
            x = x + norms(attention(norms(x, f'{b}.norm1')), f'{b}.branch_norm1')
            scale = p[f'{b}.residual_scale.weight'] if cfg.get('residual_scale') else 1.0
            x = scale * x + mlp(norms(x, f'{b}.norm2'))
        else:
            x = EQUATIONS[attn, on](x, attention, lambda name, x, b=b: norms(x, f'{b}.{name}1'))
            x = EQUATIONS[ffn, on](x, mlp, lambda name, x, b=b: norms(x, f'{b}.{name}2'))
    return norms(x, 'norm')


def test_a_placement_is_its_equation():
    """Outputs, and gradients of every parameter, with both stems and both joinings."""
    for joining, patch_norm, placement in each(product(['default', 'lape'], ['none', 'dual'], ALL)):
        model = vit(norm_placement=placement, patch_norm=patch_norm, pe_joining=joining).double()
        weights = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
        image = torch.randn(2, 3, 32, 32, dtype=torch.float64)
        found, wanted = model(image)[0], reference(weights, image, placement, joining == 'lape')
        torch.testing.assert_close(found, wanted, atol=1e-11, rtol=0)
        weighting = torch.randn_like(found)
        (found * weighting).sum().backward()
        (wanted * weighting).sum().backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.grad, weights[name].grad, atol=1e-9, rtol=1e-9, msg=name)


def test_sub_lns_initial_weights_are_scaled():
    """Of an encoder of two layers: values, outputs and the FFN by sqrt(ln 4)."""
    models = []
    for placement in ('pre', 'sub-ln'):
        torch.manual_seed(1)
        models.append(VisionTransformer(ARCH, 32, 8, norm_placement=placement))
    plain, scaled = (model.blocks[1].state_dict() for model in models)
    gain = math.sqrt(math.log(4))
    others = ('attn.proj.weight', 'mlp.fc1.weight', 'mlp.fc2.weight')
    for name in others:
        torch.testing.assert_close(scaled[name], gain * plain[name])
    torch.testing.assert_close(scaled['attn.qkv.weight'][48:], gain * plain['attn.qkv.weight'][48:])
    assert torch.equal(scaled['attn.qkv.weight'][:48], plain['attn.qkv.weight'][:48])
    assert torch.equal(scaled['attn.norm.weight'], torch.ones(24))
    # what a recipe leaves alone is not scaled twice; its own values: test_initial_weights.py
    before = {name: value.clone() for name, value in scaled.items()}
    models[1].init_weights()
    assert all(torch.equal(scaled[name], value) for name, value in before.items())


def test_layer_scale_and_drop_path_act_between_the_norm_of_the_branch_and_that_of_the_sum():
    for on in ('sum', 'branch'):
        ours = layer(dict(type='post', on=on), layer_scale_init_value=0.1, drop_path_rate=0.5).train()
        x = torch.randn(400, 16, 24, dtype=torch.float64)
        ours.mlp, ours.sum_norm2, ours.branch_norm2 = nn.Identity(), nn.Identity(), nn.Identity()
        ours.gamma2.data.zero_()
        out = ours.attn(x, (4, 4))
        full = out if on == 'sum' else ours.branch_norm1(out)
        sums = [ours.sum_norm1(x + keep * ours.gamma1 * full) for keep in (0, 2)]
        found = ours(x, None, (4, 4))[0]
        kept = [(found - one).flatten(1).abs().amax(1) < 1e-9 for one in sums]
        assert (kept[0] | kept[1]).all() and 0.4 < kept[1].double().mean() < 0.6
