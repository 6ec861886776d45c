"""Run in two processes by test_lit.py: both losses and their gradients against one process with all pairs."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from mmlape.engine.distributed.processes import MMDistributedDataParallel, init_processes, leave_processes
from mmlape.models.lit import loss as losses


class Towers(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.image, self.text = kind, torch.nn.Linear(6, 4).double(), torch.nn.Linear(5, 4).double()
        self.scale = torch.nn.Parameter(torch.tensor([3.0], dtype=torch.float64))
        self.bias = torch.nn.Parameter(torch.tensor([-1.5], dtype=torch.float64)) if kind == 'sigmoid' else None

    def forward(self, images, texts):
        towers = F.normalize(self.image(images)), F.normalize(self.text(texts))
        if self.kind == 'softmax':
            return losses.softmax_loss(*towers, self.scale)
        return losses.sigmoid_loss(*towers, self.scale, self.bias)


def check(kind, images, texts, rank):
    alone = Towers(kind)
    own_rank, size = losses.get_rank, losses.get_world_size
    losses.get_rank, losses.get_world_size = lambda: 0, lambda: 1
    expected = alone(images, texts)
    expected.backward()
    losses.get_rank, losses.get_world_size = own_rank, size
    wrapped = MMDistributedDataParallel(Towers(kind), broadcast_buffers=False)
    rows = slice(4 * rank, 4 * rank + 4)
    found = wrapped(images[rows], texts[rows])
    found.backward()
    mean = found.detach().clone()
    dist.all_reduce(mean)
    torch.testing.assert_close(mean / 2, expected.detach(), rtol=1e-10, atol=1e-10)
    for one, other in zip(alone.parameters(), wrapped.module.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-9, atol=1e-9)


def main():
    init_processes('pytorch')
    random = torch.Generator().manual_seed(1)
    images, texts = (torch.randn(8, n, dtype=torch.float64, generator=random) for n in (6, 5))
    for kind in ('softmax', 'sigmoid'):
        check(kind, images, texts, dist.get_rank())
    print('both losses equal', flush=True)
    leave_processes(0)


if __name__ == '__main__':
    main()
