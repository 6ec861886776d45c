"""Second derivatives: of each autograd function of the package, and of each encoding and joining in each family.

Curvature (Hessian-vector products, gradient penalties) must mean the same in all arms of a comparison. The reference
is ``torch.func``, which differentiates a model's formula instead of its recorded backward.
"""

import re
from pathlib import Path

import pytest
import torch
from each import each
from model_helpers import adapter, swin, vit
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, vjp
from torch.nn.attention import SDPBackend, sdpa_kernel

import mmlape
from mmlape.models.adapter.deform_attn import row_sums
from mmlape.models.position import AttentionPosition, joinings, kinds

DOUBLE = dict(dtype=torch.float64, requires_grad=True)
FUNCTIONS = {
    '_RowSums': lambda: (
        lambda rows, weights: row_sums(rows, torch.tensor([[0, 2], [2, 2], [3, 0]], dtype=torch.int32), weights),
        (torch.randn(5, 2, **DOUBLE), torch.randn(3, 2, **DOUBLE)),
    )
}


def test_own_autograd_functions_are_differentiable_twice():
    own = re.compile(r'^class (\w+)\([\w.]*\bFunction\)', re.M)
    files = Path(mmlape.__file__).parent.rglob('*.py')
    assert {name for file in files for name in own.findall(file.read_text())} == set(FUNCTIONS)
    for name in each(FUNCTIONS):
        function, inputs = FUNCTIONS[name]()
        assert gradcheck(function, inputs) and gradgradcheck(function, inputs)


def curvature(model, image, direction):
    """H v of the sum of the squares: by ``autograd.grad`` twice, and by ``torch.func``."""
    values = {name: value for name, value in model.named_parameters() if value.requires_grad}

    def loss(values):
        return sum(out.square().mean() for out in functional_call(model, values, (image,)))

    gradients = torch.autograd.grad(loss(values), [*values.values()], create_graph=True, allow_unused=True)
    pairs = zip(gradients, direction.values(), strict=True)
    along = sum((g * v).sum() for g, v in pairs if g is not None)
    recorded = torch.autograd.grad(along, [*values.values()], materialize_grads=True, allow_unused=True)
    detached = {name: value.detach() for name, value in values.items()}
    (transformed,) = vjp(grad(loss), detached)[1](direction)
    return torch.cat([x.flatten() for x in recorded]), torch.cat([x.flatten() for x in transformed.values()])


def models():
    for joining, kind in joinings().items():
        tokens = dict(with_cls_token=not kind.patches_only)
        yield f'vit {joining}', lambda j=joining, t=tokens: vit(pe_joining=j, **t)
        yield f'adapter {joining}', lambda j=joining: adapter(pe_joining=j)
        if joining != 'unshared':
            yield f'swin {joining}', lambda j=joining: swin(pe_type='learnable', pe_joining=j)
    for kind in kinds(AttentionPosition):
        yield f'vit {kind.name}', lambda name=kind.name: vit(pe_type=name)


CASES = dict(models())


@pytest.mark.parametrize('name', CASES)
def test_curvature_is_that_of_the_formula(name):
    model = CASES[name]().double().eval()
    size = 64 if name.startswith('adapter') else 32
    image = torch.randn(1, 3, size, size, dtype=torch.float64)
    direction = {name: torch.randn_like(value) for name, value in model.named_parameters() if value.requires_grad}
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels have no second derivative, and say so
        recorded, transformed = curvature(model, image, direction)
    assert transformed.norm() > 0
    torch.testing.assert_close(recorded, transformed, rtol=1e-7, atol=1e-9 * transformed.abs().max().item())


def test_curvature_is_that_of_the_formula_in_the_layout_of_avx2(monkeypatch):
    monkeypatch.setattr('mmlape.models.grid._OF_AVX2', True)
    test_curvature_is_that_of_the_formula('adapter lape')
