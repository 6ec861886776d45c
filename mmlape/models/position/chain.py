"""A PE through the norms of all layers, w_l = LN_l(w_{l-1}), of which backward keeps the first input only."""

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call


def chained_norm(norm: nn.Module, pe: Tensor) -> Tensor:
    """Norm a PE; in backward its value is computed again from the start of the chain instead of being kept.

    The PE is that of one image, so the second time costs little, and it comes when the last layer has been freed.
    Compilers decide themselves what to keep.

    Args:
        norm: A norm without state; a chain begins where ``pe`` does not come from this function.
        pe: (1, N, D).
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return norm(pe)
    return _Link.apply(norm, pe, *norm.parameters())


class _Link(torch.autograd.Function):
    """A norm of the chain; it finds the one before it in the graph of autograd."""

    @staticmethod
    def forward(ctx, norm: nn.Module, pe: Tensor, *parameters: Tensor) -> Tensor:
        previous = pe.grad_fn
        ctx.previous = previous if isinstance(previous, _Link._backward_cls) else None
        ctx.pe = None if ctx.previous else pe.detach()
        ctx.norm = norm
        # copies: sharded training frees the parameters of a layer after its forward
        ctx.parameters = {name: value.detach().clone() for name, value in norm.named_parameters()}
        return norm(pe)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        pe = _received(ctx).detach().requires_grad_()
        if ctx.previous:
            ctx.pe = None
        parameters = {name: value.requires_grad_() for name, value in ctx.parameters.items()}
        with torch.enable_grad():
            out = functional_call(ctx.norm, parameters, pe)
        gradients = torch.autograd.grad(out, (pe, *parameters.values()), gradient)
        return None, *gradients


def _received(link) -> Tensor:
    """Return the PE that a link received, and keep on the links before it what they did, which is needed next."""
    links = []
    while link.pe is None:
        links.append(link)
        link = link.previous
    for after in reversed(links):
        with torch.no_grad():
            after.pe = functional_call(link.norm, link.parameters, link.pe)
        link = after
    return link.pe
