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
from pathlib import Path

from mmlape.checkpoint.opening import open_file
from mmlape.console.terminal import clock
from mmlape.errors import TrainingError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data
from mmlape.lab.experiments.launchers import LocalLauncher
from mmlape.lab.experiments.multi_seed import run_study
from mmlape.lab.experiments.planning import Study
from mmlape.lab.experiments.report import average, build, print_results, write_report
from mmlape.lab.inference.prediction import compare_on_dataset, init_model
from mmlape.lab.runs.record import checkpoints
from mmlape.lab.runs.run import read_seeds, seed_folder
from mmlape.lab.studies import Arm
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
DEIT, DEIT_LAPE = (f'deit/deit-mini{pe}_1xb32-5e_mini-digits.py' for pe in ('', '-lape'))


def stages(work_dir: Path, data: Path) -> Iterator[dict[str, Arm]]:
    """Yield the arms of each stage as the report calls them; what a stage starts from must be trained by then."""

    def arm(folder: str, config: str, *changes: str) -> Arm:
        options = [f'data_root={data / folder}/', *changes]
        # the runs fill the cores: workers would only hand images over
        for loader in ('train_dataloader', 'val_dataloader', 'test_dataloader'):
            options += [f'{loader}.num_workers=0', f'{loader}.persistent_workers=False']
        return Arm.of(mim_root() / 'configs' / config, options)

    def from_last(config: str) -> str:
        folder = seed_folder(work_dir / Path(config).stem, FIRST_SEED)
        return f'model.backbone.init_cfg.checkpoint={checkpoints(folder)[0]}'

    yield {'DeiT, default PE': arm('digits', DEIT), 'DeiT, LaPE': arm('digits', DEIT_LAPE)}
    mask_rcnn = 'mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py'
    upernet = 'upernet/upernet_deit-mini-adapter-lape_1xb4-200i_mini-ade.py'
    shorter = ('train_cfg.max_iters=150', 'train_cfg.val_interval=150')
    yield {
        'Mask R-CNN ViT-Adapter, LaPE': arm('coco', mask_rcnn, from_last(DEIT_LAPE), *shorter),
        'UperNet ViT-Adapter, LaPE': arm('ade', upernet, from_last(DEIT_LAPE), 'train_cfg.val_interval=200'),
    }
    segmenter, segmenter_lape = (f'segmenter/segmenter_deit-mini{pe}_1xb16-250i_mini-ade.py' for pe in ('', '-lape'))
    shorter = ('train_cfg.max_iters=200', 'train_cfg.val_interval=200')
    yield {
        'Segmenter, default PE': arm('ade', segmenter, from_last(DEIT), *shorter),
        'Segmenter, LaPE': arm('ade', segmenter_lape, from_last(DEIT_LAPE), *shorter),
    }


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
    pretrained, fine_tuned, images = [], [], {}
    for number, stage in enumerate(stages(work_dir, data)):
        numbers = range(FIRST_SEED, FIRST_SEED + (seeds if number == 2 else 1))
        with _quiet():
            study = Study(list(stage.values()), numbers, work_dir, extra=extra)
        if run_study(study, LocalLauncher()):
            raise TrainingError(f'a run of the demo failed, see above and {work_dir}; the same command continues')
        for name, arm in stage.items():
            result = average(name, read_seeds(study.folder(arm), numbers), allow_software=True)
            (fine_tuned if number else pretrained).append(result)
            if number:
                drawn = _predictions(arm, result.runs[0].folder, work_dir)
                images[f'{name}: predictions beside ground truth'] = drawn
    report = build(
        [*fine_tuned, *pretrained],
        'mmlape on the mini data',
        introduction=INTRODUCTION,
        notes=(
            f'Logs, checkpoints and run records are below {work_dir}.',
            f'This call took {clock(time.monotonic() - started)} on {os.cpu_count()} cores.',
        ),
        images=images,
    )
    page = write_report(report, work_dir / 'report')[0]
    print_results(report)
    print(f'report: {page}, and beside it report.md, tables.tex and the numbers as CSV and JSON', flush=True)
    return page


def _predictions(arm: Arm, run: Path, work_dir: Path) -> list[Path]:
    """Draw what the last checkpoint of a run predicts, and return the drawings."""
    with _quiet():
        model = init_model(load_config(arm.config, list(arm.cfg_options)), open_file(checkpoints(run)[0]))
        return compare_on_dataset(model, IMAGES, work_dir / 'report' / 'images' / arm.name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress what is logged or printed while models and datasets are built."""
    with quiet_logger(logging.ERROR), contextlib.redirect_stdout(io.StringIO()):
        yield
