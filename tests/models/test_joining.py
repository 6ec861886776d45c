"""A ViT written once more, with each joining and each placement of norms; and what both have beside values.

Placements are also timm's layers; joinings for models without a class token in other families: test_mpvg.py.
"""

import math
from collections import Counter
from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from each import each
from model_helpers import ARCH, operations, placements, vit
from timm.models.vision_transformer import Block, ResPostBlock
from torch import nn

from mmlape.models import VisionTransformer
from mmlape.models.position import PE_NORMS, AbsolutePosition, joinings, kinds

PLACEMENTS = list(placements())
ABSOLUTE_PE = [kind.name for kind in kinds(AbsolutePosition)]
JOININGS = [name for name, joining in joinings().items() if not joining.patches_only]
TABLED = [(t, j) for t, j in product(ABSOLUTE_PE, JOININGS) if j != 'unshared' or t == 'learnable']
VALID = [*TABLED, ('rpe', 'default'), ('rpe', 'lape'), ('none', 'default')]

# of tokens x, PE w, the layer's own table and norms: the residual stream, attention's input, and w of the next layer
JOINED = {
    'default': lambda x, w, own, ln, pe_ln: (x, ln(x), w),
    'shared': lambda x, w, own, ln, pe_ln: (x + w, ln(x + w), w),
    'unshared': lambda x, w, own, ln, pe_ln: (x + own, ln(x + own), w),
    'lape': lambda x, w, own, ln, pe_ln: (x, ln(x) + pe_ln(w), pe_ln(w)),
    'lape-shared': lambda x, w, own, ln, pe_ln: (x, ln(x) + pe_ln(w), w),
}
JOINED |= dict.fromkeys(('pvg', 'mpvg'), JOINED['lape'])  # from the second layer on


def reference(p: dict, image, placement, joining: str) -> torch.Tensor:
    """The model from its weights, by these equations and explicit attention."""
    cfg = dict(placement) if isinstance(placement, dict) else dict(type=placement)
    method = cfg.get('type')
    attn, ffn, on = (cfg.get(key, default) for key, default in (('attn', 'pre'), ('ffn', 'pre'), ('on', 'sum')))
    if method in ('pre', 'post', 'both'):
        attn = ffn = method
    norm = lambda x, name: F.layer_norm(x, x.shape[-1:], p[f'{name}.weight'], p[f'{name}.bias'], 1e-6)  # noqa: E731
    lin = lambda x, name: F.linear(x, p[f'{name}.weight'], p[f'{name}.bias'])  # noqa: E731
    x, kernel = F.unfold(image, 8, stride=8).mT, p['patch_embed.proj.weight'].flatten(1)
    x = F.linear(norm(x, 'patch_embed.norm0') if 'patch_embed.norm0.weight' in p else x, kernel)
    x = x + p['patch_embed.proj.bias']
    x = norm(x, 'patch_embed.norm1') if 'patch_embed.norm0.weight' in p else x
    x = torch.cat((p['cls_token'].expand(len(x), -1, -1), x), 1) if 'cls_token' in p else x
    w = p.get('pos_embed')
    x = x + w if joining in ('default', 'pvg', 'mpvg') else x

    def added(x, out, place, b, number):
        if on == 'branch' and place != 'pre':
            out = norm(out, f'{b}.branch_norm{number}')
        return norm(x + out, f'{b}.sum_norm{number}') if on == 'sum' and place != 'pre' else x + out

    for i in range(2):
        b = f'blocks.{i}'
        before = partial(norm, name=f'{b}.norm1') if attn != 'post' else lambda x: x
        join = JOINED['default' if i == 0 and 'pvg' in joining else joining]
        x, h, w = join(x, w, p.get(f'pos_embed{i}'), before, partial(norm, name=f'{b}.pe_norm'))
        q, k, v = (t.unflatten(-1, (3, 8)).transpose(1, 2) for t in lin(h, f'{b}.attn.qkv').chunk(3, -1))
        heads = (((q @ k.mT) / 8**0.5).softmax(-1) @ v).transpose(1, 2)  # (B, N, heads, d)
        if cfg.get('head_scale'):
            heads = torch.einsum('bnhd,h->bnhd', heads, p[f'{b}.attn.head_scale.weight'])
        h = heads.flatten(2)
        h = lin(norm(h, f'{b}.attn.norm') if method == 'sub-ln' else h, f'{b}.attn.proj')
        x = x + norm(h, f'{b}.branch_norm1') if method == 'normformer' else added(x, h, attn, b, 1)
        h = F.gelu(lin(norm(x, f'{b}.norm2') if ffn != 'post' else x, f'{b}.mlp.fc1'))
        h = lin(norm(h, f'{b}.mlp.norm') if method in ('sub-ln', 'normformer') else h, f'{b}.mlp.fc2')
        x = x * p[f'{b}.residual_scale.weight'] if cfg.get('residual_scale') else x
        x = added(x, h, ffn, b, 2)
    return norm(x, 'norm') + (norm(p['pos_embed'], 'pe_norm') if joining == 'mpvg' else 0)


