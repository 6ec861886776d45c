"""The whole job on the mini data: pretrain, fine-tune over seeds, evaluate, average, and write it all into one report.

Every training and every test is the same command that a user would type, as a process of its own; two run side by
side, and the last training is one run on two processes. Killed at any moment, the same call goes on from there.
"""

import contextlib
import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from mmlape.analysis.inference import init_model
from mmlape.analysis.predictions import compare_on_dataset
from mmlape.engine.config import load_config
from mmlape.engine.optim import quiet_logger
from mmlape.errors import TrainingError
from mmlape.experiments.averages import write_summary
from mmlape.experiments.launchers.devices import visible_devices
from mmlape.experiments.launchers.local import LocalLauncher
from mmlape.experiments.progress import Progress
from mmlape.experiments.report import Arm, build, console_table, write_report
from mmlape.experiments.scheduler import Scheduler
from mmlape.experiments.status import clock
from mmlape.experiments.study import Arm as StudyArm
from mmlape.experiments.study import PlannedRun, Study
from mmlape.mim import mim_root
from mmlape.runs.record import checkpoints
from mmlape.runs.run import read_seeds

INTRODUCTION = (
    'Scenes of scanned handwritten digits on tiles, on crops of two photographs; no scan used for training appears in '
    'validation. A small DeiT is pretrained on single digits with the default position embedding and with LaPE, and '
    'fine-tuned from there. Untrained is the model that training begins with: a pretrained backbone under new heads. '
    'The models and the data are tiny and the seeds few: the numbers show that everything works and learns, and say '
    'nothing about which position embedding is better.'
)
SEEDS = (121, 122, 123)
PICTURES = (0, 7, 21)
"""Which validation images are drawn."""


@dataclass
class Step:
    """One experiment of the demo.

    Attributes:
        name: the arm's name in the table.
        config: below ``configs``.
        cost: seconds that it took on two cores; the ETA's weights.
        pretrained: the step whose checkpoint it starts from.
        processes: of one run.
        options: changes of the configuration that go with so many processes.
    """

    name: str
    task: str
    config: str
    seeds: Sequence[int]
    cost: float
    pretrained: str | None = None
    processes: int = 1
    options: tuple[str, ...] = ()


STEPS = (
    Step('DeiT, default PE', 'classification', 'pretrain/deit-mini-default_1xb64-8e_mini-digits.py', (121,), 100),
    Step('DeiT, LaPE', 'classification', 'pretrain/deit-mini-lape_1xb64-8e_mini-digits.py', (121,), 100),
    Step(
        'Mask R-CNN ViT-Adapter, LaPE',
        'detection',
        'mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-150i_mini-coco.py',
        SEEDS[:1],
        150,
        'DeiT, LaPE',
    ),
    Step(
        'Segmenter, default PE',
        'segmentation',
        'segmenter/segmenter_deit-mini-default_1xb16-250i_mini-ade.py',
        SEEDS,
        90,
        'DeiT, default PE',
    ),
    Step(
        'Segmenter, LaPE',
        'segmentation',
        'segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade.py',
        SEEDS,
        90,
        'DeiT, LaPE',
    ),
    Step(
        'UperNet ViT-Adapter, LaPE',
        'segmentation',
        'upernet/upernet_deit-mini-adapter-lape_1xb4-200i_mini-ade.py',
        SEEDS[:1],
        80,
        'DeiT, LaPE',
        processes=2,
        options=('train_dataloader.batch_size=2',),
    ),
)
TEST_COST = 12


