"""A hook that makes trouble where the variable TROUBLE says so; runs of the tests import it."""

import multiprocessing
import os
import random
import resource
import signal
import time

import torch
import torch.distributed as dist
from mmengine.hooks import Hook
from mmengine.registry import HOOKS, TRANSFORMS

CONFIG = """
custom_imports = dict(imports=['trouble'])
custom_hooks = [dict(type='Trouble')]
"""

COLLECTIVES = (
    'all_gather', 'all_gather_object', 'all_reduce', 'barrier', 'broadcast', 'broadcast_object_list', 'gather',
    'gather_object',
)  # fmt: skip


def delay_collectives(seed: int) -> None:
    """Have each process of a run come to a collective call at a moment of its own."""
    moments = random.Random(f'{seed} {os.environ.get("RANK")}')

    def late(function):
        def call(*args, **options):
            time.sleep(moments.choice((0, 0, 0.1)))
            return function(*args, **options)

        return call

    for name in COLLECTIVES:
        setattr(dist, name, late(getattr(dist, name)))


@HOOKS.register_module()
class Trouble(Hook):
    """What happens, and where.

    - ``wait:N`` waits in the evaluation at iteration N, ``pause:N:R`` before iteration N of process R,
      ``rest:N:R`` for three seconds there;
    - ``nan:N:R`` makes process R's input NaN in iteration N, ``memory:N:R`` has it run out of memory there,
      ``bug:N:R`` raises an exception that nobody expects, ``kill:N:R`` kills it, ``disk:N:R`` lets no file grow
      beyond 200 kB from then on, ``term:N:R`` sends it and the processes that it has started SIGTERM, as Slurm does,
      ``int:N:R`` sends them SIGINT, as a terminal does, ``halt:N:R`` stops the others and sends it SIGTERM;
    - ``before_val:N``, ``after_val_iter:N``, ``after_val_epoch:N`` and ``after_val:N`` kill it at this place of the
      validation at iteration N;
    - ``late:SEED`` delays processes at random before collective calls, from the import of this module on.
    """

    priority = 'HIGHEST'

    def __init__(self):
        self.kind, *rest = os.environ.get('TROUBLE', 'none').split(':')
        self.numbers = [int(number) for number in rest]

    def before_val(self, runner):
        if self.kind == 'wait' and runner.iter == self.numbers[0]:
            self.wait()
        self._kill('before_val', runner)

    def after_val_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self._kill('after_val_iter', runner)

    def after_val_epoch(self, runner, metrics=None):
        self._kill('after_val_epoch', runner)

    def after_val(self, runner):
        self._kill('after_val', runner)

    def _kill(self, place, runner):
        if self.kind == place and runner.iter == self.numbers[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        if [runner.iter + 1, runner.rank] != self.numbers:
            return
        if self.kind == 'nan':
            data_batch['inputs'][0] = torch.full(data_batch['inputs'][0].shape, float('nan'))
        if self.kind == 'memory':
            torch.empty(1 << 60)
        if self.kind == 'bug':
            raise LookupError('nobody expects this')
        if self.kind == 'kill':
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == 'disk':
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        if self.kind in ('pause', 'rest'):
            self.wait(600 if self.kind == 'pause' else 3)
        if self.kind == 'halt':
            for child in multiprocessing.active_children():
                os.kill(child.pid, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGTERM)
        if self.kind in ('term', 'int'):
            number = signal.SIGTERM if self.kind == 'term' else signal.SIGINT
            for pid in (*(child.pid for child in multiprocessing.active_children()), os.getpid()):
                os.kill(pid, number)
            time.sleep(0.2)

    @staticmethod
    def wait(seconds=600):
        print('waiting', flush=True)
        time.sleep(seconds)


@HOOKS.register_module()
class Counting(Hook):
    """A user's own hook, by which each validation changes weights and rates; checkpoints have its count."""

    count = 0

    def after_val_epoch(self, runner, metrics=None):
        self.count += 1
        with torch.no_grad():
            next(runner.model.parameters()).add_(0.001 * self.count)
        for group in runner.optim_wrapper.param_groups:
            group['weight_decay'] = 0.01 * self.count

    def before_save_checkpoint(self, runner, checkpoint):
        checkpoint['meta']['counted'] = self.count

    def after_load_checkpoint(self, runner, checkpoint):
        self.count = checkpoint['meta']['counted']


@TRANSFORMS.register_module()
class Stall:
    """Loads no image after the eighth, as storage that does not answer."""

    def __init__(self):
        self.loaded = 0

    def __call__(self, results: dict) -> dict:
        self.loaded += 1
        if self.loaded > 8:
            time.sleep(600)
        return results


if os.environ.get('TROUBLE', '').startswith('late:'):
    delay_collectives(int(os.environ['TROUBLE'].partition(':')[2]))
