"""The PE kept in inference: bit for bit what computing it anew gives, whatever happens to the weights in between."""

import copy
import pickle

import pytest
import torch
from model_helpers import randomise
from torch import nn

from mmlape.models import VisionTransformer, ViTAdapter
from mmlape.models.layers import fold as fold_module

CASES = [
    dict(pe_joining='lape'),
    dict(pe_joining='lape-shared', pe_type='sincos2d', pe_norm='scalar-norm'),
    dict(pe_joining='unshared'),
    dict(pe_joining='default'),
]


def build(tiny_arch, **kwargs):
    return randomise(VisionTransformer(tiny_arch, img_size=32, patch_size=8, out_type='raw', **kwargs))


def computed(model, *images):
    """Outputs without the cache, which is not used while gradients are recorded."""
    with torch.enable_grad():
        return [model(image)[0].detach() for image in images]


def check(model, *images):
    """Twice without gradients, with the cache in use, against never using it."""
    with torch.no_grad():
        for _ in range(2):
            outs = [model(image)[0] for image in images]
            assert len(model.pe_cache) > 0
            for out, expected in zip(outs, computed(model, *images), strict=True):
                assert torch.equal(out, expected)
    return outs[0]


IMAGE, OTHER = (torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(3)) for size in ((32, 32), (24, 40)))


@pytest.mark.parametrize('case', CASES)
def test_the_kept_pe_changes_no_bit(tiny_arch, case):
    check(build(tiny_arch, **case), IMAGE, OTHER)


def test_norms_of_the_chain_run_once_per_grid(tiny_arch, monkeypatch):
    model = build(tiny_arch, pe_joining='lape')
    runs = []
    monkeypatch.setattr(nn.LayerNorm, 'forward', counting(nn.LayerNorm.forward, model, runs))
    with torch.no_grad():
        for image in (IMAGE, IMAGE, OTHER, OTHER, IMAGE):
            model(image)
    assert len(runs) == 2 * 4
    model(IMAGE)
    assert len(runs) == 3 * 4  # gradients are recorded: computed anew


def counting(forward, model, runs):
    chain = {id(block.pe_norm) for block in model.blocks}

    def counted(module, x):
        runs.extend([1] * (id(module) in chain))
        return forward(module, x)

    return counted


def chain_of(model):
    """Every tensor that the PE depends on, by name."""
    return [name for name in model.state_dict() if 'pos_embed' in name or 'pe_norm' in name]


def write_in_place(owner, leaf, new):
    with torch.no_grad():
        getattr(owner, leaf).copy_(new)


def write_data(owner, leaf, new):
    getattr(owner, leaf).data = new


def write_through_data(owner, leaf, new):
    getattr(owner, leaf).data.copy_(new)


def write_numpy(owner, leaf, new):
    getattr(owner, leaf).detach().numpy()[...] = new.numpy()


def replace(owner, leaf, new):
    setattr(owner, leaf, nn.Parameter(new) if leaf in owner._parameters else new)


WRITES = [write_in_place, write_data, write_through_data, write_numpy, replace]


@pytest.mark.parametrize('case', CASES[:3])
@pytest.mark.parametrize('write', WRITES)
def test_a_change_of_any_tensor_is_seen(tiny_arch, case, write):
    """On the CPU every way to write, in evaluation mode, with no word to the model."""
    model = build(tiny_arch, **case)
    out = check(model, IMAGE, OTHER)
    for name in chain_of(model):
        owner, _, leaf = name.rpartition('.')
        owner = model.get_submodule(owner)
        write(owner, leaf, torch.randn_like(getattr(owner, leaf)))
        changed = check(model, IMAGE, OTHER)
        assert not torch.equal(changed, out), name
        out = changed


def test_without_comparing_values_traceless_writes_are_seen_at_eval(tiny_arch, monkeypatch):
    """As on a GPU: the comparison taken away, an EMA's swap through ``.data`` is caught by the call of eval()."""
    monkeypatch.setattr(torch, 'equal', lambda a, b: True)
    model = build(tiny_arch, pe_joining='lape')
    with torch.no_grad():
        before = model(IMAGE)[0]
        for parameter in model.parameters():
            parameter.data.copy_(parameter.data.flip(0))
        model.eval()
        after = model(IMAGE)[0]
    monkeypatch.undo()
    assert torch.equal(after, *computed(model, IMAGE))
    assert not torch.equal(after, before)


