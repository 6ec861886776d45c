"""Run in two processes by test_gradients.py: models with one image a process against both images in one."""

import torch
import torch.distributed as dist
from mmdet.structures import DetDataSample
from mmengine.model import revert_sync_batchnorm
from model_helpers import adapter, randomise, tiny_detr
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmlape.lab.distributed import MMDistributedDataParallel, init_processes, leave_processes


class Detector(nn.Module):
    """DETR with terms on queries, keys and values in its encoder, of images without padding."""

    def __init__(self):
        super().__init__()
        self.model = randomise(tiny_detr(pe_type=['sine', dict(type='irpe', on='qkv')], pe_joining='lape'))

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        size = tuple(images.shape[2:])
        meta = dict(batch_input_shape=size, img_shape=size, scale_factor=(1, 1))
        states = self.model.forward_transformer(
            self.model.extract_feat(images), [DetDataSample(metainfo=meta) for _ in images]
        )
        return tuple(out.transpose(0, 1) for out in self.model.bbox_head(**states))


MODELS = {'adapter': lambda: adapter(img_size=48, pe_joining='lape'), 'DETR': Detector}


def seeded(name: str) -> nn.Module:
    """Build a model to train, whose batch norms use their running statistics, which no process changes."""
    torch.manual_seed(0)
    model = revert_sync_batchnorm(MODELS[name]().double()).train()
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.eval()
    return model


def compare(name: str, rank: int) -> None:
    images = torch.randn(2, 3, 64, 96, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    alone = seeded(name)
    weights = [torch.randn_like(out) for out in alone(images)]
    sum((out * weight).sum() for out, weight in zip(alone(images), weights)).backward()

    shared = seeded(name)
    wrapped = MMDistributedDataParallel(shared, broadcast_buffers=False)
    outs = wrapped(images[rank : rank + 1])
    mine = sum((out * weight[rank : rank + 1]).sum() for out, weight in zip(outs, weights))
    (dist.get_world_size() * mine).backward()  # gradients are averaged over the processes
    for (name, one), other in zip(alone.named_parameters(), shared.parameters(), strict=True):
        if one.requires_grad:
            torch.testing.assert_close(other.grad, one.grad, rtol=1e-8, atol=1e-8, msg=lambda text, of=name: of + text)


def main() -> None:
    init_processes('pytorch')
    for name in MODELS:
        compare(name, dist.get_rank())
        print(f'process {dist.get_rank()}, {name}: all gradients equal')
    leave_processes(0)


if __name__ == '__main__':
    main()
