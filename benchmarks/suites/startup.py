"""Start-up: the processor time of processes, from their start to their end or to the first iteration of training."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.comparison import Comparison, Settings, Side
from benchmarks.suites.loading import mini_data

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    'python': 'pass',
    'import mmlape': 'import mmlape',
    'mmlape --help': "from mmlape.cli import main; main(['--help'])",
    'mmlape train --help': "from mmlape.cli import main; main(['train', '--help'])",
    'import torch': 'import torch',
    'import mmlape.models': 'import mmlape.models',
}
STACK = 'import timm, mmcv.ops, mmdet.apis, mmseg.apis, mmpretrain.apis, mmlape.lab.engine.trainer'
TRAIN = """
import os, shutil, tempfile
from mmengine.runner import IterBasedTrainLoop
from mmlape.cli import main
folder = tempfile.mkdtemp()
IterBasedTrainLoop.run_iter = lambda *batch: (shutil.rmtree(folder), os._exit(0))
main(['train', {config!r}, '--work-dir', folder + '/run', '--cfg-options', *{options!r}])
raise SystemExit('the first iteration was not reached')
"""
"""Ends where the first iteration would compute, with its batch loaded."""
CONFIGS = {
    'Segmenter': 'mmlape::segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade',
    'Mask R-CNN': 'mmlape::mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco',
}


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one of imports and help texts, and one of training beside an import of the complete stack."""
    commands = [Side(name, _side(lambda code=code: code)) for name, code in COMMANDS.items()]
    training = [Side('import of the stack', _side(lambda: STACK))]
    for name, config in CONFIGS.items():
        training.append(Side(f'{name}: to its first iteration', _side(lambda config=config: _train(config, settings))))
    return [
        Comparison(
            suite='startup', case=case, work="a process's processor time", shape='-', dtype='-', sides=sides,
            timed=False, counted=False, reports=True,
        )
        for case, sides in (('imports and help texts', commands), ('training', training))
    ]  # fmt: skip


def _train(config: str, settings: Settings) -> str:
    root = mini_data(settings).resolve()
    options = [
        f'data_root={root / ("ade" if "ade" in config else "coco")}', 'model.backbone.init_cfg=None',
        'train_dataloader.num_workers=0', 'train_dataloader.persistent_workers=False',
    ]  # fmt: skip
    return TRAIN.format(config=config, options=options)


def _side(code: Callable[[], str]) -> Callable:
    def build() -> Callable[[], float]:
        command = [sys.executable, '-c', code()]
        return lambda: processor_seconds(command)

    return build


def processor_seconds(command: list[str]) -> float:
    """Run a process to its end and return the seconds that it computed, in user and system mode.

    Raises:
        RuntimeError: It ends with an error.
    """
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        errors = process.stderr.read() if process.stderr else ''
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f'ended with {process.returncode}: {" ".join(errors.strip().splitlines()[-1:])}')
    return used.ru_utime + used.ru_stime
