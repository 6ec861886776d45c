"""A hook that makes trouble where the variable TROUBLE says so; runs of the tests import it."""

import os
import time

import torch
from mmengine.hooks import Hook
from mmengine.registry import HOOKS

CONFIG = """
custom_imports = dict(imports=['trouble'])
custom_hooks = [dict(type='Trouble')]
"""


@HOOKS.register_module()
class Trouble(Hook):
    """``wait:N`` waits in the evaluation at iteration N; ``nan:N:R`` makes process R's input NaN in iteration N."""

    priority = 'HIGHEST'

    def __init__(self):
        self.kind, *rest = os.environ.get('TROUBLE', 'none').split(':')
        self.numbers = [int(number) for number in rest]

    def before_val(self, runner):
        if self.kind == 'wait' and runner.iter == self.numbers[0]:
            print('waiting', flush=True)
            time.sleep(600)

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        if self.kind == 'nan' and [runner.iter + 1, runner.rank] == self.numbers:
            data_batch['inputs'][0] = torch.full(data_batch['inputs'][0].shape, float('nan'))
