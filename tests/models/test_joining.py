"""Joining methods: against a reference written down again in a few lines, and by their properties."""

from collections import Counter
from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from each import each
from model_helpers import operations, vit

from mmlape.models.position import PE_NORMS, AbsolutePosition, joinings, kinds

ABSOLUTE_PE = [kind.name for kind in kinds(AbsolutePosition)]
JOININGS = [name for name, joining in joinings().items() if not joining.patches_only]  # the others: test_mpvg.py
TABLED = [(t, j) for t, j in product(ABSOLUTE_PE, JOININGS) if j != 'unshared' or t == 'learnable']
VALID = [*TABLED, ('rpe', 'default'), ('rpe', 'lape'), ('none', 'default')]


# of tokens x, PE w, the layer's own table and norms: the residual stream, attention's input, and w of the next layer
EQUATIONS = {
    'default': lambda x, w, own, ln, pe_ln: (x, ln(x), w),
    'shared': lambda x, w, own, ln, pe_ln: (x + w, ln(x + w), w),
    'unshared': lambda x, w, own, ln, pe_ln: (x + own, ln(x + own), w),
    'lape': lambda x, w, own, ln, pe_ln: (x, ln(x) + pe_ln(w), pe_ln(w)),
    'lape-shared': lambda x, w, own, ln, pe_ln: (x, ln(x) + pe_ln(w), w),
}


def reference_forward(model, image, joining):
    """LaPE's equations once more, in float64, with explicit attention."""
    p = {name: value.detach().double() for name, value in model.state_dict().items()}
    ln = lambda x, name: F.layer_norm(x, x.shape[-1:], p[f'{name}.weight'], p[f'{name}.bias'], 1e-6)  # noqa: E731
    lin = lambda x, name: F.linear(x, p[f'{name}.weight'], p[f'{name}.bias'])  # noqa: E731
    x = F.conv2d(image, p['patch_embed.proj.weight'], p['patch_embed.proj.bias'], 8).flatten(2).mT
    x = torch.cat((p['cls_token'].expand(len(x), -1, -1), x), 1)
    w = p.get('pos_embed')
    x = x + w if joining == 'default' else x
    for i in range(4):
        b = f'blocks.{i}'
        norms = (partial(ln, name=f'{b}.{norm}') for norm in ('norm1', 'pe_norm'))
        x, h, w = EQUATIONS[joining](x, w, p.get(f'pos_embed{i}'), *norms)
        q, k, v = (t.unflatten(-1, (4, 12)).transpose(1, 2) for t in lin(h, f'{b}.attn.qkv').chunk(3, -1))
        a = ((q @ k.mT) / 12**0.5).softmax(-1) @ v
        x = x + lin(a.transpose(1, 2).flatten(2), f'{b}.attn.proj')
        x = x + lin(F.gelu(lin(ln(x, f'{b}.norm2'), f'{b}.mlp.fc1')), f'{b}.mlp.fc2')
    return ln(x, 'norm')


@pytest.mark.parametrize('joining', JOININGS)
def test_joining_is_the_papers_equation(tiny_arch, joining):
    assert joining in EQUATIONS, f'{joining}: write its equation into EQUATIONS'
    model = vit(arch=tiny_arch, pe_joining=joining)
    image = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    expected = reference_forward(model, image, joining)
    torch.testing.assert_close(model.double()(image)[0], expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize('joining', ['lape', 'lape-shared'])
@pytest.mark.parametrize('pe_type', ABSOLUTE_PE)
def test_zero_pe_norms_leave_a_model_without_pe(tiny_arch, joining, pe_type):
    """The residual stream holds no PE: silencing the norms silences the PE altogether."""
    model = vit(arch=tiny_arch, pe_type=pe_type, pe_joining=joining)
    plain = vit(arch=tiny_arch, pe_type='none')
    state = model.state_dict()
    for name in state:
        if '.pe_norm.' in name:
            state[name].zero_()
    plain.load_state_dict({name: state[name] for name in plain.state_dict()})
    image = torch.randn(1, 3, 32, 32)
    assert torch.equal(model(image)[0], plain(image)[0])


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
