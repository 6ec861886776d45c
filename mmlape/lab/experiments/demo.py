"""The full pipeline on the mini data.

Pretrain, fine-tune over seeds, evaluate, average, and write one report. Every run is the command
that a user would type, as a process of its own, and two run side by side. Killed at any moment, the
same call continues from there.
"""

import contextlib
import io
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from mmlape.console import clock, console
from mmlape.errors import TrainingError
from mmlape.files import atomic_path, read_json
from mmlape.lab.analysis.inference import compare_on_dataset, init_model
from mmlape.lab.engine.config import load_config
from mmlape.lab.engine.evaluator import test
from mmlape.lab.engine.optim import quiet_logger
from mmlape.lab.experiments.averages import write_summary
from mmlape.lab.experiments.demo_steps import (
    DATA_COST,
    DOWNSTREAM,
    FIRST_SEED,
    INTRODUCTION,
    PREDICTION_COST,
    PRETRAINING,
    REPORT_COST,
    Step,
    run_cost,
    shortened,
)
from mmlape.lab.experiments.launchers import LocalLauncher, visible_devices
from mmlape.lab.experiments.planning import Arm, PlannedRun, Study
from mmlape.lab.experiments.report import ArmRuns, build, console_table, write_report
from mmlape.lab.experiments.scheduler import Progress, Scheduler
from mmlape.lab.runs.diagnosis import log_tail
from mmlape.lab.runs.record import checkpoints
from mmlape.lab.runs.run import read_seeds, seed_folder
from mmlape.lab.runs.schema import RunRecord, read_record
from mmlape.mim import mim_root

IMAGES = (0, 7, 21)
"""The validation images to draw."""
DATASETS = {'classification': 'digits', 'segmentation': 'ade', 'detection': 'coco'}
"""The folder of each task's mini data."""


