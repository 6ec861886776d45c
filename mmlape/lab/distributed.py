"""Processes that train one model together: NCCL on GPUs, gloo where there is none."""

import atexit
import contextlib
import ctypes
import datetime
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from mmengine.config import Config
from mmengine.dist import all_gather_object, all_reduce_params, get_rank, get_world_size, init_dist, is_distributed
from mmengine.model import MMDistributedDataParallel as _MMDistributedDataParallel
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import OptimWrapper
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmlape.console.log import log
from mmlape.errors import MMLaPEError, TrainingError
from mmlape.lab.registry import MODEL_WRAPPERS

TIMEOUT = 3600
"""Seconds that a collective call may take by default: process 0 may evaluate for long."""
_VARIABLES = ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR', 'MASTER_PORT')
_REPORTED = 'mmlape/reported'
"""Key of the processes' store, set by a process that has recorded and printed why it fails."""
_REPORT_TIME = datetime.timedelta(seconds=60)
_fails_elsewhere = False  # whether this process ends because of an error that another one raises


def init_processes(launcher: str, cfg: Mapping | None = None) -> None:
    """Join the processes of this run; a second call does nothing.

    Args:
        launcher: 'none' for a single process, 'pytorch' under torchrun, 'slurm' under srun.
        cfg: A config, whose ``env_cfg.dist_cfg`` may set ``backend`` (on GPUs, default 'nccl'; on the CPU it is always
            gloo) and ``timeout`` (seconds that a collective call may take).

    Raises:
        TrainingError: The launcher's variables are missing, or a process has no GPU of its own.
    """
    if launcher == 'none' or is_distributed():
        return
    if launcher == 'slurm':
        _adopt_slurm_variables()
    elif 'TORCHELASTIC_RUN_ID' in os.environ:
        end_with_parent()
    missing = [name for name in _VARIABLES if name not in os.environ]
    if missing:
        raise TrainingError(
            f'--launcher {launcher} needs the variables that torchrun sets ({", ".join(missing)} '
            'missing): start with tools/dist_train.sh CONFIG GPUS, or without --launcher'
        )
    dist_cfg = ((cfg or {}).get('env_cfg') or {}).get('dist_cfg') or {}
    timeout = dist_cfg.get('timeout', TIMEOUT)
    if torch.cuda.is_available():
        local_rank, count = int(os.environ['LOCAL_RANK']), torch.cuda.device_count()
        if local_rank >= count:
            raise TrainingError(
                f'process {local_rank} of this machine has no GPU, {count} are visible: start fewer, or make '
                'more GPUs visible (CUDA_VISIBLE_DEVICES)'
            )
        init_dist('pytorch', backend=dist_cfg.get('backend', 'nccl'), timeout=timeout)
    else:
        dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=timeout))


def end_with_parent() -> None:
    """Have the kernel kill this process as soon as its parent is gone.

    A torchrun that is killed leaves its processes behind, on GPUs whose locks went with it.
    """
    if sys.platform == 'linux':
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _adopt_slurm_variables() -> None:
    """Set torchrun's variables from srun's.

    The port follows job and step, which may share a machine.
    """
    if 'SLURM_PROCID' not in os.environ:
        raise TrainingError('--launcher slurm runs under srun only: start with tools/slurm_train.sh')
    env = os.environ
    if 'MASTER_ADDR' not in env:
        nodes = env.get('SLURM_STEP_NODELIST') or env.get('SLURM_NODELIST') or '127.0.0.1'
        env['MASTER_ADDR'] = _first_host(nodes)
    if 'MASTER_PORT' not in env:
        job, step = (int(env.get(name, '0')) for name in ('SLURM_JOB_ID', 'SLURM_STEP_ID'))
        # a large prime keeps steps of a job apart from each other and from the next jobs' steps
        # below the ports that Linux gives to clients
        env['MASTER_PORT'] = str(20000 + (job + 7919 * step) % 12000)
    env['RANK'], env['WORLD_SIZE'] = env['SLURM_PROCID'], env['SLURM_NTASKS']
    # each task sees only its own
    own_gpu = 'SLURM_GPUS_PER_TASK' in env and torch.cuda.device_count() == 1
    env['LOCAL_RANK'] = '0' if own_gpu else env.get('SLURM_LOCALID', '0')


def _first_host(nodes: str) -> str:
    """Return the first name of a list such as ``node[01-04]``, which scontrol can expand."""
    if shutil.which('scontrol'):
        shown = subprocess.run(['scontrol', 'show', 'hostnames', nodes], capture_output=True, text=True, check=False)
        if shown.stdout.split():
            return shown.stdout.split()[0]
    return nodes.split(',')[0]


