"""Run in two processes by test_gradient_norm.py: the norms are those of the gradients averaged over both."""

import torch
import torch.distributed as dist
from test_gradient_norm import Net, by_autograd, steps

from mmlape.engine.distributed.processes import MMDistributedDataParallel, init_processes, leave_processes

if __name__ == '__main__':
    init_processes('pytorch')
    torch.manual_seed(0)
    model = Net().double()
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    expected = by_autograd(model, images)
    wrapped = MMDistributedDataParallel(model, device_ids=None, broadcast_buffers=False)
    rank = dist.get_rank()
    logged = steps(wrapped, [images[rank : rank + 1]], rank=rank)
    if rank:
        assert logged == {}
    else:
        assert logged[1].keys() == expected.keys()
        for part, norm in expected.items():
            assert abs(logged[1][part] - norm) <= 1e-9 * norm, (part, logged[1][part], norm)
        print('all equal')
    leave_processes(0)