class Demo:
    """The demo in one folder.

    Args:
        work_dir: Receives everything but the data.
        data: The mini data; created if missing.
        seeds: How many seeds Segmenter is trained with; three or more give intervals.
        shorten: Divides the lengths of all runs, to try the pipeline out.
        print: Receives each line of progress.
    """

    def __init__(
        self,
        work_dir: str | Path,
        data: str | Path,
        seeds: int = 1,
        shorten: int = 1,
        print: Callable[[str], None] = print,
    ):
        self.work_dir, self.data, self.shorten = Path(work_dir), Path(data), shorten
        self.seeds = range(FIRST_SEED, FIRST_SEED + seeds)
        runs = sum(run_cost(step, shorten) * len(self._seeds(step)) for step in (*PRETRAINING, *DOWNSTREAM))
        total = DATA_COST + runs + PREDICTION_COST * len(DOWNSTREAM) + REPORT_COST
        self.progress = Progress(total, print, self._running)
        self.studies: dict[str, Study] = {}
        # cost, and the share that was done before, of each run
        self.unfinished: dict[Path, tuple[float, float]] = {}

    def run(self) -> Path:
        """Run all steps.

        Returns:
            The page of the report.

        Raises:
            TrainingError: A run failed; the message has the end of its log.
        """
        os.environ['OMP_NUM_THREADS'] = '1'  # two processes on two cores
        self._make_data()
        self._train(PRETRAINING)
        self._train(DOWNSTREAM)
        return self._report(self._predictions())

    def _make_data(self) -> None:
        if (self.data / 'coco').is_dir():
            self.progress.skip(DATA_COST)
            self.progress.log(f'mini data: found in {self.data}')
            return
        self.progress.log(f'mini data: writing {self.data}')
        file = self.work_dir / 'logs' / 'make-mini-data.log'
        file.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, '-m', 'mmlape', 'make-mini-data', str(self.data)]
        with open(file, 'w', encoding='utf-8') as output:
            status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode
        if status:
            raise TrainingError(
                f'make-mini-data failed with exit status {status}; the end of {file}:\n{log_tail(file)}'
            )
        self.progress.finish(DATA_COST)

    def _seeds(self, step: Step) -> Sequence[int]:
        return self.seeds if step.over_seeds else self.seeds[:1]

    def _study(self, step: Step) -> Study:
        options = [f'data_root={self.data / DATASETS[step.task]}/', *step.options]
        # two runs fill two cores: workers would only hand images over
        for loader in ('train_dataloader', 'val_dataloader', 'test_dataloader'):
            options += [f'{loader}.num_workers=0', f'{loader}.persistent_workers=False']
        if step.pretrained:
            options.append(f'model.backbone.init_cfg.checkpoint={self.checkpoint(step.pretrained)}')
        config = mim_root() / 'configs' / step.config
        with _quiet():
            if self.shorten > 1:
                options += shortened(load_config(config).train_cfg, self.shorten)
            return Study([Arm.of(config, options)], self._seeds(step), self.work_dir, 1)

    def _arm(self, name: str) -> Arm:
        return self.studies[name].arms[0]

    def _folder(self, name: str) -> Path:
        return self.studies[name].folder(self._arm(name))

    def checkpoint(self, name: str) -> Path:
        """Return the last checkpoint of a step's first seed."""
        return checkpoints(seed_folder(self._folder(name), FIRST_SEED))[0]

    def _train(self, stage: Sequence[Step]) -> None:
        """Train side by side: on the GPUs, else two runs on two cores."""
        devices = visible_devices()
        for step in stage:
            self.studies[step.name] = self._study(step)
        costs = {self._folder(step.name): run_cost(step, self.shorten) for step in stage}
        launcher = LocalLauncher(1, None if devices else 2, devices)
        plan = [planned for step in stage for planned in self.studies[step.name].plan()]
        for planned in plan:
            cost, before = costs[planned.folder.parent], _share_done(planned.folder)
            self.progress.skip(cost * before)
            self.unfinished[planned.folder] = cost, before

        def on_finished(planned: PlannedRun) -> None:
            cost, before = self.unfinished.pop(planned.folder)
            self.progress.finish(cost * (1 - before))

        scheduler = Scheduler(plan, launcher, self.progress.log, 20, on_finished=on_finished, estimate=False)
        runs = scheduler.run()
        failed = [planned for planned, run in zip(plan, runs, strict=True) if not run.finished]
        if failed:
            raise TrainingError(f'{failed[0].label} failed, see {failed[0].log}')
        for step in stage:
            folder = self._folder(step.name)
            write_summary(folder, read_seeds(folder, self._seeds(step)), step.config, allow_software=True)

    def _running(self) -> float:
        """Return the cost of what runs have done that are not finished."""
        started = list(self.unfinished.items())
        return sum(cost * max(0.0, _share_done(folder) - before) for folder, (cost, before) in started)

    def _untrained(self, step: Step) -> Path:
        """Return the file for the metrics of the model that training starts with."""
        return self._folder(step.name) / 'untrained' / 'metrics.json'

    def _predictions(self) -> dict[str, list[Path]]:
        """Evaluate the untrained models, draw the trained ones' predictions, and return the drawings."""
        images = {}
        with ProcessPoolExecutor(2) as pool:
            drawings = {}
            for step in DOWNSTREAM:
                arm, folder = (self._arm(step.name), self.work_dir / 'report' / 'images' / self._arm(step.name).name)
                weights, metrics = self.checkpoint(step.name), self._untrained(step)
                drawings[step] = pool.submit(_predict, arm.config, list(arm.cfg_options), weights, metrics, folder)
            for step, drawn in drawings.items():
                images[f'{step.name}: predictions beside ground truth'] = drawn.result()
                self.progress.finish(PREDICTION_COST)
                self.progress.log(f'{step.name}: untrained model evaluated, predictions of the trained one drawn')
        return images

    def _report(self, images: dict[str, list[Path]]) -> Path:
        """Average, compare, and write the report."""
        time = f'This call took {clock(self.progress.seconds)} on {os.cpu_count()} cores.'
        report = build(
            [self._runs(step) for step in (*DOWNSTREAM, *PRETRAINING)],
            'mmlape on the mini data',
            allow_software=True,
            introduction=INTRODUCTION,
            notes=(f'Logs, checkpoints and run records are below {self.work_dir}.', time),
            images=images,
        )
        page = write_report(report, self.work_dir / 'report')[0]
        console().print(console_table(report))
        self.progress.print(f'report: {page}, and beside it report.md, tables.tex and the numbers as CSV and JSON')
        return page

    def _runs(self, step: Step) -> ArmRuns:
        untrained = (read_json(self._untrained(step)) or {}).get('metrics', {})
        return ArmRuns(
            step.name, read_seeds(self._folder(step.name), self._seeds(step)), step.task, untrained=untrained
        )


def _predict(config: str, cfg_options: list[str], trained: Path, untrained: Path, drawings: Path) -> list[Path]:
    """Write the untrained model's metrics, unless they are there, and draw the trained one's predictions.

    It runs in a process of its own, on one core.
    """
    torch.set_num_threads(1)
    initial = untrained.with_name('initial.pth')  # the pretrained backbone under new heads
    with _quiet():
        if not untrained.is_file():
            torch.manual_seed(FIRST_SEED)
            state_dict = init_model(config, None, cfg_options=cfg_options).state_dict()
            with atomic_path(initial) as partial:
                torch.save({'state_dict': state_dict}, partial)
            test(load_config(config, cfg_options), initial, untrained.parent, out=untrained, show=False)
        return compare_on_dataset(init_model(config, trained, cfg_options=cfg_options), IMAGES, drawings)


def _share_done(folder: Path) -> float:
    """Return the share of a run's iterations that is done."""
    record = read_record(folder) or RunRecord()
    if not record.max_iters:
        return 0.0
    return min(1.0, (record.iter or 0) / record.max_iters)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress what is logged or printed while models and datasets are built."""
    with quiet_logger(logging.ERROR), contextlib.redirect_stdout(io.StringIO()):
        yield
