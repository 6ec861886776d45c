"""Processes that train one model together: NCCL on GPUs, gloo where there is none."""

import ctypes
import datetime
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from mmengine.dist import get_rank, get_world_size, init_dist, is_distributed
from mmengine.model import MMDistributedDataParallel as _MMDistributedDataParallel
from torch import nn

from mmlape.engine.distributed.sync_bn import convert_sync_bn
from mmlape.errors import MMLaPEError, TrainingError
from mmlape.registry import MODEL_WRAPPERS

LAUNCHERS = ('none', 'pytorch', 'slurm')

_VARIABLES = ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR', 'MASTER_PORT')


def init_processes(launcher: str, backend: str = 'nccl', timeout: int = 3600) -> None:
    """Joins the processes of this run; a second call does nothing.

    Args:
        launcher: ``'none'`` for a single process, ``'pytorch'`` under torchrun, ``'slurm'`` under srun.
        backend: The backend on GPUs. Without one it is always gloo.
        timeout: Seconds that a collective call may take (rank 0 may evaluate for long).

    Raises:
        TrainingError: If the launcher's variables are missing, or a process has no GPU of its own.
    """
    if launcher not in LAUNCHERS:
        raise TrainingError(f"unknown launcher '{launcher}': choose from {', '.join(LAUNCHERS)}")
    if launcher == 'none' or is_distributed():
        return
    if launcher == 'slurm':
        _adopt_slurm_variables()
    elif 'TORCHELASTIC_RUN_ID' in os.environ:
        end_with_parent()
    missing = [name for name in _VARIABLES if name not in os.environ]
    if missing:
        raise TrainingError(
            f'--launcher {launcher} needs the variables that torchrun sets ({", ".join(missing)} missing): '
            'start with tools/dist_train.sh CONFIG GPUS, or without --launcher'
        )
    if torch.cuda.is_available():
        check_device_count(int(os.environ['LOCAL_RANK']), torch.cuda.device_count())
        init_dist('pytorch', backend=backend, timeout=timeout)
    else:
        dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=timeout))


def end_with_parent() -> None:
    """Has the kernel kill this process as soon as the one that started it is gone.

    A torchrun that is killed leaves its processes behind, on GPUs whose locks went with it.
    """
    if sys.platform == 'linux':
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def check_device_count(local_rank: int, count: int) -> None:
    """Raises TrainingError if process ``local_rank`` of this machine has no GPU among ``count``."""
    if local_rank >= count:
        raise TrainingError(
            f'process {local_rank} of this machine has no GPU: {count} visible, {local_rank + 1} needed. '
            'Start fewer processes, or make more GPUs visible (CUDA_VISIBLE_DEVICES)'
        )


def _adopt_slurm_variables() -> None:
    """Names srun's variables as torchrun does; the port follows the job's number, so that jobs do not collide."""
    if 'SLURM_PROCID' not in os.environ:
        raise TrainingError('--launcher slurm runs under srun only: start with tools/slurm_train.sh')
    env = os.environ
    if 'MASTER_ADDR' not in env:
        nodes = env.get('SLURM_STEP_NODELIST') or env.get('SLURM_NODELIST') or '127.0.0.1'
        env['MASTER_ADDR'] = _first_host(nodes)
    if 'MASTER_PORT' not in env:
        env['MASTER_PORT'] = str(20000 + int(env.get('SLURM_JOB_ID', '0')) % 20000)
    env['RANK'], env['WORLD_SIZE'] = env['SLURM_PROCID'], env['SLURM_NTASKS']
    own_gpu = 'SLURM_GPUS_PER_TASK' in env and torch.cuda.device_count() == 1  # each task sees only its own
    env['LOCAL_RANK'] = '0' if own_gpu else env.get('SLURM_LOCALID', '0')


def _first_host(nodes: str) -> str:
    """The first name of a list such as ``node[01-04]``, which scontrol knows how to read."""
    if shutil.which('scontrol'):
        shown = subprocess.run(['scontrol', 'show', 'hostnames', nodes], capture_output=True, text=True, check=False)
        if shown.stdout.split():
            return shown.stdout.split()[0]
    return nodes.split(',')[0]


def on_main_process(function: Callable[[], Any]) -> Any:
    """Runs ``function`` on rank 0 and gives every rank its result; its error ends every rank.

    Raises:
        MMLaPEError: On rank 0, what ``function`` raised. The other ranks exit with status 1 and say nothing.
    """
    if not is_distributed():
        return function()
    answer: list[Any] = [None, None]
    error = None
    if get_rank() == 0:
        try:
            answer[0] = function()
        except MMLaPEError as caught:
            error, answer[1] = caught, str(caught)
    dist.broadcast_object_list(answer, src=0)
    if error is not None:
        raise error
    if answer[1] is not None:
        raise SystemExit(1)
    return answer[0]


def on_every_process(function: Callable[[], Any]) -> Any:
    """Runs ``function``, which must do the same on every rank, and has its error said once.

    Raises:
        MMLaPEError: On rank 0, what ``function`` raised. The other ranks exit with status 1 and say nothing.
    """
    try:
        return function()
    except MMLaPEError:
        if get_rank() == 0:
            raise
        raise SystemExit(1) from None


def leave_processes() -> None:
    """Closes the process group, if this process is in one."""
    if is_distributed():
        dist.destroy_process_group()


def any_process(flag: bool, device: torch.device | str = 'cpu') -> bool:
    """Whether ``flag`` is true in any process; a collective call when there are several."""
    if get_world_size() == 1:
        return flag
    total = torch.tensor([float(flag)], device=device)
    dist.all_reduce(total)
    return bool(total.item() > 0)


@MODEL_WRAPPERS.register_module()
class MMDistributedDataParallel(_MMDistributedDataParallel):
    """MMEngine's wrapper that also works on the CPU.

    On the CPU it takes no ``device_ids``, and the model's SyncBatchNorm layers become :class:`GroupBatchNorm`, because
    torch's own accept GPU tensors only.
    """

    def __init__(self, module: nn.Module, device_ids: list[int] | None = None, **kwargs) -> None:
        devices = {parameter.device.type for parameter in module.parameters()}
        if devices == {'cpu'}:
            device_ids = None
            module = convert_sync_bn(module, dist.new_group())
        super().__init__(module=module, device_ids=device_ids, **kwargs)