def _shortened(train_cfg: dict, divisor: int) -> list[str]:
    """Options that divide a training's length, and keep one evaluation at its end and a warm-up that fits."""
    if 'max_epochs' in train_cfg:
        return [f'train_cfg.max_epochs={max(2, train_cfg["max_epochs"] // divisor)}']
    length = max(2, train_cfg['max_iters'] // divisor)
    schedule = ['param_scheduler.0.end=1', 'param_scheduler.1.begin=1']
    return [f'train_cfg.max_iters={length}', f'train_cfg.val_interval={length}', *schedule]


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without what is logged or printed while models and data sets are built."""
    with quiet_logger(logging.ERROR), contextlib.redirect_stdout(io.StringIO()):
        yield


class Demo:
    """The demo's work in one folder.

    Args:
        work_dir: Where everything goes but the data.
        data: The mini data; made if it is not there.
        shorten: Divides the lengths of all trainings, to try the machinery out.
    """

    def __init__(self, work_dir: str | Path, data: str | Path, shorten: int = 1, say: Callable[[str], None] = print):
        self.work_dir, self.data, self.shorten = Path(work_dir), Path(data), shorten
        trainings = sum(step.cost for step in STEPS)
        tests = 2 * TEST_COST * sum(step.task != 'classification' for step in STEPS)
        self.progress = Progress(trainings + tests, say)
        self.studies: dict[str, Study] = {}

    def run(self) -> Path:
        """Do it all.

        Returns:
            The report.

        Raises:
            TrainingError: If a training or a test failed; the message has the end of its log.
        """
        os.environ['OMP_NUM_THREADS'] = '1'  # two processes on two cores
        self._make_data()
        pretraining = [step for step in STEPS if step.task == 'classification']
        side_by_side = [step for step in STEPS if step not in pretraining and step.processes == 1]
        together = [step for step in STEPS if step.processes > 1]
        for stage in (pretraining, side_by_side, together):
            self._train(stage)
        downstream = [step for step in STEPS if step not in pretraining]
        for step in downstream:
            self._write_initial(step)
        self._each(lambda work: self._test(*work), [(step, kind) for step in downstream for kind in (False, True)], 2)
        return self._report(downstream, pretraining)

    @staticmethod
    def _each(function: Callable, items: Sequence, lanes: int) -> None:
        with ThreadPoolExecutor(lanes) as pool:
            for future in [pool.submit(function, item) for item in items]:
                future.result()

    def _make_data(self) -> None:
        if (self.data / 'coco').is_dir():
            self.progress.tell(f'mini data: found in {self.data}')
            return
        self.progress.tell(f'mini data: making {self.data}')
        self._command('make-mini-data', str(self.data), log='make-mini-data')

    def _study(self, step: Step, processes: int) -> Study:
        folder = {'classification': 'digits', 'segmentation': 'ade', 'detection': 'coco'}[step.task]
        options = [f'data_root={self.data / folder}/', *(step.options if processes == step.processes else ())]
        if step.pretrained:
            options.append(f'model.backbone.init_cfg.checkpoint={self.checkpoint(step.pretrained)}')
        config = mim_root() / 'configs' / step.config
        if self.shorten > 1:
            options += _shortened(load_config(config).train_cfg, self.shorten)
        return Study([StudyArm.of(config, options)], step.seeds, self.work_dir, processes)

    def _folder(self, name: str) -> Path:
        """Where the runs of a step are."""
        study = self.studies[name]
        return study.folder(study.arms[0])

    def checkpoint(self, name: str) -> Path:
        """The last checkpoint of a step's first seed."""
        return checkpoints(self._folder(name) / f'seed_{SEEDS[0]}')[0]

    def _train(self, stage: Sequence[Step]) -> None:
        """Train steps of as many processes each, side by side: on the GPUs, else two processes on two cores."""
        devices = visible_devices()
        wanted = stage[0].processes
        processes = wanted if not devices else min(wanted, len(devices))
        for step in stage:
            self.studies[step.name] = self._study(step, processes)
        costs = {self._folder(step.name): step.cost / len(step.seeds) for step in stage}
        launcher = LocalLauncher(processes, None if devices else max(1, 2 // processes), devices)
        plan = [planned for step in stage for planned in self.studies[step.name].plan()]

        def finished(planned: PlannedRun) -> None:
            self.progress.finish(costs[planned.folder.parent])

        runs = Scheduler(plan, launcher, self.progress.tell, every=20, finished=finished).run()
        failed = [planned for planned, run in zip(plan, runs, strict=True) if not run.finished]
        if failed:
            raise TrainingError(f'{failed[0].label} failed, see {failed[0].log}')
        for step in stage:
            folder = self._folder(step.name)
            write_summary(folder, read_seeds(folder, step.seeds), step.config, allow_software=True)

    def _test(self, step: Step, trained: bool) -> None:
        """Evaluate the last checkpoint, or the weights that training began with, by the test command."""
        arm, out = self.studies[step.name].arms[0], self._metrics_file(step, trained)
        if not out.is_file():
            checkpoint = self.checkpoint(step.name) if trained else self._initial_file(step)
            self._command(
                'test', arm.config, str(checkpoint), '--work-dir', str(out.parent), '--out', str(out),
                '--cfg-options', *arm.cfg_options, log=f'test-{arm.name}-{out.parent.name}',
            )  # fmt: skip
        self.progress.finish(TEST_COST)
        self.progress.tell(f'{step.name}: {"trained" if trained else "untrained"} model evaluated')

    def _initial_file(self, step: Step) -> Path:
        return self._metrics_file(step, False).parent / 'initial.pth'

    def _write_initial(self, step: Step) -> None:
        """Save the model as training finds it: the pretrained backbone under new heads."""
        path = self._initial_file(step)
        if path.is_file() or self._metrics_file(step, False).is_file():
            return
        arm = self.studies[step.name].arms[0]
        torch.manual_seed(SEEDS[0])
        with _quietly():
            model = init_model(arm.config, None, cfg_options=list(arm.cfg_options))
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix('.part')
        torch.save({'state_dict': model.state_dict()}, part)
        part.replace(path)  # a kill leaves no half of it

    def _metrics_file(self, step: Step, trained: bool) -> Path:
        return self._folder(step.name) / ('test' if trained else 'untrained') / 'metrics.json'

    def _command(self, *words: str, log: str) -> None:
        self._process([sys.executable, '-m', 'mmlape', *words], log)

    def _process(self, command: list[str], log: str) -> None:
        path = self.work_dir / 'logs' / f'{log}.log'
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, 'w', encoding='utf-8') as output:
            status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode
        if status:
            tail = '\n  '.join(path.read_text(encoding='utf-8', errors='replace').splitlines()[-12:])
            raise TrainingError(f'{log} ended with exit status {status}; the end of {path}:\n  {tail}')

    def _report(self, downstream: Sequence[Step], pretraining: Sequence[Step]) -> Path:
        """Average, compare, draw, and write the report."""
        folder, pictures = self.work_dir / 'report', {}
        for step in downstream:
            self.progress.tell(f'{step.name}: drawing predictions')
            arm = self.studies[step.name].arms[0]
            with _quietly():
                model = init_model(arm.config, self.checkpoint(step.name), cfg_options=list(arm.cfg_options))
                drawn = compare_on_dataset(model, PICTURES, folder / 'pictures' / arm.name)
            pictures[f'{step.name}: predictions beside ground truth'] = drawn
        report = build(
            [self._arm(step) for step in (*downstream, *pretraining)],
            'mmlape on the mini data',
            allow_software=True,
            introduction=INTRODUCTION,
            notes=(f'Logs, checkpoints and run records are below {self.work_dir}.', self._took()),
            pictures=pictures,
        )
        page = write_report(report, folder)[0]
        width = None if sys.stdout.isatty() else 140
        Console(width=width).print(console_table(report))
        self.progress.say(f'report: {page}, and beside it report.md, tables.tex and the numbers as CSV and JSON')
        return page

    def _arm(self, step: Step) -> Arm:
        runs = read_seeds(self._folder(step.name), step.seeds)
        file = self._metrics_file(step, False)
        untrained = json.loads(file.read_text())['metrics'] if file.is_file() else {}
        return Arm(step.name, runs, step.task, untrained=untrained)

    def _took(self) -> str:
        return f'This call took {clock(time.monotonic() - self.progress.begun)} on {os.cpu_count()} cores.'
