"""``add_lape``: timm's models with the PE joined by hooks; and what must not change."""

import copy
from functools import partial

import pytest
import timm
import torch
import torch.nn.functional as F
from model_helpers import randomise
from timm.layers import RmsNorm, resample_abs_pos_embed
from timm.models.vision_transformer import ResPostBlock
from timm.optim import param_groups_layer_decay, param_groups_weight_decay
from timm_helpers import DEPTH, DIMS, FORMS, build
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

import mmlape
from mmlape.errors import ConfigError

JOINED = ('lape', 'lape-shared', 'shared', 'unshared')


def changed(form='class token', joining='lape', **options):
    """A model with random weights, the new ones too, in double precision, and a copy of what it was."""
    torch.manual_seed(0)
    model = build(form, **options)
    plain = copy.deepcopy(model).double()
    assert mmlape.add_lape(model, joining) is model
    randomise(model).double()
    tensors = model.state_dict()
    plain.load_state_dict({name: tensors.get(name, value) for name, value in plain.state_dict().items()})
    return model, plain


def add_rows(out, pe):
    return torch.cat((out[:, : out.shape[1] - pe.shape[1]], out[:, out.shape[1] - pe.shape[1] :] + pe), dim=1)


def hook(plain, model, joining, grid):
    """Zero the table of timm's model, and let hooks add what each layer joins of the changed one's."""
    prefix = 0 if model.no_embed_class else model.num_prefix_tokens
    names = [f'pos_embed{i}' for i in range(DEPTH)] if joining == 'unshared' else ['pos_embed']
    size = dict(new_size=grid, old_size=model.patch_embed.grid_size, num_prefix_tokens=prefix)
    tables = [resample_abs_pos_embed(getattr(model, name), **size) for name in names]
    plain.pos_embed.data.zero_()
    w = tables[0]
    for number, (layer, mine) in enumerate(zip(plain.blocks, model.blocks, strict=True)):
        if 'shared' in joining and 'lape' not in joining:
            w = tables[number if joining == 'unshared' else 0]
            layer.register_forward_pre_hook(lambda module, args, w=w: (add_rows(args[0], w), *args[1:]))
            continue
        w = norm_of(mine, tables[0] if joining == 'lape-shared' else w)
        if 'PostNorm' in type(layer).__name__ or isinstance(layer, ResPostBlock):
            layer.attn.register_forward_pre_hook(lambda module, args, w=w: (add_rows(args[0], w), *args[1:]))
        else:
            layer.norm1.register_forward_hook(lambda module, args, out, w=w: add_rows(out, w))


def norm_of(layer, w):
    weight, eps = layer.pe_norm.weight, layer.pe_norm.eps
    if isinstance(layer.pe_norm, RmsNorm):
        return w * (w.square().mean(-1, keepdim=True) + eps).rsqrt() * weight
    return F.layer_norm(w, (DIMS,), weight, layer.pe_norm.bias, eps)


@pytest.mark.parametrize(
    ('form', 'joining'), [*((form, 'lape') for form in FORMS), *(('any size', joining) for joining in JOINED[1:]),
                          ('no_embed_class', 'lape-shared'), ('norm behind', 'shared'), ('Eva', 'unshared')]
)  # fmt: skip
def test_it_is_timms_model_with_hooks(form, joining):
    model, plain = changed(form, joining)
    grid = (3, 6) if model.dynamic_img_size else (4, 4)
    hook(plain, model, joining, grid)
    images = torch.randn(2, 3, *(8 * side for side in grid), dtype=torch.float64)
    with torch.no_grad():
        exact = partial(torch.testing.assert_close, atol=1e-12, rtol=0)
        exact(model(images), plain(images))
        exact(model.forward_features(images), plain.forward_features(images))
        options = dict(norm=True, return_prefix_tokens=model.num_prefix_tokens > 0)
        exact(model.forward_intermediates(images, **options), plain.forward_intermediates(images, **options))
        early = dict(indices=[0], stop_early=True, intermediates_only=True)
        exact(model.forward_intermediates(images, **early), plain.forward_intermediates(images, **early))


