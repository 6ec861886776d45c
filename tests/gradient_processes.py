"""Run in two processes by test_gradients.py: an adapter with one image a process against both images in one."""

import torch
import torch.distributed as dist
from mmengine.model import revert_sync_batchnorm
from model_helpers import adapter
from torch.nn.modules.batchnorm import _BatchNorm

from mmlape.lab.distributed import MMDistributedDataParallel, init_processes, leave_processes
from mmlape.models import ViTAdapter


def seeded_adapter() -> ViTAdapter:
    """Build an adapter to train, whose batch norms use their running statistics, which no process changes."""
    torch.manual_seed(0)
    model = revert_sync_batchnorm(adapter(img_size=48, pe_joining='lape').double()).train()
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.eval()
    return model


def main() -> None:
    init_processes('pytorch')
    rank = dist.get_rank()
    images = torch.randn(2, 3, 64, 96, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    alone = seeded_adapter()
    weights = [torch.randn_like(out) for out in alone(images)]
    sum((out * weight).sum() for out, weight in zip(alone(images), weights)).backward()

    shared = seeded_adapter()
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
