"""Batch norm over the batches of all processes on devices that torch's SyncBatchNorm refuses, the CPU above all."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


class _AllReduceSum(torch.autograd.Function):
    """Sum over the processes, forward and backward: every process's loss depends on every process's input."""

    @staticmethod
    def forward(ctx, tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        total = tensor.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class GroupBatchNorm(nn.modules.batchnorm._BatchNorm):
    """``(x - mean) / sqrt(var + eps) * weight + bias`` with mean and variance over the batches of all processes.

    The variance is taken around the common mean in a second pass, as a single process computes it. Parameters and
    buffers have the names of torch's batch norms.

    Args:
        num_features: Channels C of an input (N, C, ...).
        process_group: The processes that share statistics; a group of its own keeps them apart from the gradients'.
    """

    def __init__(self, num_features: int, *args, process_group: dist.ProcessGroup | None = None, **kwargs) -> None:
        super().__init__(num_features, *args, **kwargs)
        self.process_group = process_group

    def _check_input_dim(self, x: Tensor) -> None:
        if x.dim() < 2:
            raise ValueError(f'batch norm needs an input (N, C, ...), got {tuple(x.shape)}')

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``x`` (N, C, ...); a collective call while training."""
        self._check_input_dim(x)
        if not self.training or dist.get_world_size(self.process_group) == 1:
            return self._local(x)
        mean, var, count = self._statistics(x if x.dtype == torch.float64 else x.float())
        if self.track_running_stats:
            self._update_running(mean.detach(), var.detach(), count)
        shape = (1, -1) + (1,) * (x.dim() - 2)
        scale = torch.rsqrt(var + self.eps)
        if self.affine:
            scale = scale * self.weight
        out = (x - mean.view(shape)) * scale.view(shape)
        if self.affine:
            out = out + self.bias.view(shape)
        return out.to(x.dtype)

    def _local(self, x: Tensor) -> Tensor:
        batch_stats = self.training or self.running_mean is None
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
        momentum = 1 / float(self.num_batches_tracked.clamp(min=1)) if self.momentum is None else self.momentum
        mean, var = (self.running_mean, self.running_var) if self.track_running_stats else (None, None)
        return F.batch_norm(x, mean, var, self.weight, self.bias, batch_stats, momentum, self.eps)

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor, float]:
        dims = [0, *range(2, x.dim())]
        count = x.new_tensor([x.numel() / x.size(1)])
        sums = _AllReduceSum.apply(torch.cat([x.sum(dims), count]), self.process_group)
        total = float(sums[-1].detach())
        mean = sums[:-1] / total
        centred = x - mean.view((1, -1) + (1,) * (x.dim() - 2))
        var = _AllReduceSum.apply(centred.square().sum(dims), self.process_group) / total
        return mean, var, total

    @torch.no_grad()
    def _update_running(self, mean: Tensor, var: Tensor, count: float) -> None:
        self.num_batches_tracked.add_(1)
        rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
        self.running_var.lerp_((var * (count / max(count - 1, 1))).to(self.running_var.dtype), rate)


def _sync_types() -> tuple[type, ...]:
    try:
        from mmcv.ops import SyncBatchNorm
    except ImportError:
        return (nn.SyncBatchNorm,)
    return nn.SyncBatchNorm, SyncBatchNorm


def convert_sync_bn(model: nn.Module, process_group: dist.ProcessGroup | None = None) -> nn.Module:
    """Replace every SyncBatchNorm in ``model`` by a :class:`GroupBatchNorm` on the same parameters and buffers."""
    types = _sync_types()
    if isinstance(model, types):
        return _converted(model, process_group)
    for module in model.modules():
        for name, child in list(module.named_children()):
            if isinstance(child, types):
                module.add_module(name, _converted(child, process_group))
    return model


def _converted(norm: nn.Module, process_group: dist.ProcessGroup | None) -> GroupBatchNorm:
    new = GroupBatchNorm(
        norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats, process_group=process_group
    )
    new._parameters, new._buffers = norm._parameters, norm._buffers
    return new.train(norm.training)
