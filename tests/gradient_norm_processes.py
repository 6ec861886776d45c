"""Run in two processes by test_gradient_norm.py: the norms are those of the gradients averaged over both."""

from types import SimpleNamespace

import torch
import torch.distributed as dist
from mmengine.optim import OptimWrapper
from torch import nn

from mmlape.lab.distributed import MMDistributedDataParallel, init_processes, leave_processes
from mmlape.lab.training.hooks import GradientNormHook
from mmlape.lab.training.hooks.gradient_norm import TAG
from mmlape.models import VisionTransformer

ARCH = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=32)


class Net(nn.Module):
    """A classifier whose loss is a mean over images."""

    def __init__(self):
        super().__init__()
        self.backbone = VisionTransformer(ARCH, 32, 8, pe_joining='lape')
        self.head = nn.Linear(16, 3)

    def forward(self, images):
        return self.head(self.backbone(images)[0]).square().sum(1).mean()


def by_autograd(model, images):
    """Norm of each part, from autograd and the names alone."""
    named = dict(model.named_parameters())
    gradients = torch.autograd.grad(model(images), list(named.values()), allow_unused=True)
    squares = {}
    for name, gradient in zip(named, gradients):
        keys = name.split('.')
        part = 'heads' if keys[0] == 'head' else 'backbone'
        if keys[1] == 'blocks':
            part = f'blocks.{keys[2]}'
        elif keys[1] in ('patch_embed', 'pos_embed', 'cls_token'):
            part = 'patch_embed' if keys[1] == 'patch_embed' else 'position'
        squares[part] = squares.get(part, 0) + (0 if gradient is None else float(gradient.square().sum()))
    squares['all'] = sum(squares.values())
    return {part: square**0.5 for part, square in squares.items()}


def steps(model, batches, wrapper=OptimWrapper, interval=1, start=0, rank=0, **options):
    """Trains on one batch an iteration, without changing the weights; what the hook logged, by iteration."""
    logged = {}

    def add_scalars(values, step):
        logged[step] = {name.removeprefix(TAG): value for name, value in values.items()}

    bare = getattr(model, 'module', model)
    optim = wrapper(torch.optim.SGD(bare.parameters(), lr=0.0), **options)
    optim.initialize_count_status(bare, start, start + len(batches))
    runner = SimpleNamespace(
        model=model, optim_wrapper=optim, iter=start, rank=rank, visualizer=SimpleNamespace(add_scalars=add_scalars)
    )
    hook = GradientNormHook(interval)
    hook.before_train(runner)
    for images in batches:
        optim.update_params(model(images))
        runner.iter += 1
    hook.after_train(runner)
    assert 'step' not in vars(optim)
    return logged


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
