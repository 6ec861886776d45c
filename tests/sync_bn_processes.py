"""Run in two processes by test_distributed.py: batch norm over both is torch's batch norm over the whole batch."""

import itertools

import torch
import torch.distributed as dist
from torch import nn

from mmlape.engine.distributed.processes import (
    MMDistributedDataParallel,
    init_processes,
    leave_processes,
    on_main_process,
)
from mmlape.engine.distributed.sync_bn import GroupBatchNorm
from mmlape.errors import DataError


class Net(nn.Module):
    """Two norms with a convolution between them, so that gradients pass through statistics."""

    def __init__(self, norm: type[nn.Module], **options) -> None:
        super().__init__()
        self.bn1, self.conv, self.bn2 = norm(3, **options), nn.Conv2d(3, 5, 3), norm(5, **options)

    def forward(self, x):
        return self.bn2(torch.tanh(self.conv(self.bn1(x)))).square()


def check(sizes: tuple[int, int], **options) -> None:
    """One process's pass over the whole batch against this process's part of the same."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    alone, shared = Net(nn.BatchNorm2d, **options).double(), Net(nn.SyncBatchNorm, **options).double()
    for parameter in alone.parameters():
        nn.init.normal_(parameter)
    shared.load_state_dict(alone.state_dict())
    wrapped = MMDistributedDataParallel(shared, device_ids=[rank], broadcast_buffers=False)
    assert isinstance(wrapped.module.bn1, GroupBatchNorm)
    assert list(wrapped.module.state_dict()) == list(alone.state_dict())
    start = sum(sizes[:rank])
    for step in range(3):
        x = torch.randn(sum(sizes), 3, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        mine = x[start : start + sizes[rank]].clone().requires_grad_()
        x.requires_grad_()
        expected, got = alone(x), wrapped(mine)
        part = expected[start : start + sizes[rank]]
        torch.testing.assert_close(got, part, rtol=1e-10, atol=1e-10)
        weight = torch.linspace(-1, 1, got[0].numel(), dtype=torch.float64).view(got[0].shape)
        (expected * weight).sum().backward()
        # the gradients are averaged over the processes: so each takes its sum twice
        (got * weight).sum().mul(2).backward()
        torch.testing.assert_close(mine.grad / 2, x.grad[start : start + sizes[rank]], rtol=1e-9, atol=1e-9)
        for one, other in zip(alone.parameters(), shared.parameters()):
            torch.testing.assert_close(other.grad, one.grad, rtol=1e-9, atol=1e-9)
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(wrapped.module.state_dict()[name], value, rtol=1e-11, atol=1e-11)
    if not alone.bn1.track_running_stats:
        return  # then every process takes its own batch, as torch's norm does
    alone.eval(), wrapped.eval()
    torch.testing.assert_close(wrapped(mine), alone(x)[start : start + sizes[rank]], rtol=1e-11, atol=1e-11)


def check_errors_reach_every_process() -> None:
    """Rank 0's error ends rank 1 too, and a result reaches it."""
    assert on_main_process(dist.get_rank) == 0

    def fail():
        raise DataError('bad data')

    try:
        on_main_process(fail)
    except DataError as error:
        assert dist.get_rank() == 0 and str(error) == 'bad data'
    except SystemExit as error:
        assert dist.get_rank() == 1 and error.code == 1
    else:
        raise AssertionError('no process may go on')


if __name__ == '__main__':
    init_processes('pytorch')
    for sizes, affine, momentum in itertools.product(((2, 2), (1, 4)), (True, False), (0.1, None)):
        check(sizes, affine=affine, momentum=momentum)
    check((2, 3), track_running_stats=False)
    check_errors_reach_every_process()
    print(f'process {dist.get_rank()}: all equal')
    leave_processes(0)
