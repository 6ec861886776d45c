"""Training with parameters, gradients and the optimiser's state divided among the processes: ``distributed='fsdp'``.

The model is built, initialised, loaded and resumed unsharded, as for ``'ddp'``; then torch's FSDP2
shards it, layer by layer of a ViT, and the optimiser continues with the shards. Neither results nor
checkpoints change: a checkpoint holds full tensors under the same names, so that either of the two,
or one process, can resume from it.

While a model evaluates, every process holds all of it: how often its layers run then follows from
the sizes of the images, and a collective call in each would deadlock.
"""

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from mmengine.config import Config
from mmengine.optim import OptimWrapper
from mmengine.utils import apply_to
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from mmlape.errors import ConfigError
from mmlape.lab.engine.distributed.processes import average_statistics, device_type, runnable_on_cpu
from mmlape.lab.registry import MODEL_WRAPPERS
from mmlape.lab.runs.identity import precision

STRATEGIES = ('ddp', 'fsdp')


def distribution(cfg: dict) -> str:
    """Return the configuration's ``distributed``: 'ddp' by default, or 'fsdp'.

    Raises:
        ConfigError: It is neither, or the configuration has a part that does not work with shards.
    """
    strategy = cfg.get('distributed', 'ddp')
    if strategy not in STRATEGIES:
        raise ConfigError(f'distributed={strategy!r}: choose from {", ".join(STRATEGIES)}')
    averaging = [str(hook.get('type')) for hook in cfg.get('custom_hooks') or []]
    averaging = [name for name in averaging if name.endswith(('EMAHook', 'MeanTeacherHook'))]
    reasons = [f'{name}, which averages full weights' for name in averaging]
    keys = ('compile', 'compile_backbone', 'find_unused_parameters', 'model_wrapper_cfg')
    reasons += [key for key in keys if cfg.get(key)]
    reasons += ['fp16 (use bf16)'] if precision(cfg) == 'fp16' else []
    if strategy == 'fsdp' and reasons:
        raise ConfigError(f'distributed=fsdp does not work with {"; ".join(reasons)}; use distributed=ddp')
    return strategy


def set_model_wrapper(cfg: Config, distributed: str) -> None:
    """Have a distributed run ('ddp' or 'fsdp') wrap its model in a wrapper that also runs on the CPU."""
    if cfg.launcher == 'none' or cfg.get('model_wrapper_cfg'):
        return
    if distributed == 'fsdp':
        cfg.model_wrapper_cfg = dict(type='mmlape.ShardedModel')
    else:
        unused = bool(cfg.get('find_unused_parameters', False))
        cfg.model_wrapper_cfg = dict(
            type='mmlape.MMDistributedDataParallel', broadcast_buffers=False, find_unused_parameters=unused
        )


def local(tensor: Tensor) -> Tensor:
    """Return this process's part of a tensor; the tensor itself if it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """Return all of a tensor; a collective call if it is sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def summed(part: Tensor, like: Tensor) -> Tensor:
    """Sum ``part`` in place over the processes if it comes from shards, as ``like`` shows."""
    if isinstance(like, DTensor):
        dist.all_reduce(part, group=like.device_mesh.get_group())
    return part


@MODEL_WRAPPERS.register_module()
class ShardedModel(nn.Module):
    """A model wrapper of MMEngine around a model that is unsharded until :meth:`shard`."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = runnable_on_cpu(module) if device_type(module) == 'cpu' else module
        self.sharded = False

    def shard(self, optim_wrapper: OptimWrapper) -> None:
        """Shard the model, and the optimiser's state if it has one; called once, by every process.

        Raises:
            ConfigError: The model has a parameter without dimensions.
        """
        before = dict(self.module.named_parameters())
        scalars = [name for name, parameter in before.items() if parameter.ndim == 0]
        if scalars:
            raise ConfigError(f'distributed=fsdp cannot shard {scalars[0]}, a parameter without dimensions')
        _fully_shard(self.module)
        self.sharded = True
        after = dict(self.module.named_parameters())
        _replace(optim_wrapper.optimizer, {before[name]: after[name] for name in before})

    def train(self, mode: bool = True) -> 'ShardedModel':
        """Set the mode; a collective call that gathers the model to evaluate and shards it to train."""
        super().train(mode)
        if self.sharded:
            for unit in _units(self.module):
                unit.set_reshard_after_forward(mode, recurse=False)
                if mode:
                    unit.reshard()
                else:
                    unit.unshard()
        return self

    def forward(self, *args, **kwargs):
        """Call the model."""
        return self.module(*args, **kwargs)

    def train_step(self, data, optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
        """Train one step; every accumulated iteration is reduced, because gradients add up in the shards."""
        losses = self.module.train_step(data, optim_wrapper)
        average_statistics(self.module)
        return losses

    def val_step(self, data) -> list:
        """Return the predictions for a validation batch."""
        return self.module.val_step(data)

    def test_step(self, data) -> list:
        """Return the predictions for a test batch."""
        return self.module.test_step(data)


def _units(module: nn.Module) -> list[nn.Module]:
    """Return the modules that are gathered as one.

    Those that the backbone names by a method ``shard_units()``, such as its layers, then the model
    with everything else.
    """
    units = getattr(getattr(module, 'backbone', None), 'shard_units', tuple)
    return [*units(), module]


def _fully_shard(module: nn.Module) -> None:
    device = device_type(module)
    if device == 'cpu' and not hasattr(FSDPModule, 'set_force_sum_reduction_for_comms'):
        raise ConfigError(
            f'distributed=fsdp: on the CPU, torch {torch.__version__} sums gradients that it '
            'should average; install torch 2.9 or newer, or use distributed=ddp'
        )
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for unit in _units(module):
        fully_shard(unit, mesh=mesh, reshard_after_forward=True)
        if device == 'cpu':  # gloo has no mean
            unit.set_force_sum_reduction_for_comms(True)


def _replace(optimizer, new: dict[Tensor, Tensor]) -> None:
    """Replace an optimiser's parameters, and bring its state into their form."""
    for group in optimizer.param_groups:
        group['params'] = [new[parameter] for parameter in group['params']]
    state = {
        new[old]: {key: _like(value, new[old]) for key, value in of.items()} for old, of in optimizer.state.items()
    }
    optimizer.state.clear()
    optimizer.state.update(state)


def _like(value, new: DTensor):
    """Shard a state of the parameter's shape as the parameter is.

    Every process has all of it already.
    """
    if not isinstance(value, Tensor) or value.shape != new.shape:
        return value
    return distribute_tensor(value, new.device_mesh, new.placements, src_data_rank=None)


@contextlib.contextmanager
def full_states(model: nn.Module, optim_wrapper: OptimWrapper | None) -> Iterator[None]:
    """Make ``state_dict()`` of both return full tensors on rank 0.

    A collective call if the model is sharded.
    """
    parts = [part for part in (getattr(model, 'module', None), optim_wrapper) if part is not None]
    parts = parts if isinstance(model, ShardedModel) and model.sharded else []
    for part in parts:
        state = part.state_dict()
        state.update(apply_to(dict(state), lambda value: isinstance(value, DTensor), _gathered))
        part.state_dict = lambda state=state: state
    try:
        yield
    finally:
        for part in parts:
            vars(part).pop('state_dict', None)


def _gathered(tensor: DTensor) -> Tensor:
    """Gather a tensor on rank 0's CPU.

    Other processes get nothing, so that none holds a second model.
    """
    full = tensor.full_tensor()
    return full.cpu() if dist.get_rank() == 0 else full.new_empty(0)