@pytest.mark.parametrize('write', [write_in_place, write_data, replace])
def test_without_comparing_values_the_other_writes_are_seen_at_once(tiny_arch, monkeypatch, write):
    model = build(tiny_arch, pe_joining='lape')
    for name in chain_of(model):
        owner, _, leaf = name.rpartition('.')
        owner = model.get_submodule(owner)
        with monkeypatch.context() as patch, torch.no_grad():
            patch.setattr(torch, 'equal', lambda a, b: True)
            model(IMAGE)
            write(owner, leaf, torch.randn_like(getattr(owner, leaf)))
            out = model(IMAGE)[0]
        assert torch.equal(out, *computed(model, IMAGE)), name


def test_memory_given_back_is_not_mistaken_for_the_old(tiny_arch):
    """Data replaced again and again: the allocator would hand out the same address, were the old not kept alive."""
    model = build(tiny_arch, pe_joining='lape')
    norm = model.blocks[1].pe_norm
    for _ in range(20):
        norm.weight.data = torch.randn(48)
        check(model, IMAGE)


def test_swapped_and_swapped_back(tiny_arch):
    """An evaluation on averaged weights between two on the model's own."""
    model = build(tiny_arch, pe_joining='lape')
    mine = copy.deepcopy(model.state_dict())
    average = copy.deepcopy(build(tiny_arch, pe_joining='lape').state_dict())
    first = check(model, IMAGE)
    for swapped in (average, mine, average):
        for name, tensor in model.state_dict().items():
            tensor.data.copy_(swapped[name])
        assert torch.equal(check(model, IMAGE), first) == (swapped is mine)


def test_mmengine_ema(tiny_arch):
    from mmengine.hooks import EMAHook

    model = build(tiny_arch, pe_joining='lape')
    hook = EMAHook(momentum=0.5)
    runner = type('Runner', (), dict(model=model))
    hook.before_run(runner)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    own = check(model, IMAGE)
    hook.before_val_epoch(runner)
    averaged = check(model.eval(), IMAGE)
    hook.after_val_epoch(runner)
    assert not torch.equal(own, averaged)
    assert torch.equal(check(model.eval(), IMAGE), own)


def test_load_state_dict_and_moves_between_dtypes(tiny_arch):
    model, other = (build(tiny_arch, pe_joining='lape') for _ in range(2))
    check(model, IMAGE)
    for assign in (False, True):
        model.load_state_dict(copy.deepcopy(other.state_dict()), assign=assign)
        assert torch.equal(check(model, IMAGE), check(other, IMAGE))
        randomise(model)
    check(model, IMAGE)
    check(model.double(), IMAGE.double())
    check(model.bfloat16(), IMAGE.bfloat16())
    check(model.float(), IMAGE)


def test_training_between_evaluations(tiny_arch):
    model = build(tiny_arch, pe_joining='lape')
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        check(model.eval(), IMAGE, OTHER)
        loss = model.train()(IMAGE)[0].square().mean()
        assert len(model.pe_cache) == 0
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in model.parameters())
        with torch.no_grad():
            model(IMAGE)
        assert len(model.pe_cache) == 0
        optimizer.step()


def test_more_grids_than_are_kept(tiny_arch):
    model = build(tiny_arch, pe_joining='lape')
    images = [torch.randn(1, 3, 16 + 8 * i, 32) for i in range(fold_module.MAX_ENTRIES + 2)]
    check(model, *images)
    assert len(model.pe_cache) == fold_module.MAX_ENTRIES


def test_memory_that_is_kept_is_bounded(tiny_arch, monkeypatch):
    monkeypatch.setattr(fold_module, 'MAX_BYTES', 0)
    model = build(tiny_arch, pe_joining='lape')
    check(model, IMAGE, OTHER)
    assert len(model.pe_cache) == 1


def test_autocast_has_entries_of_its_own(tiny_arch):
    model = build(tiny_arch, pe_joining='lape')
    for dtype in (torch.bfloat16, None, torch.float16, torch.bfloat16):
        with torch.autocast('cpu', dtype, enabled=dtype is not None):
            check(model, IMAGE)
    assert len(model.pe_cache) == 3


