#!/usr/bin/env python
"""Tables and figure of `studies/real-features.yml`: `python docs/results/real_features.py WORK_DIR [--figure FILE]`.

WORK_DIR is the study's, with its finished runs. The figure has scenes of validation, their labels, and what the first
seed of each arm predicts; it reads the data that the runs were trained on.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

import mmlape
from mmlape.console.tables import markdown_table, text_table
from mmlape.lab.datasets.folders import class_palette
from mmlape.lab.experiments.statistics import estimate, welch
from mmlape.lab.runs.schema import read_record
from mmlape.lab.studies import read_study

STUDY = 'mmlape::studies/real-features.yml'
BASELINE = 'linear'
METRIC = 'mIoU'
DATA = Path('data/real-features/ade')
SCENES = (3, 11, 17, 24, 38, 47)
SCALE = 2

Values = dict[str, dict[int, float]]
"""The mIoU of each seed, by arm."""


def read_runs(work_dir: Path) -> tuple[Values, dict[str, float]]:
    """Return the mIoU after the last iteration, by arm and seed, and the peak memory of each arm in GiB."""
    study = read_study(STUDY)
    values: Values = {}
    memory = {}
    for arm in study.arms:
        for seed in study.seeds:
            folder = work_dir / arm.name / f'seed_{seed}'
            if (folder / 'run.json').is_file():
                record = read_record(folder)
                if record.last and METRIC in record.last.metrics and record.state == 'finished':
                    values.setdefault(arm.name, {})[seed] = record.last.metrics[METRIC]
                    peak = (record.cost.peak_memory_mib or 0) / 1024
                    memory[arm.name] = max(peak, memory.get(arm.name, 0.0))
    return values, memory


def table(values: Values, memory: dict[str, float]) -> str:
    """Return mean and deviation of each arm, the difference from the linear head, Welch's 95 % interval, memory."""
    titles = {arm.name: arm.title for arm in read_study(STUDY).arms}
    baseline = list(values[BASELINE].values())
    rows = []
    for name, by_seed in values.items():
        found = estimate(list(by_seed.values()))
        difference = welch(list(by_seed.values()), baseline)
        shown = f'{found.mean:.1f}' + (f' ± {found.std:.1f}' if found.std is not None else '')
        if name == BASELINE:
            beside = ''
        elif difference.low is None:
            beside = f'{found.mean - np.mean(baseline):+.1f}'
        else:
            beside = f'{difference.mean:+.1f} ({difference.low:.1f} to {difference.high:.1f})'
        rows.append((titles[name], shown, str(found.n), beside, f'{memory[name]:.1f}'))
    header = ('arm', METRIC, 'seeds', 'minus linear head (95 %)', 'memory, GiB')
    return markdown_table(text_table(header, rows))


def draw(work_dir: Path, arms: Sequence[str], file: Path) -> None:
    """Draw scenes, labels, and the predictions of each arm, row by row."""
    images = sorted((DATA / 'images' / 'validation').iterdir())
    chosen = [images[place] for place in SCENES]
    rows = [[np.asarray(Image.open(path).convert('RGB')) for path in chosen]]
    maps = [DATA / 'annotations' / 'validation' / f'{path.stem}.png' for path in chosen]
    labels = [np.asarray(Image.open(path)).astype(int) - 1 for path in maps]
    palette = np.array(class_palette(len(classes_of(work_dir, arms[0]))), np.uint8)
    palette[-1] = 235  # the background
    rows.append([_coloured(one, palette) for one in labels])
    for arm in arms:
        run = min((work_dir / arm).glob('seed_*'))
        results = mmlape.load(str(run), device='cpu').predict([str(path) for path in chosen])
        rows.append([_coloured(result.labels.astype(int), palette) for result in results])
    border = 4
    lines = [
        np.hstack([np.pad(one, ((0, border), (0, border), (0, 0)), constant_values=255) for one in row])
        for row in rows
    ]
    Image.fromarray(np.vstack(lines)).resize([SCALE * side for side in np.vstack(lines).shape[1::-1]], 0).save(file)


def classes_of(work_dir: Path, arm: str) -> list[str]:
    """Return the names of the classes of an arm's runs."""
    return list(mmlape.load(str(min((work_dir / arm).glob('seed_*'))), device='cpu').classes)


def _coloured(labels: np.ndarray, palette: np.ndarray) -> np.ndarray:
    image = palette[np.clip(labels, 0, len(palette) - 1)]
    image[labels < 0] = 255
    return image


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('work_dir', type=Path, metavar='WORK_DIR')
    parser.add_argument('--figure', type=Path, metavar='FILE')
    args = parser.parse_args(argv)
    values, memory = read_runs(args.work_dir)
    print(table(values, memory))
    if args.figure:
        draw(args.work_dir, [name for name in values if not name.endswith('-all')], args.figure)


if __name__ == '__main__':
    main()