def on_main_process(function: Callable[[], Any]) -> Any:
    """Run ``function`` on rank 0 and return its result on every rank.

    Its error ends every rank, as below.
    """
    answer = [on_every_process(lambda: function() if get_rank() == 0 else None)]
    if is_distributed():
        dist.broadcast_object_list(answer, src=0)
    return answer[0]


def on_every_process(function: Callable[[], Any]) -> Any:
    """Run ``function`` on every rank; its error ends every rank and is raised on one.

    Raises:
        MMLaPEError: On the first rank where ``function`` raised it. The other ranks exit silently
            with status 1, see :func:`leave_processes`.
    """
    global _fails_elsewhere
    result = error = None
    try:
        result = function()
    except MMLaPEError as caught:
        error = caught
    failed = all_gather_object(error is not None)
    if error is not None and not any(failed[: get_rank()]):
        raise error
    if any(failed):
        _fails_elsewhere = True
        raise SystemExit(1)
    return result


def leave_processes(status: int) -> None:
    """End this process with ``status`` if it is in a process group, else do nothing.

    A launcher ends all processes as soon as one has failed. So a process that fails because of
    another one's error waits until that has recorded and printed it.

    The interpreter is not torn down: gloo's threads may still hold tensors, and to release one
    while Python finalizes aborts the process, now and then (pytorch/pytorch#38228, #190489).
    """
    if not is_distributed():
        return
    sys.stdout.flush()
    sys.stderr.flush()
    if status == 0:  # after a failure, others may wait in a collective call
        dist.destroy_process_group()
    else:
        # the process that has the store may be gone, also in the meantime
        with contextlib.suppress(RuntimeError, ValueError):
            store = dist.distributed_c10d._get_default_store()
            if _fails_elsewhere:
                store.wait([_REPORTED], _REPORT_TIME)
            else:
                store.set(_REPORTED, '')
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def any_process(flag: bool, device: torch.device | str = 'cpu') -> bool:
    """Return whether ``flag`` is true in any process; a collective call if there are several."""
    if get_world_size() == 1:
        return flag
    total = torch.tensor([float(flag)], device=device)
    dist.all_reduce(total)
    return bool(total.item() > 0)


def set_model_wrapper(cfg: Config) -> None:
    """Have a distributed run wrap its model in a wrapper that also runs on the CPU."""
    if cfg.launcher != 'none' and not cfg.get('model_wrapper_cfg'):
        unused = bool(cfg.get('find_unused_parameters', False))
        cfg.model_wrapper_cfg = dict(
            type='mmlape.MMDistributedDataParallel', broadcast_buffers=False, find_unused_parameters=unused
        )


@MODEL_WRAPPERS.register_module()
class MMDistributedDataParallel(_MMDistributedDataParallel):
    """MMEngine's wrapper that also works on the CPU, without ``device_ids`` (see :func:`runnable_on_cpu`)."""

    def __init__(self, module: nn.Module, device_ids: list[int] | None = None, **kwargs) -> None:
        if device_type(module) == 'cpu':
            module, device_ids = runnable_on_cpu(module), None
        super().__init__(module=module, device_ids=device_ids, **kwargs)

    def train_step(self, data, optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
        """Train one step."""
        losses = super().train_step(data, optim_wrapper)
        average_statistics(self.module)
        return losses


def average_statistics(module: nn.Module) -> None:
    """Average the running statistics of batch norms over the processes, on the CPU.

    On GPUs, SyncBN has the same ones. Without this an evaluation in several processes would not be
    that of the checkpoint, which process 0 writes.
    """
    if device_type(module) == 'cpu':
        norms = [part for part in module.modules() if isinstance(part, _BatchNorm) and part.track_running_stats]
        all_reduce_params((value for part in norms for value in (part.running_mean, part.running_var)), op='mean')


def device_type(module: nn.Module) -> str:
    """Return the type of a model's device."""
    return next(module.parameters()).device.type


def runnable_on_cpu(module: nn.Module) -> nn.Module:
    """Replace SyncBatchNorm layers, which take GPU tensors only, by batch norms over a process's own images."""
    if any(isinstance(part, nn.SyncBatchNorm) for part in module.modules()):
        log('on the CPU, SyncBN takes the statistics of each process alone', logging.WARNING)
    return revert_sync_batchnorm(module)
