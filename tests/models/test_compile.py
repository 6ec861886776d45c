"""torch.compile of the backbones: one graph, sizes left open, nothing stale; and the switch that turns it on."""

import copy
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from model_helpers import ARCH, cvt, randomise
from model_helpers import vit as smaller_vit
from torch._dynamo.testing import CompileCounterWithBackend

from mmlape.lab.training.hooks import CompileBackboneHook
from mmlape.models import ViTAdapter
from mmlape.projects import CeiT, T2TViT

vit = partial(smaller_vit, img_size=64, patch_size=16)


def adapter(**kwargs):
    shape = dict(conv_inplane=8, deform_num_heads=3, interaction_indexes=[[0, 1]], use_extra_extractor=False)
    return revert_sync_batchnorm(randomise(ViTAdapter(ARCH, 64, **shape, **kwargs)))


def compact(**kwargs):
    return randomise(cvt(ARCH, 64, 16, **kwargs))


def compiled(model, backend='eager'):
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    return torch.compile(model, backend=counter, fullgraph=True, dynamic=True), counter


def check(model, run, *sizes):
    for size in sizes:
        image = torch.randn(1, 3, *size)
        for out, expected in zip(run(image), model(image), strict=True):
            torch.testing.assert_close(out, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ('build', 'options'),
    [
        pytest.param(vit, dict(pe_joining='lape'), marks=pytest.mark.release),
        pytest.param(compact, dict(pe_joining='lape'), marks=pytest.mark.release),
        pytest.param(compact, dict(pe_joining='mpvg'), marks=pytest.mark.release),
        (vit, dict(pe_joining='mpvg', with_cls_token=False)),
    ],
)
def test_one_graph_serves_all_sizes_but_the_tables_own(build, options):
    model = build(**options, patch_norm='dual')
    run, counter = compiled(model)
    with torch.no_grad():
        check(model, run, (64, 64), (96, 48), (50, 70), (33, 128))
        randomise(model)  # it is never stale
        check(model, run, (64, 64), (96, 48))
        for parameter in model.parameters():
            parameter.data.copy_(torch.randn_like(parameter) * 0.1)
        check(model, run, (64, 64))
    assert counter.frame_count <= 3


OTHERS = {
    'T2T-ViT': lambda **kwargs: randomise(T2TViT(dict(ARCH, token_dims=8), 64, pe_joining='lape', **kwargs)),
    'CeiT': lambda **kwargs: randomise(CeiT(dict(ARCH, stem_channels=8), 64, pe_joining='lape', **kwargs)),
}


@pytest.mark.parametrize(
    ('name', 'amp', 'tolerance'),
    # of one image, batch norms amplify what float32 rounds
    [
        ('ViT', False, 1e-5),
        pytest.param('adapter', False, 1e-3, marks=pytest.mark.release),
        pytest.param('adapter', True, 0.05, marks=pytest.mark.release),
        pytest.param('CeiT', False, 1e-5, marks=pytest.mark.release),
        pytest.param('T2T-ViT', True, 0.05, marks=pytest.mark.release),
    ],
)
def test_windows_checkpointing_and_mixed_precision_train_as_one_graph(name, amp, tolerance):
    windows = dict(pe_joining='lape', window_attn=[True, False], window_size=3, with_cp=True)
    windowed = {'adapter': adapter, 'ViT': partial(vit, with_cls_token=False)}
    model = windowed[name](**windows) if name in windowed else OTHERS[name](with_cp=True)
    model.train(not amp)  # batch statistics
    torch._dynamo.reset()
    run = torch.compile(model, backend='aot_eager', fullgraph=True, dynamic=False)
    image, grads = torch.randn(1 if name == 'adapter' else 2, 3, 64, 64), []
    for forward in (run, model):
        with torch.autocast('cpu', torch.bfloat16, enabled=amp):
            loss = sum(out.float().square().mean() for out in forward(image))
        grads.append(torch.autograd.grad(loss, list(model.parameters())))
    for a, b in zip(*grads, strict=True):
        assert (a - b).norm() <= tolerance * b.norm() + 0.1 * min(tolerance, 1e-3)


