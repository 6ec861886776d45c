"""The full pipeline on the mini data: studies that train, then one report.

A small DeiT is pretrained, then fine-tuned. Each stage is a study, as `mmlape multi-seed` trains it; so the same
call, killed at any moment, continues from there.
"""

import contextlib
import io
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mmlape.checkpoint.opening import open_file
from mmlape.console.terminal import clock, console
from mmlape.errors import TrainingError
from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data
from mmlape.lab.experiments.launchers import LocalLauncher
from mmlape.lab.experiments.multi_seed import run_study
from mmlape.lab.experiments.planning import Arm, Study
from mmlape.lab.experiments.report import ArmRuns, build, console_table, write_report
from mmlape.lab.inference.run_model import compare_on_dataset, init_model
from mmlape.lab.runs.record import checkpoints
from mmlape.lab.runs.run import Run, read_seeds, seed_folder
from mmlape.lab.training.optim import quiet_logger
from mmlape.openmmlab.mim import mim_root

INTRODUCTION = (
    'Scenes of two to four scanned handwritten digits on tiles, on crops of two photographs; no '
    'scan of training appears in validation. A small DeiT is pretrained on crops of one digit with '
    'the default position embedding and with LaPE, and fine-tuned from there, with attention in '
    'windows as large as those crops. The models and the data are tiny and the seeds few: the '
    'numbers show that everything works and learns, not which position embedding is better.'
)
IMAGES = (0, 7, 21)
"""The validation images to draw."""
FIRST_SEED = 121


@dataclass(frozen=True)
class Experiment:
    """An arm of a study, as the report calls it."""

    name: str
    data: str  # its folder of the mini data
    config: str  # below ``configs``
    pretrained: str = ''  # the config whose last checkpoint it starts from
    changes: tuple[str, ...] = ()  # of the config

    def arm(self, work_dir: Path, data: Path) -> Arm:
        """Return the arm; what it starts from must be trained."""
        options = [f'data_root={data / self.data}/', *self.changes]
        # the runs fill the cores: workers would only hand images over
        for loader in ('train_dataloader', 'val_dataloader', 'test_dataloader'):
            options += [f'{loader}.num_workers=0', f'{loader}.persistent_workers=False']
        if self.pretrained:
            options.append(f'model.backbone.init_cfg.checkpoint={last_checkpoint(work_dir, self.pretrained)}')
        return Arm.of(mim_root() / 'configs' / self.config, options)


DEIT, DEIT_LAPE = (f'deit/deit-mini{pe}_1xb32-5e_mini-digits.py' for pe in ('', '-lape'))
ITERATIONS = ('train_cfg.max_iters=200', 'train_cfg.val_interval=200')
PRETRAINED = (Experiment('DeiT, default PE', 'digits', DEIT), Experiment('DeiT, LaPE', 'digits', DEIT_LAPE))
ADAPTERS = (
    Experiment(
        'Mask R-CNN ViT-Adapter, LaPE',
        'coco',
        'mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py',
        DEIT_LAPE,
        ('train_cfg.max_iters=150', 'train_cfg.val_interval=150'),
    ),
    Experiment(
        'UperNet ViT-Adapter, LaPE',
        'ade',
        'upernet/upernet_deit-mini-adapter-lape_1xb4-200i_mini-ade.py',
        DEIT_LAPE,
        ('train_cfg.val_interval=200',),
    ),
)
SEGMENTERS = (
    Experiment(
        'Segmenter, default PE', 'ade', 'segmenter/segmenter_deit-mini_1xb16-250i_mini-ade.py', DEIT, ITERATIONS
    ),
    Experiment(
        'Segmenter, LaPE', 'ade', 'segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade.py', DEIT_LAPE, ITERATIONS
    ),
)


def last_checkpoint(work_dir: Path, config: str) -> Path:
    """Return the last checkpoint of the first seed that a config was trained with."""
    return checkpoints(seed_folder(work_dir / Path(config).stem, FIRST_SEED))[0]


def run_demo(work_dir: str | Path, data: str | Path, seeds: int = 1, shorten: float = 1.0) -> Path:
    """Make the data, train the studies, and report.

    Args:
        work_dir: Receives everything but the data.
        data: The mini data; created if missing.
        seeds: How many seeds Segmenter is trained with; three or more give intervals.
        shorten: The share of each run's length, to try the pipeline out.

    Returns:
        The page of the report.

    Raises:
        TrainingError: A run failed.
    """
    started, work_dir, data = time.monotonic(), Path(work_dir), Path(data)
    if (data / 'coco').is_dir():
        print(f'mini data: found in {data}', flush=True)
    else:
        print(f'mini data: writing {data}', flush=True)
        make_mini_data(data, MiniOptions())
    extra = () if shorten == 1 else ('--shorten', str(shorten))
    trained: dict[Experiment, tuple[Arm, list[Run]]] = {}
    for stage, count in ((PRETRAINED, 1), (ADAPTERS, 1), (SEGMENTERS, seeds)):
        numbers = range(FIRST_SEED, FIRST_SEED + count)
        with _quiet():
            study = Study([one.arm(work_dir, data) for one in stage], numbers, work_dir, extra=extra)
        if run_study(study, LocalLauncher()):
            raise TrainingError(f'a run of the demo failed, see above and {work_dir}; the same command continues')
        trained |= {one: (arm, read_seeds(study.folder(arm), numbers)) for one, arm in zip(stage, study.arms)}
    images = {
        f'{one.name}: predictions beside ground truth': _predictions(one, arm, work_dir)
        for one, (arm, _) in trained.items()
        if one.pretrained
    }
    shown = sorted(trained, key=lambda one: not one.pretrained)  # what was pretrained stands last
    report = build(
        [ArmRuns(one.name, trained[one][1]) for one in shown],
        'mmlape on the mini data',
        allow_software=True,
        introduction=INTRODUCTION,
        notes=(
            f'Logs, checkpoints and run records are below {work_dir}.',
            f'This call took {clock(time.monotonic() - started)} on {os.cpu_count()} cores.',
        ),
        images=images,
    )
    page = write_report(report, work_dir / 'report')[0]
    console().print(console_table(report))
    print(f'report: {page}, and beside it report.md, tables.tex and the numbers as CSV and JSON', flush=True)
    return page


def _predictions(one: Experiment, arm: Arm, work_dir: Path) -> list[Path]:
    """Draw what a trained model predicts, and return the drawings."""
    with _quiet():
        model = init_model(
            arm.config, open_file(last_checkpoint(work_dir, one.config)), cfg_options=list(arm.cfg_options)
        )
        return compare_on_dataset(model, IMAGES, work_dir / 'report' / 'images' / arm.name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress what is logged or printed while models and datasets are built."""
    with quiet_logger(logging.ERROR), contextlib.redirect_stdout(io.StringIO()):
        yield