def test_a_vit_is_its_equations():
    """Outputs, and gradients of every parameter: each joining with each table, with each placement and with DPN."""
    assert set(joinings()) == set(JOINED), 'write the equation of the others into JOINED'
    cases = [(kind, joining, 'none', 'pre') for kind, joining in product(ABSOLUTE_PE, JOINED) if joining != 'unshared']
    cases += product(['learnable'], JOINED, ['none'], PLACEMENTS)
    cases += product(['learnable'], ['default', 'lape'], ['dual'], PLACEMENTS)
    for pe_type, joining, patch_norm, placement in each(cases):
        options = dict(pe_type=pe_type, pe_joining=joining, with_cls_token=not joinings()[joining].patches_only)
        model = vit(norm_placement=placement, patch_norm=patch_norm, **options).double()
        weights = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
        weights |= dict(model.named_buffers())
        image = torch.randn(2, 3, 32, 32, dtype=torch.float64)
        found, wanted = model(image)[0], reference(weights, image, placement, joining)
        torch.testing.assert_close(found, wanted, atol=1e-11, rtol=0)
        weighting = torch.randn_like(found)
        (found * weighting).sum().backward()
        (wanted * weighting).sum().backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.grad, weights[name].grad, atol=1e-9, rtol=1e-9, msg=name)


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


def test_pe_norm_is_its_formula(tiny_arch):
    for pe_norm, joining in each(product(PE_NORMS, ['lape', 'lape-shared'])):
        model = vit(arch=tiny_arch, pe_joining=joining, pe_norm=pe_norm)
        norm, w = model.blocks[0].pe_norm, torch.randn(1, 5, 48)
        standard = (w - w.mean(-1, keepdim=True)) / (w.var(-1, unbiased=False, keepdim=True) + 1e-6).sqrt()
        formula = PE_NORMS[pe_norm]
        expected = standard if 'Norm' in formula else w
        expected = expected * norm.weight if '*' in formula else expected
        expected = expected + norm.bias if 'bias' in formula else expected
        torch.testing.assert_close(norm(w), expected, atol=1e-5, rtol=1e-5)
        sizes = {'scalar': 1, 'channel': 48}
        numbers = sum(sizes[word] for word in sizes if word in formula) + 48 * ('bias' in formula)
        assert sum(p.numel() for p in norm.parameters()) == numbers
        assert model(torch.randn(1, 3, 32, 32))[0].isfinite().all()


def test_lape_adds_one_norm_and_one_addition_a_layer(tiny_arch):
    """Forward and backward, counted in what PyTorch computes; all else is as with the default."""
    counted = {}
    for joining in ('default', 'lape'):
        model, image = vit(arch=tiny_arch, pe_joining=joining).train(), torch.randn(2, 3, 32, 32)
        with operations() as forward:
            out = model(image)[0].sum()
        with operations() as backward:
            out.backward()
        counted[joining] = forward, backward
    more, more_backward = (lape - default for lape, default in zip(counted['lape'], counted['default']))
    assert more == dict(native_layer_norm=4, add=3)  # the default has the one addition of the input
    # the sums are over the images, the additions those of gradients that meet in the PE
    assert more_backward - Counter(detach=99) == dict(native_layer_norm_backward=4, sum=3, add=3)
    assert not any(default - lape for lape, default in zip(counted['lape'], counted['default']))


@pytest.mark.parametrize(('pe_type', 'joining'), VALID)
def test_the_stream_of_every_joining_reaches_the_grid_of_the_next_stage(tiny_arch, pe_type, joining):
    """Merge four cells to one, as between stages of a hierarchy: every table that travels is merged."""
    model = vit(arch=tiny_arch, pe_type=pe_type, pe_joining=joining, with_cls_token=False)
    stream = model.position_stream((4, 4), 0)

    def merge(table):
        cells = table.unflatten(1, (2, 2, 2, 2)).permute(0, 1, 3, 2, 4, 5)  # (1, 2, 2, 2, 2, D)
        return cells.flatten(3).flatten(1, 2)

    merged = model.position.joining.change_grid(stream, merge)
    if stream is None or model.position.joining.at_input:  # the tokens have it in them
        assert merged is None
    elif isinstance(stream, tuple):
        assert len(merged) == 4 and all(torch.equal(a, merge(b)) for a, b in zip(merged, stream, strict=True))
    else:
        assert merged.shape == (1, 4, 4 * 48) and torch.equal(merged, merge(stream))
