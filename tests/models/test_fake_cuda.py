"""Every model, position encoding and joining on a CUDA device of fake tensors, in float32 and in mixed precision.

Models are built on the CPU and moved. So a tensor fails that a forward makes or keeps on the CPU, and one of a dtype
that an operation does not take.
"""

from functools import partial
from itertools import product

import pytest
import torch
from each import each
from fake_cuda import fake_cuda, to_fake_cuda
from mmdet.structures import DetDataSample
from mmengine.model import revert_sync_batchnorm
from model_helpers import operations, tiny_detr
from test_tools import FAMILIES
from torch import nn
from torch.utils._pytree import tree_leaves

from mmlape.kinds import JOININGS, POSITION_ENCODINGS
from mmlape.models import TimmViT, VisionTransformer
from mmlape.models.adapter.deform_attn import (
    _gradient_of_rows,
    available_backends,
    multi_scale_deformable_attention,
    sample_weights,
)
from mmlape.models.position import joinings

DTYPES = (None, torch.bfloat16, torch.float16)
EACH_DTYPE = pytest.mark.parametrize(
    'dtypes',
    [(torch.bfloat16,), pytest.param((None, torch.float16), marks=pytest.mark.release)],
    ids=['bfloat16', 'float32, float16'],
)
ARCH = dict(embed_dims=24, num_layers=2, num_heads=3, feedforward_channels=48)


def vit(layers=2, **kwargs):
    return VisionTransformer(dict(ARCH, num_layers=layers), 32, out_type='raw', **kwargs)


MODELS = {
    **FAMILIES,
    't2t, transformer': partial(FAMILIES['t2t'], tokens_type='transformer', with_cp=True),
    'swin, own tables': partial(FAMILIES['swin'], pe_hierarchy='stage', with_cp=True),
    'timm, frozen': partial(
        TimmViT, 'vit_small_patch14_reg4_dinov2', frozen=True, frozen_dtype='bf16',
        model_args=dict(embed_dim=24, depth=2, num_heads=3),
    ),
}  # fmt: skip
IRPE = {
    'irpe, qkv': dict(on='qkv', method='cross', share_heads=False),
    'irpe, bias': dict(mode='bias', on='qk', method='euclidean', reading='paper'),
}


def run(model: nn.Module, amp: torch.dtype | None, *args, **kwargs) -> None:
    """Run a model on images of another size than its tables'; the residual stream must be float32."""
    streams = []
    for layer in model.all_layers:
        layer.register_forward_pre_hook(lambda layer, args: streams.append(args[0].dtype))
    model = revert_sync_batchnorm(model).train()
    with fake_cuda(amp):
        out = to_fake_cuda(model)(torch.randn(2, 3, 48, 80, device='cuda'), *args, **kwargs)
    check(out, amp)
    assert streams == [torch.float32] * len(model.all_layers)


def check(out: object, amp: torch.dtype | None) -> None:
    tensors = tree_leaves(out)
    assert tensors and all(one.device.type == 'cuda' and one.dtype in (torch.float32, amp) for one in tensors)


@EACH_DTYPE
@pytest.mark.parametrize('name', MODELS)
def test_models(name, dtypes):
    for amp in each(dtypes):
        if 'adapter' in name:
            pytest.importorskip('deformops', reason='deformops needs Python 3.12 or 3.13')
        run(MODELS[name](), amp)


@EACH_DTYPE
def test_position_encodings(dtypes):
    for amp, kind in each(product(dtypes, [*POSITION_ENCODINGS.module_dict, *IRPE])):
        pe_type = dict(type='irpe', **IRPE[kind]) if kind in IRPE else kind
        run(vit(1 + (kind == 'cpe'), pe_type=pe_type), amp)


@EACH_DTYPE
def test_joinings(dtypes):
    for amp, joining in each(product(dtypes, JOININGS.module_dict)):
        pooled = dict(with_cls_token=False) if joinings()[joining].patches_only else {}
        run(vit(pe_joining=joining, **pooled), amp)


@pytest.mark.release
@EACH_DTYPE
def test_detr(dtypes):
    """Without the loss: what it matches depends on values."""
    for amp, joining in each(product(dtypes, ['default', 'lape'])):
        model = tiny_detr(pe_type=['sine', 'irpe', 'rope-mixed'], pe_joining=joining)
        sizes = ((48, 80), (40, 64))
        samples = [DetDataSample(metainfo=dict(batch_input_shape=sizes[0], img_shape=size)) for size in sizes]
        run(model, amp, samples, mode='tensor')


@pytest.mark.parametrize('backend', ['deformops', 'embedding_bag', 'pytorch'])
def test_deformable_attention_takes_values_of_every_dtype(backend):
    """Places are float32 whatever the values are; under autocast the weights are."""
    for amp in each(DTYPES):
        if backend == 'deformops':
            pytest.importorskip('deformops', reason='deformops needs Python 3.12 or 3.13')
            assert available_backends('cuda')[0] == backend
        with fake_cuda(amp):
            value = torch.randn(2, 20, 3, 8, device='cuda', dtype=amp)
            places, weights = torch.rand(2, 5, 3, 2, 4, 2, device='cuda'), torch.rand(2, 5, 3, 2, 4, device='cuda')
            out = multi_scale_deformable_attention(value, ((4, 4), (2, 2)), places, weights, backend)
        assert (out.shape, out.dtype, out.device.type) == ((2, 5, 24), value.dtype, 'cuda')


def test_gradients_of_row_sums_stay_on_the_device():
    """Called by itself, since autograd needs a driver; fake tensors have no sparse product for that of the weights."""
    with fake_cuda(), torch.no_grad():
        gradient, weights = torch.randn(5, 8, device='cuda'), torch.rand(5, 3, device='cuda')
        index = torch.zeros(5, 3, device='cuda', dtype=torch.int32)
        found = _gradient_of_rows(gradient, index, weights, 20)
        assert found.shape == (20, 8) and found.device.type == 'cuda'


def test_weights_of_samples_are_one_softmax_in_mixed_precision():
    """deformops takes them in the dtype of the values: nothing is copied into another."""
    pytest.importorskip('deformops', reason='deformops needs Python 3.12 or 3.13')
    with fake_cuda(torch.bfloat16), operations() as counts:
        weights = sample_weights(torch.empty(2, 5, 24, device='cuda', dtype=torch.bfloat16), (3, 2, 4))
    assert weights.dtype == torch.bfloat16
    assert counts['_softmax'] == 1 and '_to_copy' not in counts, counts
