"""Run in two processes by test_sharding.py: shards of models that differ, against a copy in each process."""

import copy
import types
from functools import partial

import torch
import torch.distributed as dist
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper
from model_helpers import cvt
from torch import nn
from torch.distributed.tensor import DTensor

from mmlape.errors import ConfigError, NotFiniteError
from mmlape.lab.engine.distributed.processes import MMDistributedDataParallel, init_processes, leave_processes
from mmlape.lab.engine.distributed.sharding import ShardedModel, full_states, full_tensor
from mmlape.lab.engine.optim import BFloat16OptimWrapper
from mmlape.lab.engine.runner import Runner
from mmlape.models import SwinTransformer, TimmViTAdapter, VisionTransformer, ViTAdapter
from mmlape.projects import CeiT, T2TViT

ARCH = dict(embed_dims=24, num_layers=4, num_heads=2, feedforward_channels=32)
TIMM = dict(
    model_name='vit_small_patch16_dinov3',
    img_size=64,
    model_args=dict(embed_dim=24, depth=4, num_heads=2),
    with_cp=True,
)
EVA = dict(TIMM, model_name='eva02_tiny_patch14_224', patch_size=16, pe_joining='lape', patch_norm='dual')
MAP = dict(img_size=32, out_type='featmap')
PLAIN = dict(arch=ARCH, patch_size=8, **MAP)
vit = partial(VisionTransformer, **PLAIN)
ceit = partial(CeiT, dict(ARCH, stem_channels=8), **MAP)
swin = partial(SwinTransformer, dict(embed_dims=12, depths=(2, 1), num_heads=(2, 2)), window_size=4)
SMALL = dict(conv_inplane=8, deform_num_heads=2)
CASES = {
    'a table per layer': partial(vit, pe_joining='unshared'),
    'relative': partial(vit, pe_type='rpe', pe_joining='default'),
    'checkpointed, partly frozen': partial(vit, pe_joining='lape', with_cp=True, frozen_stages=2),
    'accumulated': partial(vit, pe_joining='lape'),
    'pooled': partial(vit, pe_joining='mpvg', with_cls_token=False),
    'bfloat16': partial(vit, pe_joining='lape'),
    'swin': partial(swin, img_size=16, out_type='featmap', pe_type=['learnable', 'rpe'], pe_joining='lape'),
    'T2T-ViT': partial(T2TViT, dict(ARCH, token_dims=8), pe_joining='lape', **MAP),
    'CeiT': partial(ceit, pe_joining='lape', with_cp=True),
    'CeiT, pooled': partial(ceit, pe_joining='mpvg', with_cls_token=False),
    'compact': partial(cvt, pe_joining='lape', patch_norm='dual', **PLAIN),
    'adapter': partial(ViTAdapter, ARCH, 64, pe_joining='lape', **SMALL),
    'timm, trained': partial(TimmViTAdapter, EVA, **SMALL),
    'timm, frozen': partial(TimmViTAdapter, dict(TIMM, frozen=True), 'read-only', **SMALL),
}


class Net(BaseModel):
    """Regression of one number, with batch statistics and a part that no loss needs."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.norm = nn.SyncBatchNorm(24)
        self.head = nn.Linear(24, 1)
        self.unused = nn.Linear(2, 2).requires_grad_(False)

    def forward(self, inputs, mode):
        out = self.head(sum(self.norm(level).mean(dim=(2, 3)) for level in self.backbone(inputs)))
        return dict(loss=out.square().mean() + out.mean()) if mode == 'loss' else out


def build(case):
    torch.manual_seed(0)
    net = Net(CASES[case]())
    nn.init.normal_(net.norm.weight)
    return net


def wrapper_of(case, model):
    # a large eps, because a gradient of nothing but rounding would otherwise move a weight by lr
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, eps=1e-3)
    kind = BFloat16OptimWrapper if case == 'bfloat16' else OptimWrapper
    return kind(optimiser, accumulative_counts=2 if case == 'accumulated' else 1, clip_grad=dict(max_norm=0.5))


def images(step, rank, side=64):
    torch.manual_seed(100 * step + rank)
    return torch.randn(2, 3, side, side)


def train(model, optim, rank, steps):
    model.train()
    return [model.train_step(dict(inputs=images(step, rank)), optim)['loss'].item() for step in steps]


def compare(case, rank):
    ddp = MMDistributedDataParallel(build(case), broadcast_buffers=False)
    fsdp = ShardedModel(build(case))
    one, two = wrapper_of(case, ddp.module), wrapper_of(case, fsdp.module)
    train(ddp, one, rank, (1, 2))
    fsdp.module.load_state_dict(ddp.module.state_dict())
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    fsdp.shard(two)  # in the middle of a run, as one that is resumed
    assert all(isinstance(p, DTensor) for p in fsdp.parameters())
    tolerance = dict(rtol=0, atol=1e-2 if case == 'bfloat16' else 5e-6)
    for steps in ((3, 4), (5, 6)):
        losses = train(ddp, one, rank, steps), train(fsdp, two, rank, steps)
        torch.testing.assert_close(*map(torch.tensor, losses), **tolerance)
        evaluate(ddp.eval(), fsdp.eval(), rank, tolerance)
    same_state(ddp, fsdp, one, two, rank, tolerance)


def evaluate(ddp, fsdp, rank, tolerance):
    """Process 1 evaluates one image more, and each size twice."""
    with torch.no_grad():
        for number in range(1 + rank):
            for side in (32, 96, 96, 32):
                inputs = images(number, rank, side)
                found, expected = (model.module(inputs, mode='predict') for model in (fsdp, ddp))
                torch.testing.assert_close(found, expected, **tolerance)


def same_state(ddp, fsdp, one, two, rank, tolerance):
    with full_states(fsdp, two):
        pairs = [(fsdp.module.state_dict(), ddp.module.state_dict())]
        states = two.state_dict()['state'], one.state_dict()['state']
        pairs += [(states[0][index], states[1][index]) for index in states[1]]
        for found, expected in pairs if rank == 0 else ():
            assert list(found) == list(expected)
            for name in expected:
                assert type(found[name]) is torch.Tensor, name
                torch.testing.assert_close(found[name], expected[name], **tolerance, msg=name)
    assert 'state_dict' not in vars(fsdp.module)


def finds_what_is_not_finite(rank):
    """In the last row of a weight, which is on process 1: both raise an error."""
    model = ShardedModel(build('adapter'))
    model.shard(wrapper_of('adapter', model.module))
    weight = model.module.backbone.blocks[1].mlp.fc2.weight
    runner = types.SimpleNamespace(bare_model=model.module, iter=0)
    Runner.check_finite(runner)
    if rank:
        weight.to_local().data[-1, 0] = float('nan')
    try:
        Runner.check_finite(runner)
    except NotFiniteError as error:
        assert 'backbone.blocks.1.mlp.fc2.weight' in str(error)
    else:
        raise AssertionError('a NaN was not found')
    assert full_tensor(weight).isnan().sum() == 1


def refuses(model, optim, text):
    try:
        ShardedModel(model).shard(optim)
    except ConfigError as error:
        assert text in str(error)
    else:
        raise AssertionError(text)


if __name__ == '__main__':
    init_processes('pytorch')
    rank = dist.get_rank()
    for case in CASES:
        compare(case, rank)
    finds_what_is_not_finite(rank)
    net = build('accumulated')
    net.scale = nn.Parameter(torch.ones(()))
    refuses(net, wrapper_of('accumulated', net), 'shard scale,')
    print('all equal')
    leave_processes(0)