@pytest.mark.parametrize('form', ['registers', 'no_embed_class', 'Eva, rotary too'])
def test_patch_dropout_keeps_the_rows_of_the_kept_patches(form):
    """Which they are is found by comparing tokens before and after."""
    model, plain = changed(form, patch_drop_rate=0.5)
    images = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    kept = []

    def find(module, args, out):
        out = out[0] if isinstance(out, tuple) else out
        kept.append((out[:, :, None] == args[0][:, None]).all(-1).double().argmax(-1))

    def add(module, args, out, w):
        missing = 16 + model.num_prefix_tokens - w.shape[1]
        return add_rows(out, w[0, kept[-1][:, missing:] - missing])

    for one in (model, plain):
        one.train()
    plain.patch_drop.register_forward_hook(find)
    plain.pos_embed.data.zero_()
    w = model.pos_embed
    for layer, mine in zip(plain.blocks, model.blocks, strict=True):
        w = norm_of(mine, w)
        layer.norm1.register_forward_hook(partial(add, w=w))
    torch.manual_seed(1)
    theirs = plain.forward_features(images)
    torch.manual_seed(1)
    ours = model.forward_features(images)
    assert ours.shape[1] == 8 + model.num_prefix_tokens
    assert not torch.equal(kept[0][0], kept[0][1])
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    assert model.eval().forward_features(images).shape[1] == 16 + model.num_prefix_tokens


@pytest.mark.parametrize('joining', JOINED)
def test_the_start(joining):
    """LaPE's norms standardise the table; the others join the pretrained table as it is. All else is kept."""
    model = build()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    mmlape.add_lape(model, joining)
    after = model.state_dict()
    new = [name for name in after if name not in before]
    assert all(torch.equal(after[name], value) for name, value in before.items() if name in after)
    if joining == 'unshared':
        assert set(before) - set(after) == {'pos_embed'} and new == ['pos_embed0', 'pos_embed1']
        assert all(torch.equal(after[name], before['pos_embed']) for name in new)
    elif joining == 'shared':
        assert not new
    else:
        assert new == [f'blocks.{i}.pe_norm.{leaf}' for i in range(2) for leaf in ('weight', 'bias')]
        assert all((after[name] == float(name.endswith('weight'))).all() for name in new)
        pe = before['pos_embed']
        expected = F.layer_norm(pe, (DIMS,))
        for block in model.blocks:
            assert block.pe_norm.eps == block.norm1.eps == 1e-6
            torch.testing.assert_close(block.pe_norm(pe), expected, atol=1e-4, rtol=1e-3)
            pe = block.pe_norm(pe)
    assert set(before) - set(after) <= {'pos_embed'}


def test_the_norms_are_new_ones():
    """Of the layer's type and precision, without its values, its hooks, or its place in memory."""
    model = build('RMSNorm').bfloat16()
    model.blocks[0].norm1.register_forward_hook(lambda module, args, out: pytest.fail('it is a hook of norm1'))
    model.blocks[1].norm1.weight.requires_grad_(False)
    mmlape.add_lape(model)
    norm = model.blocks[0].pe_norm
    assert type(norm) is RmsNorm and norm.weight.dtype == torch.bfloat16
    norm(torch.randn(1, 4, DIMS).bfloat16())
    assert norm.weight is not model.blocks[0].norm1.weight
    assert [block.pe_norm.weight.requires_grad for block in model.blocks] == [True, False]


def sizes_at_once(model, images):
    """Gradients of two forwards of different grids with as many patches, before one backward."""
    model.zero_grad()
    (model(images).square().sum() + model(images.mT).square().sum()).backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize(('form', 'joining'), [('any size', 'lape'), ('any size', 'unshared'),
                                               ('Eva, rotary of each layer', 'lape')])  # fmt: skip
