"""What only a GPU can show. `pytest tests/models/test_cuda.py` runs it all; without a GPU it skips it all."""

import pytest
import torch
from mmengine.model import revert_sync_batchnorm
from model_helpers import randomise

from mmlape.models import VisionTransformer, ViTAdapter
from mmlape.models.adapter.deform_attn import available_backends, multi_scale_deformable_attention
from mmlape.projects import CeiT, T2TViT

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device')

ARCH = dict(embed_dims=192, num_layers=4, num_heads=3, feedforward_channels=768)
SIDES = {'injector': (256, ((32, 32), (16, 16), (8, 8))), 'extractor': (1344, ((16, 16),))}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 1e-2}


def adapter(**kwargs):
    return revert_sync_batchnorm(randomise(ViTAdapter(ARCH, 64, **kwargs))).cuda()


def far(a, b):
    """Distance of two tensors relative to the second."""
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


@pytest.mark.parametrize('dtype', TOLERANCE)
@pytest.mark.parametrize('side', SIDES)
def test_deformable_attention_agrees_on_every_backend(side, dtype):
    """Outputs and gradients on the adapter's shapes, against ``grid_sample`` in float64."""
    queries, shapes = SIDES[side]
    cells = sum(rows * columns for rows, columns in shapes)
    sizes = torch.tensor([(columns, rows) for rows, columns in shapes], device='cuda')[:, None]
    locations = torch.rand(2, queries, 6, len(shapes), 4, 2, device='cuda') * 1.2 - 0.1
    locations = ((locations * sizes * 4).floor() + 0.5) / 4 / sizes  # off the centres, where the slope jumps
    weights = torch.rand(2, queries, 6, len(shapes) * 4, device='cuda').softmax(-1).unflatten(-1, (-1, 4))
    tensors = [torch.randn(2, cells, 6, 32, device='cuda').to(dtype), locations.float(), weights.to(dtype)]

    def run(backend, dtypes):
        leaves = [t.detach().to(d).requires_grad_() for t, d in zip(tensors, dtypes)]
        out = multi_scale_deformable_attention(leaves[0], shapes, *leaves[1:], backend=backend)
        return [out, *torch.autograd.grad(out.double().square().sum(), leaves)]

    expected = run('pytorch', [torch.float64] * 3)
    place = torch.float64 if dtype == torch.float64 else torch.float32
    tolerance = max(TOLERANCE[dtype], 1e-10 if place == torch.float64 else 1e-4)
    for backend in (*available_backends('cuda', dtype), 'embedding_bag'):
        for out, exact in zip(run(backend, (dtype, place, dtype)), expected, strict=True):
            assert far(out, exact) < tolerance, backend


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
@pytest.mark.parametrize('with_cp', [False, True])
def test_an_adapter_trains_in_mixed_precision(dtype, with_cp):
    model = adapter(pe_joining='lape', patch_norm='dual', with_cp=with_cp).train()
    image = torch.randn(2, 3, 160, 224, device='cuda')
    with torch.autocast('cuda', dtype):
        outs = model(image)
    loss = sum(out.float().square().mean() for out in outs)
    loss.backward()
    assert loss.isfinite()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()] == []


OTHERS = {
    'T2T-ViT': lambda **kwargs: T2TViT(dict(ARCH, token_dims=64), 64, pe_joining='lape', patch_norm='dual', **kwargs),
    'CeiT': lambda **kwargs: CeiT(dict(ARCH, stem_channels=64), 64, pe_joining='lape', patch_norm='dual', **kwargs),
}


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
@pytest.mark.parametrize('with_cp', [False, True])
@pytest.mark.parametrize('name', OTHERS)
def test_t2t_vit_and_ceit_train_in_mixed_precision(name, dtype, with_cp):
    """One image, so that maps of ambiguous strides would show; the gradients are those of float32, roughly."""
    model, image, found = OTHERS[name](with_cp=with_cp).cuda().train(), torch.randn(1, 3, 160, 224).cuda(), []
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for enabled in (False, True):
        with torch.autocast('cuda', dtype, enabled=enabled):
            out = model(image)[0].float()
        loss = (out * torch.arange(out.numel(), device='cuda').view_as(out).cos()).sum()
        grads = torch.autograd.grad(loss, list(model.parameters()))
        assert all(grad.isfinite().all() for grad in grads)
        found.append(torch.cat([grad.flatten() for grad in grads]))
    assert torch.cosine_similarity(*found, dim=0) > 0.95


@pytest.mark.parametrize('name', OTHERS)
def test_t2t_vit_and_ceit_agree_with_the_cpu(name):
    model, image = randomise(OTHERS[name]()), torch.randn(1, 3, 160, 224)
    with torch.no_grad(), torch.backends.cudnn.flags(allow_tf32=False):
        on_cpu = model(image)[0]
        assert far(model.cuda()(image.cuda())[0].cpu(), on_cpu) < 1e-3


def test_float32_agrees_with_the_cpu():
    model = adapter(pe_joining='lape')
    image = torch.randn(1, 3, 160, 224)
    with torch.no_grad(), torch.backends.cudnn.flags(allow_tf32=False):
        on_gpu = model(image.cuda())
        on_cpu = model.cpu()(image)
    for a, b in zip(on_gpu, on_cpu, strict=True):
        assert far(a.cpu(), b) < 1e-4


def test_a_captured_graph_follows_the_weights():
    model = randomise(VisionTransformer(ARCH, 64, out_type='raw', pe_joining='lape')).cuda()
    image = torch.randn(1, 3, 64, 64, device='cuda')
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.no_grad():
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            model(image)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            out = model(image)[0]
        model.blocks[0].pe_norm.weight.mul_(2)
        graph.replay()
        torch.testing.assert_close(out, model(image)[0], atol=1e-4, rtol=1e-4)


def test_an_adapter_compiles_as_one_graph():
    model = adapter(pe_joining='lape')
    torch._dynamo.reset()
    run = torch.compile(model, fullgraph=True, dynamic=True)
    for size in ((64, 64), (96, 160)):
        image = torch.randn(1, 3, *size, device='cuda')
        with torch.no_grad():
            for a, b in zip(run(image), model(image), strict=True):
                assert far(a, b) < 5e-3


def test_lape_costs_little_memory():
    peaks = {}
    for joining in ('default', 'lape'):
        torch.manual_seed(0)
        model = revert_sync_batchnorm(ViTAdapter('deit-tiny', pe_joining=joining, window_attn=True)).cuda().train()
        image = torch.randn(2, 3, 512, 512, device='cuda')
        for _ in range(2):
            torch.cuda.reset_peak_memory_stats()
            with torch.autocast('cuda', torch.bfloat16):
                loss = sum(out.float().square().mean() for out in model(image))
            loss.backward()
        peaks[joining] = torch.cuda.max_memory_allocated()
        del model, loss
    assert peaks['lape'] < 1.02 * peaks['default']
