"""Run in two processes by test_distributed.py: predictions are gathered in order, errors are raised once."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch.distributed as dist
from mmpretrain.structures import DataSample

from mmlape.engine.distributed.processes import any_process, init_processes, leave_processes, on_every_process
from mmlape.engine.hooks import SavePredictionsHook
from mmlape.errors import ConfigError


class Images(list):
    metainfo = dict(classes=('zero', 'one'))


def check_predictions(folder, rank):
    """Three images on two processes, so that the sampler repeats the first one."""
    dataset = Images(['a.png', 'b.png', 'c.png'])
    runner = SimpleNamespace(test_loop=SimpleNamespace(dataloader=SimpleNamespace(dataset=dataset)))
    hook = SavePredictionsHook(str(folder))
    hook.before_test(runner)
    for number in (0, 2) if rank == 0 else (1, 0):
        sample = DataSample(metainfo=dict(img_path=dataset[number])).set_pred_score([1.0, 0.0])
        hook.after_test_iter(runner, number, outputs=[sample])
    hook.after_test(runner)
    dist.barrier()
    rows = json.loads((folder / 'predictions.json').read_text())
    assert [row['image'] for row in rows] == dataset
    assert [path.name for path in folder.iterdir()] == ['predictions.json']


def check_errors(rank, failing):
    def fails():
        if rank in failing:
            raise ConfigError(f'process {rank}')

    try:
        on_every_process(fails)
    except (ConfigError, SystemExit) as error:
        raised = type(error)
    assert raised is (ConfigError if rank == min(failing) else SystemExit)


if __name__ == '__main__':
    init_processes('pytorch')
    here = dist.get_rank()
    check_predictions(Path(sys.argv[1]), here)
    for failing in ({0}, {1}, {0, 1}):
        check_errors(here, failing)
    assert on_every_process(lambda: here) == here
    assert any_process(here == 1) and not any_process(False)
    print('all gathered', flush=True)
    leave_processes(0)
