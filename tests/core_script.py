"""What a user of PyTorch and timm does, in an environment without OpenMMLab: `core_script.py INPUT.json OUTPUT.json`.

INPUT has models by name and files by layout, see `tests/environment/test_core.py`, which compares the results.
"""

import copy
import hashlib
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SEED, SIDE = 3, 64
ARCH = dict(embed_dims=24, num_layers=4, num_heads=3, feedforward_channels=48)


def digests(model: nn.Module) -> dict[str, str]:
    """Return a hash of the values of each tensor, with its shape, by name."""
    return {
        name: f'{tuple(value.shape)} {hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()}'
        for name, value in model.state_dict().items()
    }


def build(kind: str, options: dict) -> nn.Module:
    """Build a model from its class's name, with the values of a seed."""
    from mmlape.kinds import BACKBONES

    torch.manual_seed(SEED)
    return BACKBONES.get(kind)(**options)


def images(model: nn.Module, count: int = 2) -> torch.Tensor:
    """Return random images that a model takes."""
    generator = torch.Generator().manual_seed(SEED)
    return torch.randn(
        count, model.in_channels, *(side * model.patch_size for side in model.grid), generator=generator
    )


def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return a loss that every output is part of."""
    outs = [out for group in model(x) for out in (group if isinstance(group, tuple) else (group,))]
    return sum((out * torch.linspace(-1, 1, out[0].numel()).view_as(out[0])).sum() for out in outs)


def trained(kind: str, options: dict) -> dict:
    """Return the initial values of a model, and the gradients of a step of training."""
    model = build(kind, options)
    values = digests(model)
    loss(model.train(), images(model)).backward()
    missing = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    return dict(values=values, without_gradient=missing)


def loaded(kind: str, options: dict, file: str) -> dict:
    """Return the values that `load_weights` leaves in a model."""
    import mmlape

    model = build(kind, options)
    report = mmlape.load_weights(model, file)
    return dict(values=digests(model), layout=report.layout, new=report.new)


def compiled() -> float:
    """Return how far a compiled adapter is from the same one."""
    model = build('ViTAdapter', dict(arch=ARCH, img_size=SIDE, conv_inplane=8, pe_joining='lape')).eval()
    other = torch.compile(copy.deepcopy(model), backend='aot_eager', fullgraph=True)
    x = images(model)
    with torch.no_grad():
        return max((a - b).abs().max().item() for a, b in zip(model(x), other(x), strict=True))


def distributed(rank: int, folder: str) -> None:
    """Compare the gradients of two processes with half of a batch each with those of the complete batch."""
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method=f'file://{folder}/rendezvous', rank=rank, world_size=2)
    model = build('VisionTransformer', dict(arch=ARCH, img_size=SIDE, pe_joining='lape', patch_norm='dual'))
    whole, x = copy.deepcopy(model), images(model)
    parallel = DistributedDataParallel(model)
    (2 * loss(parallel, x[rank : rank + 1])).backward()  # DDP takes the mean
    loss(whole, x).backward()
    ours = {name: p.grad for name, p in model.named_parameters()}
    apart = [
        ((p.grad - ours[name]).abs().max() / p.grad.abs().max().clamp(min=1)).item()
        for name, p in whole.named_parameters()
    ]
    Path(folder, f'{rank}.json').write_text(json.dumps(dict(apart=max(apart), count=len(apart))))
    dist.destroy_process_group()


def imported() -> list[str]:
    """Return the packages that the public names import beside PyTorch and the standard library."""
    before = {name.partition('.')[0] for name in sys.modules}
    import mmlape

    for name in set(mmlape.__all__) - {'load'}:  # of runs, which OpenMMLab trains
        getattr(mmlape, name)
    after = {name.partition('.')[0] for name in sys.modules}
    lazy = [name for name in ('torch._dynamo', 'torch.distributed.optim', 'timm') if name in sys.modules]
    return sorted(after - before - set(sys.stdlib_module_names)) + lazy


if __name__ == '__main__':
    given, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[1]).parent
    torch.set_num_threads(1)
    result = dict(imported=imported())
    result['models'] = {name: trained(*model) for name, model in given['models'].items()}
    result['files'] = {name: loaded(*file) for name, file in given['files'].items()}
    result['compiled'] = compiled()
    torch.multiprocessing.spawn(distributed, (str(folder),), nprocs=2)
    result['distributed'] = [json.loads((folder / f'{rank}.json').read_text()) for rank in range(2)]
    result['openmmlab'] = sorted(
        name for name in sys.modules if name.startswith(('mmengine', 'mmcv', 'mmdet', 'mmseg'))
    )
    Path(sys.argv[2]).write_text(json.dumps(result))