def test_recomputed_activations_give_the_same_gradients(form, joining):
    model, _ = changed(form, joining)
    model.train()
    images = torch.randn(1, 3, 16, 40, dtype=torch.float64)
    expected = sizes_at_once(model, images)
    assert all(gradient is not None for gradient in expected)
    saved = []
    model.set_grad_checkpointing()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        model(images)
    counts = [sum(saved)]
    model.set_grad_checkpointing(False)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        model(images)
    counts.append(sum(saved) - counts[0])
    assert counts[0] < counts[1] / 2
    model.set_grad_checkpointing()
    for mine, theirs in zip(sizes_at_once(model, images), expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=0)


def by_timm(model, monkeypatch):
    monkeypatch.setattr(timm.layers.config, '_USE_REENTRANT_CKPT', timm.layers.config._USE_REENTRANT_CKPT)
    timm.layers.set_reentrant_ckpt(True)
    model.set_grad_checkpointing()


def by_wrappers(model, monkeypatch):
    for number, block in enumerate(model.blocks):
        model.blocks[number] = checkpoint_wrapper(block, CheckpointImpl.REENTRANT)


@pytest.mark.parametrize('how', [by_timm, by_wrappers])
@pytest.mark.parametrize('joining', JOINED)
def test_reentrant_recomputation_is_right_or_refused(how, joining, monkeypatch):
    """Joinings that pass the PE on as it is work; others would lose its gradients, as the first pass has none."""
    model, _ = changed(joining=joining)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    expected = torch.autograd.grad(model(images).square().sum(), list(model.parameters()))
    names = list(model.parameters())
    how(model, monkeypatch)
    if joining == 'lape':
        with pytest.raises(ConfigError, match=r'layer 0 .* call .*set_reentrant_ckpt.*, or .*NO_REENTRANT$'):
            model(images)
        with torch.no_grad():
            assert model(images).isfinite().all()
        return
    model(images).square().sum().backward()
    for parameter, gradient in zip(names, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-12, rtol=0)


@pytest.mark.parametrize(('form', 'joining'), [('no_embed_class', 'lape'), ('Eva, rotary too', 'unshared')])
def test_it_compiles_as_one_graph(form, joining):
    model, _ = changed(form, joining)
    randomise(mmlape.add_dual_patchnorm(model)).double()
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend='eager')
    out = compiled(images)
    torch.testing.assert_close(out, model(images), atol=1e-12, rtol=0)
    mine, theirs = (torch.autograd.grad(one.sum(), list(model.parameters()), allow_unused=True)
                    for one in (out, model(images)))  # fmt: skip
    for one, other in zip(mine, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


@pytest.mark.parametrize('joining', JOINED)
def test_groups_of_the_optimiser(joining):
    """Tables do not decay, and norms of the PE are of their layer."""
    model = mmlape.add_lape(build(), joining)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = param_groups_weight_decay(model, 0.1, no_weight_decay_list=model.no_weight_decay())
    decayed = [names[id(p)] for group in groups if group['weight_decay'] for p in group['params']]
    assert 'blocks.0.attn.qkv.weight' in decayed
    assert not [name for name in decayed if 'pos_embed' in name or 'pe_norm' in name or 'token' in name]
    scales = {
        names[id(parameter)]: group['lr_scale']
        for group in param_groups_layer_decay(model, layer_decay=0.5)
        for parameter in group['params']
    }
    for name, scale in scales.items():
        if 'pe_norm' in name:
            assert scale == scales[name.replace('pe_norm', 'norm1')], name
        if 'pos_embed' in name:
            assert scale == scales['cls_token'] < scales['blocks.0.norm1.weight']
    assert len(scales) == len(names)


@pytest.mark.parametrize('joining', ['lape', 'unshared'])
@pytest.mark.parametrize('form', ['registers', 'no_embed_class', 'Eva, rotary too'])
def test_another_size_later(form, joining):
    """It is the same to change the size before and behind."""
    model, other = (build(form).double() for _ in range(2))
    other.load_state_dict(model.state_dict())
    mmlape.add_lape(model, joining).set_input_size((24, 48))
    other.set_input_size((24, 48))
    mmlape.add_lape(other, joining)
    images = torch.randn(1, 3, 24, 48, dtype=torch.float64)
    assert torch.equal(model(images), other(images))
