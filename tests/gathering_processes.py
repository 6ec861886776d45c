"""Run in two processes by test_distributed.py: predictions are gathered in order, errors are raised once.

Two processes that test by tiles have the values of one.
"""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed as dist
from mmpretrain.structures import DataSample
from tile_helpers import loop_on, squares

from mmlape.errors import ConfigError
from mmlape.lab.analysis.evaluation_page import EvaluationPageHook
from mmlape.lab.distributed import any_process, init_processes, leave_processes, on_every_process
from mmlape.lab.training.hooks import SavePredictionsHook


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


def check_page(folder, rank):
    """The same: each image counts once, and arrays are drawn in their colours."""
    dataset = Images(['a', 'b', 'c'])
    runner = SimpleNamespace(test_loop=SimpleNamespace(dataloader=SimpleNamespace(dataset=dataset)), hooks=[], cfg={})
    hook = EvaluationPageHook(str(folder / 'page.html'), 'Test')
    red = torch.tensor([255, 0, 0], dtype=torch.uint8).view(3, 1, 1).expand(3, 8, 8)
    for number in (0, 2) if rank == 0 else (1, 0):
        score = torch.tensor([0.25, 0.75 + number / 100])
        sample = DataSample(metainfo=dict(sample_idx=number)).set_gt_label(0).set_pred_score(score).set_pred_label(1)
        hook.after_test_iter(runner, 0, dict(inputs=[red]), [sample])
    assert all((image == (255, 0, 0)).all() for *_, image in hook.kept)
    hook.after_test_epoch(runner, {})
    dist.barrier()
    text = (folder / 'page.html').read_text()
    assert re.findall(r'<figcaption>(image \d): 0.250', text) == ['image 0', 'image 1', 'image 2']
    assert re.search(r'<td>zero</td>\s*<td>one 100.0 %</td>\s*<td>3</td>', text), text


def check_errors(rank, failing):
    def fails():
        if rank in failing:
            raise ConfigError(f'process {rank}')

    try:
        on_every_process(fails)
    except (ConfigError, SystemExit) as error:
        raised = type(error)
    assert raised is (ConfigError if rank == min(failing) else SystemExit)


def tested_by_tiles():
    """Images of several sizes, of which the second process gets those without objects."""
    rng = np.random.default_rng(0)
    images = [squares(rng, size, share) for size, share in (((80, 90), 1), ((60, 30), 0), ((30, 50), 1), ((9, 9), 0))]
    loop = loop_on(images, every=3, tile=32, overlap=10)
    return loop.run(), len(loop.outputs)


if __name__ == '__main__':
    alone = tested_by_tiles()
    init_processes('pytorch')
    here = dist.get_rank()
    together = tested_by_tiles()
    assert together == (alone[0], 2) and alone[1] == 4 and 0 < alone[0]['coco/bbox_mAP'] < 1
    check_predictions(Path(sys.argv[1]), here)
    check_page(Path(sys.argv[1]), here)
    for failing in ({0}, {1}, {0, 1}):
        check_errors(here, failing)
    assert on_every_process(lambda: here) == here
    assert any_process(here == 1) and not any_process(False)
    print('all gathered', flush=True)
    leave_processes(0)
