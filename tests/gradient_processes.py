"""Run in two processes by test_gradients.py: an adapter with one image a process against both images in one."""

import torch
import torch.distributed as dist
from mmengine.model import revert_sync_batchnorm
from model_helpers import adapter

from mmlape.engine.distributed.processes import MMDistributedDataParallel, init_processes, leave_processes
from mmlape.models import ViTAdapter


def seeded_adapter() -> ViTAdapter:
    torch.manual_seed(0)
    return adapter(img_size=48, pe_joining='lape').double()


def main() -> None:
    init_processes('pytorch')
    rank = dist.get_rank()
    images = torch.randn(2, 3, 64, 96, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    alone = revert_sync_batchnorm(seeded_adapter()).train()
    weights = [torch.randn_like(out) for out in alone(images)]
    sum((out * weight).sum() for out, weight in zip(alone(images), weights)).backward()

    shared = seeded_adapter().train()
    wrapped = MMDistributedDataParallel(shared, broadcast_buffers=False)
    outs = wrapped(images[rank : rank + 1])
    mine = sum((out * weight[rank : rank + 1]).sum() for out, weight in zip(outs, weights))
    (dist.get_world_size() * mine).backward()  # gradients are averaged over the processes
    for (name, one), other in zip(alone.named_parameters(), shared.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-8, atol=1e-8, msg=lambda text, name=name: name + text)
    print(f'process {rank}: all gradients equal')
    leave_processes(0)


if __name__ == '__main__':
    main()
