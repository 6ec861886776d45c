"""The report of the runs below a work dir: what `mmlape report` writes."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mmlape.errors import ConfigError, DataError
from mmlape.experiments.report.arms import ArmRuns
from mmlape.experiments.report.content import Report, build
from mmlape.experiments.report.writing import write_report
from mmlape.runs.run import read_arms

IMAGE_SUFFIXES = ('.png', '.jpg', '.jpeg', '.svg', '.webp', '.gif')


def report_work_dir(
    work_dir: str | Path,
    out: str | Path | None = None,
    title: str | None = None,
    names: Sequence[str] | None = None,
    baseline: str | None = None,
    metrics: Sequence[str] | None = None,
    images: str | Path | None = None,
    allow_software: bool = False,
) -> tuple[Report, list[Path]]:
    """Average and compare the arms below a work dir, and write the report.

    Args:
        work_dir: See :func:`mmlape.runs.run.read_arms`.
        out: The folder of the report; default: ``report`` in the work dir.
        title: The heading; default: the name of the work dir.
        names: The arms, in this order; default: all.
        baseline: As in `build`.
        metrics: The metrics to compare; default: the tasks'.
        images: A folder of images to show, captioned by its sub-folders.
        allow_software: As in `build`.

    Returns:
        The report, and its files.

    Raises:
        DataError: No run has finished, runs of an arm are not repeats of each other, or files cannot be written.
        ConfigError: An arm or a metric does not exist.
    """
    arms = [ArmRuns(name, runs) for name, runs in read_arms(work_dir, names).items()]
    _require_results(arms, work_dir)
    folder = Path(work_dir)
    out = Path(out) if out else folder / 'report'
    report = build(
        _with_metrics(arms, metrics) if metrics else arms,
        title or folder.resolve().name,
        baseline,
        allow_software,
        images=_copy_images(Path(images), out / 'images') if images else {},
    )
    return report, write_report(report, out)


def _require_results(arms: Sequence[ArmRuns], work_dir: str | Path) -> None:
    runs = [(arm, run) for arm in arms for run in arm.runs]
    if not any(run.counts for _, run in runs):
        states = '; '.join(f'{arm.name}, seed {run.seed}: {run.outcome}' for arm, run in runs)
        raise DataError(f'no run in {work_dir} has finished, so there is nothing to report: {states}')


def _with_metrics(arms: Sequence[ArmRuns], metrics: Sequence[str]) -> list[ArmRuns]:
    """Choose the metrics to compare, as far as each arm has them."""
    known = {arm.name: {name for run in arm.runs if run.counts for name in run.last['metrics']} for arm in arms}
    every = sorted(set().union(*known.values()))
    unknown = [name for name in metrics if name not in every]
    if unknown:
        raise ConfigError(f'--metric {" ".join(unknown)}: no run has it; there are: {", ".join(every)}')
    return [replace(arm, metrics=tuple(name for name in metrics if name in known[arm.name])) for arm in arms]


def _copy_images(folder: Path, out: Path) -> dict[str, list[Path]]:
    """Copy the images of a folder beside the report, so that this can be moved; return them by caption."""
    copies = {}
    for file in sorted(folder.rglob('*')):
        if file.suffix.lower() not in IMAGE_SUFFIXES:
            continue
        place = file.relative_to(folder)
        copy = out / place
        if copy.resolve() != file.resolve():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        copies.setdefault(' / '.join(place.parts[:-1]) or 'Images', []).append(copy)
    if not copies:
        raise DataError(f'--images {folder}: no png, jpg, svg, webp or gif file there')
    return copies
