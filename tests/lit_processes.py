"""Run in two processes by test_lit.py: losses, and steps of a model, against one process with all pairs."""

import contextlib
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lit_helpers import lit, squares
from mmengine.optim import OptimWrapper

from mmlape.lab.distributed import MMDistributedDataParallel, init_processes, leave_processes
from mmlape.lab.training.optim import BFloat16OptimWrapper
from mmlape.projects.lit import model as losses


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


@contextlib.contextmanager
def alone_here():
    """The losses see one process."""
    own_rank, size = losses.get_rank, losses.get_world_size
    losses.get_rank, losses.get_world_size = lambda: 0, lambda: 1
    yield
    losses.get_rank, losses.get_world_size = own_rank, size


def check(kind, images, texts, rank):
    alone = Towers(kind)
    with alone_here():
        expected = alone(images, texts)
        expected.backward()
    wrapped = MMDistributedDataParallel(Towers(kind), broadcast_buffers=False)
    rows = slice(4 * rank, 4 * rank + 4)
    found = wrapped(images[rows], texts[rows])
    found.backward()
    mean = found.detach().clone()
    dist.all_reduce(mean)
    torch.testing.assert_close(mean / 2, expected.detach(), rtol=1e-10, atol=1e-10)
    for one, other in zip(alone.parameters(), wrapped.module.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-9, atol=1e-9)


def check_model(kind, tolerance, rank):
    """Two steps of the model with a softmax loss, copied to two processes, are those of one process with all pairs."""
    folder = Path(f'{rank}')
    folder.mkdir(exist_ok=True)

    def built():
        model = lit(folder).train()
        return model, kind(torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))

    def half(batch):
        return {key: values[4 * rank : 4 * rank + 4] for key, values in batch.items()}

    batches = [squares(8, step)[0] for step in range(2)]
    one, optim = built()
    with alone_here():
        expected = [one.train_step(batch, optim)['loss'].item() for batch in batches]
    model, optim = built()
    model = MMDistributedDataParallel(model, broadcast_buffers=False)
    found = torch.tensor([model.train_step(half(batch), optim)['loss'].item() for batch in batches])
    dist.all_reduce(found)
    torch.testing.assert_close(found / 2, torch.tensor(expected), rtol=0, atol=tolerance)
    for (name, value), other in zip(one.named_parameters(), model.module.parameters(), strict=True):
        torch.testing.assert_close(other, value, rtol=0, atol=tolerance, msg=name)
    assert (one.temperature - lit(folder).temperature).abs() > 1e-3


def main():
    init_processes('pytorch')
    random = torch.Generator().manual_seed(1)
    images, texts = (torch.randn(8, n, dtype=torch.float64, generator=random) for n in (6, 5))
    for kind in ('softmax', 'sigmoid'):
        check(kind, images, texts, dist.get_rank())
    check_model(OptimWrapper, 2e-6, dist.get_rank())
    check_model(BFloat16OptimWrapper, 2e-2, dist.get_rank())
    print('losses and models equal', flush=True)
    leave_processes(0)


if __name__ == '__main__':
    main()
