"""Steps that are computed again: the gradients are the same numbers, and what was to be kept is not."""

import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from mmlape.models.layers.recompute import recomputed


class Kept(nn.Module):
    """A linear map of a norm of an activation; counts how often the steps run."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.linear = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(16, 3)
        self.steps = 0

    def step(self, x):
        self.steps += 1
        return self.norm(x)

    def rest(self, x, y):
        return self.linear(torch.cat((x * y, y.flatten(1).view_as(y) * x.exp()), dim=-1))

    def forward(self, x):
        hidden = self.first(x)
        return recomputed(self.rest, (self.step, hidden), (torch.sigmoid, hidden))


def plain(model, x):
    hidden = model.first(x)
    return model.rest(model.norm(hidden), hidden.sigmoid())


@pytest.mark.parametrize('twice', [False, True])
def test_gradients_are_those_of_kept_results(twice):
    model, x, found = Kept().double(), torch.randn(2, 4, 6, dtype=torch.float64), []
    parameters = list(model.parameters())
    for run in (model, lambda x: plain(model, x)):
        grads = torch.autograd.grad(run(x).square().sum(), parameters, create_graph=twice)
        if twice:
            grads = torch.autograd.grad(sum(grad.square().sum() for grad in grads), parameters)
        found.append(grads)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert model.steps > 1


def test_steps_that_work_in_place_are_not_run_again():
    x = torch.randn(4, 5, requires_grad=True)
    recomputed(lambda y: y * y, (nn.ReLU(inplace=True), x * 1)).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().relu())


def test_nothing_of_a_result_stays():
    """The graph holds the input of an activation, not what it returns."""
    results = []

    def step(x):
        y = x.sigmoid()
        results.append(weakref.ref(y))
        return y

    x = torch.randn(4, 5, requires_grad=True)
    out = recomputed(lambda y: y * x, (step, x))
    assert len(results) == 1 and results[0]() is None
    out.sum().backward()
    assert len(results) == 2
    shares = x.detach().sigmoid()
    torch.testing.assert_close(x.grad, shares + x.detach() * shares * (1 - shares))


def test_steps_inside_of_others_are_computed_again_too():
    inner, outer, x = Kept().double(), nn.LayerNorm(6).double(), torch.randn(2, 4, 6, dtype=torch.float64)
    recomputed(inner, (outer, x)).square().sum().backward()
    assert inner.steps > 1
    found = [one.grad.clone() for one in (*inner.parameters(), *outer.parameters())]
    for module in (inner, outer):
        module.zero_grad()
    plain(inner, outer(x)).square().sum().backward()
    for one, other in zip(found, (*inner.parameters(), *outer.parameters()), strict=True):
        torch.testing.assert_close(one, other.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize('how', ['no gradients', 'checkpoint', 'vmap', 'compile'])
def test_where_nothing_is_kept_nothing_is_run_again(how):
    model, x = Kept(), torch.randn(2, 4, 6)
    if how == 'no gradients':
        with torch.no_grad():
            out = model(x)
    elif how == 'checkpoint':
        out = checkpoint(model, x, use_reentrant=False)
    elif how == 'vmap':
        out = torch.func.vmap(model)(x)
    else:
        out = torch.compile(model, backend='aot_eager', fullgraph=True)(x)
    assert model.steps == 1
    torch.testing.assert_close(out, plain(model, x))
    if how == 'checkpoint':
        out.sum().backward()
        assert model.steps == 2
