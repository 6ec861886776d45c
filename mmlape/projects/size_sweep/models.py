"""The trained models of a sweep: pairs of a config and a checkpoint, and all finished runs of a study."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mmlape.console.quiet import say
from mmlape.errors import CheckpointError, ConfigError, DataError
from mmlape.lab.config.config_file import config_name
from mmlape.lab.inference.trained_model import Trained, open_trained
from mmlape.lab.runs.run import Run, read_arms
from mmlape.lab.studies import is_study, read_study


class Swept(NamedTuple):
    """A trained model of a sweep."""

    arm: str  # models of one arm are its seeds
    name: str  # of its own, and of its folder
    trained: Trained


def read_models(
    items: Sequence[str], cfg_options: Sequence[str] | None = None, patterns: Sequence[str] | None = None
) -> tuple[list[Swept], list[str]]:
    """Read the models that the arguments of ``size-sweep`` name.

    Args:
        items: Studies (``FILE.yml``, whose runs are in ``work_dirs/FILE``), work dirs with runs, and
            configs, each with a checkpoint behind it.
        cfg_options: Changes of every config.
        patterns: Of the arms of studies and work dirs, as shells write them; by default all.

    Returns:
        The models, and the runs that do not count, a line each.

    Raises:
        ConfigError: An item is none of these, or an arm is in two of them.
        CheckpointError: A checkpoint is missing.
        DataError: There are no runs, or none of an arm is finished.
    """
    pairs, models, skipped = [], [], []
    queue = iter(items)
    for item in queue:
        if (folder := _work_dir(item)) is None:
            pairs.append((item, _checkpoint(item, next(queue, None))))
            continue
        for arm, runs in read_arms(folder, patterns).items():
            if any(arm == one.arm for one in models):
                raise ConfigError(f'arm {arm} is in {folder} and in another of the arguments')
            models += _finished(arm, runs, cfg_options)
            skipped += [f'{arm}, seed {one.seed}: {one.outcome}' for one in runs if not one.counts]
    return [*models, *_of_pairs(pairs, cfg_options)], skipped


def _work_dir(item: str) -> Path | None:
    """Return the work dir that an argument names; None if it is a config."""
    if Path(item).is_dir():
        return Path(item)
    if is_study(item) and ':' not in Path(item).name:
        return Path('work_dirs', read_study(item).name)
    return None


def _checkpoint(config: str, file: str | None) -> str:
    if file is None:
        raise ConfigError(
            f'size-sweep takes pairs of CONFIG and CHECKPOINT, studies and work dirs: {config} is '
            'the last one and has no checkpoint'
        )
    if not Path(file).is_file():
        raise CheckpointError(f'checkpoint {file}: no such file')
    return file


def _finished(arm: str, runs: Sequence[Run], cfg_options: Sequence[str] | None) -> Iterator[Swept]:
    counting = [run for run in runs if run.counts]
    if not counting:
        raise DataError(
            f'no run of {arm} is finished ({runs[0].folder}: {runs[0].outcome}): train it, or leave it out with --arms'
        )
    for run in counting:
        run_name = run.folder.name  # seed_N, or that of the arm for a run without seeds
        name = arm if run_name == Path(arm).name else f'{arm}/{run_name}'
        trained = open_trained(run.folder, list(cfg_options or ()))
        say(f'{name}: {trained.chosen}')
        yield Swept(arm, name, trained)


def _of_pairs(pairs: Sequence[tuple[str, str]], cfg_options: Sequence[str] | None) -> Iterator[Swept]:
    models = [open_trained(pair, list(cfg_options or ())) for pair in pairs]
    arms = [config_name(model.config) for model in models]
    for number, (arm, model) in enumerate(zip(arms, models), 1):
        yield Swept(arm, f'{arm} ({number})' if arms.count(arm) > 1 else arm, model)