@pytest.mark.release
def test_the_default_compiler_agrees():
    """What it makes of the graph is PyTorch's; that graph is the one of the tests above."""
    model = vit(arch=dict(ARCH, num_layers=1), pe_joining='lape')
    torch._dynamo.reset()
    run = torch.compile(model, fullgraph=True, dynamic=True)
    # whether g++ knows the processor's vectors is not asked, which would compile for 15 s
    with torch.no_grad(), torch._inductor.config.patch({'cpp.vec_isa_ok': True}):
        check(model, run, (48, 80), (96, 64))  # the table's own size would be one more graph to compile


def test_the_switch_compiles_the_backbone_in_place():
    model = torch.nn.Module()
    model.backbone = vit(pe_joining='lape')
    names, plain = list(model.state_dict()), copy.deepcopy(model.backbone)
    lines = []
    runner = SimpleNamespace(model=model, logger=SimpleNamespace(info=lines.append))
    hook = CompileBackboneHook()
    for off in ({}, {'compile_backbone': False}):
        runner.cfg = Config(off)
        hook.before_run(runner)
        assert not lines
    torch._dynamo.reset()
    counter = CompileCounterWithBackend('eager')
    runner.cfg = Config(dict(compile_backbone=dict(backend=counter)))
    hook.before_run(runner)
    with torch.no_grad():
        check(plain, model.backbone, (64, 64))
    assert counter.frame_count == 1
    assert list(model.state_dict()) == names
    copy.deepcopy(model).backbone(torch.randn(1, 3, 64, 64))


def hooked(model, logged=None):
    """A model whose layers the hook compiles."""
    holder = torch.nn.Module()
    holder.backbone = model
    logger = SimpleNamespace(info=(logged if logged is not None else []).append)
    runner = SimpleNamespace(model=holder, logger=logger, cfg=Config(dict(compile_backbone='layers')))
    CompileBackboneHook().before_run(runner)
    return holder


@pytest.fixture
def counted(monkeypatch):
    """Compile by a backend that counts graphs; an eager fallback or a break is an error."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend('aot_eager')
    original = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, 'compile', lambda self: original(self, backend=counter, fullgraph=True))
    limits = {name: getattr(torch._dynamo.config, name) for name in ('recompile_limit', 'accumulated_recompile_limit')}
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True, **limits):
        yield counter


@pytest.mark.parametrize(
    ('build', 'units'),
    [
        pytest.param(
            partial(adapter, pe_joining='lape', drop_path_rate=0.1), 4, id='adapter', marks=pytest.mark.release
        ),
        pytest.param(partial(adapter, with_cp=True, pe_joining='lape'), 4, id='with_cp', marks=pytest.mark.release),
        pytest.param(partial(vit, pe_joining='lape', pe_norm='affine'), 2, id='lape'),
        pytest.param(
            partial(vit, pe_joining='default', pe_type=['learnable', 'cpe']), 2, id='cpe', marks=pytest.mark.release
        ),
    ],
)
def test_compiled_layers_give_the_values_and_gradients_of_the_model(build, units, counted):
    """In training with equal random numbers, at several sizes, each layer as one graph."""
    model = build()
    plain, logged = copy.deepcopy(model), []
    run = hooked(model, logged).backbone
    assert logged == [f'{units} parts of the backbone are compiled in the first iterations, which take minutes']
    for size in ((64, 64), (96, 64), (64, 128), (64, 64)):
        image, outs = torch.randn(2, 3, *size), []
        for one in (run, plain):
            torch.manual_seed(0)
            one.zero_grad()
            outs.append(one.train()(image))
            sum(out.square().mean() for out in outs[-1]).backward()
        for one, other in zip(*outs, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
        for (name, one), other in zip(run.named_parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(
                one.grad, other.grad, atol=1e-4, rtol=1e-3, msg=lambda text, of=name: f'{of}: {text}'
            )
    assert counted.frame_count and list(run.state_dict()) == list(plain.state_dict())
    run.load_state_dict(plain.state_dict())


@pytest.mark.release
def test_layers_share_graphs_and_new_sizes_end_to_need_others(counted):
    """Twelve layers with rates of drop path of their own."""
    model, counts = hooked(vit(arch=dict(ARCH, num_layers=12), drop_path_rate=0.3)).backbone.train(), []
    for size in ((64, 64), (96, 96), (80, 80), (112, 48), (48, 64), (128, 128)):
        sum(out.sum() for out in model(torch.randn(2, 3, *size))).backward()
        counts.append(counted.frame_count)
    assert 0 < counts[0] < 12 and len(set(counts[-3:])) == 1