def test_inference_mode_leaves_nothing_that_no_grad_or_training_trips_over(tiny_arch):
    model = build(tiny_arch, pe_joining='lape')
    with torch.inference_mode():
        out = model(IMAGE)[0]
        assert len(model.pe_cache) == 1
    assert torch.equal(out, check(model, IMAGE))
    model(IMAGE)[0].sum().backward()


def test_weights_made_in_inference_mode_are_not_kept(tiny_arch):
    with torch.inference_mode():
        model = build(tiny_arch, pe_joining='lape')
        first = model(IMAGE)[0]
        model.blocks[0].pe_norm.weight.add_(1)
        assert not torch.equal(model(IMAGE)[0], first)
    assert len(model.pe_cache) == 0


def test_copies_begin_empty(tiny_arch):
    model = build(tiny_arch, pe_joining='lape')
    out = check(model, IMAGE)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert len(other.pe_cache) == 0
        assert torch.equal(check(other, IMAGE), out)
        randomise(other)
        check(other, IMAGE)
        assert torch.equal(check(model, IMAGE), out)
    assert not any('cache' in name for name in model.state_dict())


def test_a_norm_with_a_hook_or_parts_runs(tiny_arch):
    model = build(tiny_arch, pe_joining='lape')
    check(model, IMAGE)
    seen = []
    handle = model.blocks[2].pe_norm.register_forward_hook(lambda *args: seen.append(1))
    with torch.no_grad():
        model(IMAGE)
        model(IMAGE)
    assert len(seen) == 2
    handle.remove()
    nn.utils.parametrize.register_parametrization(model.blocks[1].pe_norm, 'weight', nn.Softplus(), unsafe=True)
    with torch.no_grad():
        out = model(IMAGE)[0]
        model.blocks[1].pe_norm.parametrizations.weight.original.add_(1)
        assert not torch.equal(model(IMAGE)[0], out)


def test_other_weights_by_functional_call(tiny_arch):
    from torch.func import functional_call, stack_module_state, vmap

    model, other = (build(tiny_arch, pe_joining='lape') for _ in range(2))
    with torch.no_grad():
        mine, theirs = model(IMAGE)[0], other(IMAGE)[0]
        assert torch.equal(functional_call(model, dict(other.named_parameters()), (IMAGE,))[0], theirs)
        assert torch.equal(model(IMAGE)[0], mine)
        params, buffers = stack_module_state([model, other])
        both = vmap(lambda p, b: functional_call(model, (p, b), (IMAGE,))[0])(params, buffers)
        torch.testing.assert_close(both, torch.stack((mine, theirs)), atol=1e-4, rtol=1e-4)
        assert torch.equal(model(IMAGE)[0], mine)


def test_a_trace_keeps_the_weights_live(tiny_arch):
    model = build(tiny_arch, pe_joining='lape')
    check(model, IMAGE)
    with torch.no_grad():
        traced = torch.jit.trace(model, IMAGE, check_trace=False)
        model.blocks[0].pe_norm.weight.add_(1)
        assert torch.equal(traced(IMAGE)[0], model(IMAGE)[0])


def test_a_flop_counter_sees_the_same_each_time(tiny_arch):
    from torch.utils.flop_counter import FlopCounterMode

    model = build(tiny_arch, pe_joining='lape')
    with torch.no_grad():
        model(IMAGE)
        with FlopCounterMode(display=False):
            assert fold_module.must_compute(IMAGE.device)
    assert not fold_module.must_compute(IMAGE.device)


@pytest.mark.parametrize('joining', ['lape', 'unshared'])
def test_an_adapter_keeps_it_too(joining):
    arch = dict(embed_dims=24, num_layers=4, num_heads=3, feedforward_channels=48)
    model = randomise(ViTAdapter(arch, 64, conv_inplane=8, deform_num_heads=3, pe_joining=joining))
    small, large = torch.randn(1, 3, 64, 64), torch.randn(1, 3, 32, 96)
    check(model, small, large)
    with torch.no_grad():
        model.pos_embed3.add_(1) if joining == 'unshared' else model.blocks[3].pe_norm.bias.add_(1)
    check(model, small, large)
