"""The whole job on the mini data: pretrain, fine-tune over seeds, evaluate, average, and write it all into one report.

Every training and every test is the same command that a user would type, as a process of its own; two run side by
side, and the last training is one run on two processes. Killed at any moment, the same call goes on from there.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
from rich.console import Console

from mmlape.engine.config import load_config
from mmlape.engine.record import checkpoints
from mmlape.errors import TrainingError
from mmlape.experiments.aggregate import read_seeds
from mmlape.experiments.report import Arm, build, console_table, write_report
from mmlape.experiments.seeds import Experiment, train_seeds, write_summary
from mmlape.mim import mim_root
from mmlape.visualization.image_demo import compare_on_dataset, load

INTRODUCTION = (
    'Scenes of scanned handwritten digits on tiles, on crops of two photographs; no scan used for training appears in '
    'validation. A small DeiT is pretrained on single digits with the default position embedding and with LaPE, and '
    'fine-tuned from there. Untrained is the model that training begins with: a pretrained backbone under new heads. '
    'The models and the data are tiny and the seeds few: the numbers show that everything works and learns, and say '
    'nothing about which position embedding is better.'
)
SEEDS = (121, 122)
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


@dataclass
class Progress:
    """What is done of what there is to do, by the steps' costs; says lines with the time left."""

    total: float
    say: Callable[[str], None]
    done: float = 0.0
    begun: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def finish(self, cost: float) -> None:
        with self.lock:
            self.done += cost

    def tell(self, text: str) -> None:
        """Say a line, with the time that has passed and, once it can be known, the time left."""
        with self.lock:
            passed = time.monotonic() - self.begun
            share = self.done / self.total
            left = f', about {_clock(passed * (1 - share) / share)} left' if 0.05 < share < 1 else ''
            self.say(f'[{_clock(passed)}{left}] {text}')


def _shortened(train_cfg: dict, divisor: int) -> list[str]:
    """Options that divide a training's length, and keep one evaluation at its end and a warm-up that fits."""
    if 'max_epochs' in train_cfg:
        return [f'train_cfg.max_epochs={max(2, train_cfg["max_epochs"] // divisor)}']
    length = max(2, train_cfg['max_iters'] // divisor)
    schedule = ['param_scheduler.0.end=1', 'param_scheduler.1.begin=1']
    return [f'train_cfg.max_iters={length}', f'train_cfg.val_interval={length}', *schedule]


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


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
        self.experiments: dict[str, Experiment] = {}

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
        for stage, lanes in ((pretraining, 2), (side_by_side, 2), (together, 1)):
            for step in stage:  # configurations are not loaded side by side: MMEngine's scopes are global
                self.experiments[step.name] = self._experiment(step)
            self._each(self._train, stage, lanes)
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

    def _experiment(self, step: Step) -> Experiment:
        folder = {'classification': 'digits', 'segmentation': 'ade', 'detection': 'coco'}[step.task]
        options = [f'data_root={self.data / folder}/', *step.options]
        if step.pretrained:
            options.append(f'model.backbone.init_cfg.checkpoint={self.checkpoint(step.pretrained)}')
        config = mim_root() / 'configs' / step.config
        if self.shorten > 1:
            options += _shortened(load_config(config).train_cfg, self.shorten)
        return Experiment(str(config), step.seeds, self.work_dir, step.processes, tuple(options))

    def checkpoint(self, name: str) -> Path:
        """The last checkpoint of a step's first seed."""
        return checkpoints(self.experiments[name].folder / f'seed_{SEEDS[0]}')[0]

    def _train(self, step: Step) -> None:
        experiment = self.experiments[step.name]
        runs = train_seeds(experiment, lambda text: self.progress.tell(f'{step.name}: {text}'), every=20)
        failed = [run for run in runs if not run.finished]
        if failed:
            raise TrainingError(f'{step.name}: seed {failed[0].seed} failed, see {experiment.log(failed[0])}')
        write_summary(experiment.folder, runs, step.config)
        self.progress.finish(step.cost)

    def _test(self, step: Step, trained: bool) -> None:
        """Evaluate the last checkpoint, or the weights that training began with, by the test command."""
        experiment = self.experiments[step.name]
        out = self._metrics_file(step, trained)
        if not out.is_file():
            checkpoint = self.checkpoint(step.name) if trained else self._initial_file(step)
            self._command(
                'test', experiment.config, str(checkpoint), '--work-dir', str(out.parent), '--out', str(out),
                '--cfg-options', *experiment.cfg_options, log=f'test-{experiment.folder.name}-{out.stem}',
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
        experiment = self.experiments[step.name]
        torch.manual_seed(SEEDS[0])
        model = load(experiment.config, None, cfg_options=list(experiment.cfg_options))
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({'state_dict': model.state_dict()}, path)

    def _metrics_file(self, step: Step, trained: bool) -> Path:
        return self.experiments[step.name].folder / ('test' if trained else 'untrained') / 'metrics.json'

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
            experiment = self.experiments[step.name]
            model = load(experiment.config, self.checkpoint(step.name), cfg_options=list(experiment.cfg_options))
            drawn = compare_on_dataset(model, PICTURES, folder / 'pictures' / experiment.folder.name)
            pictures[f'{step.name}: predictions beside ground truth'] = drawn
        report = build(
            [self._arm(step) for step in (*downstream, *pretraining)],
            'mmlape on the mini data',
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
        runs = read_seeds(self.experiments[step.name].folder, step.seeds)
        file = self._metrics_file(step, False)
        untrained = json.loads(file.read_text())['metrics'] if file.is_file() else {}
        return Arm(step.name, runs, step.task, untrained=untrained)

    def _took(self) -> str:
        return f'This call took {_clock(time.monotonic() - self.progress.begun)} on {os.cpu_count()} cores.'
