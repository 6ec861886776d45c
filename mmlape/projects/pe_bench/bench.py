"""Train a user's encoding beside ours as the study of larger canvases does, and evaluate all of them on canvases.

Arms, data, settings, seeds and canvases are those of ``studies/mini-sizes.yml``; runs are those of
`mmlape multi-seed`, canvases and the report those of `mmlape size-sweep`.
"""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mmlape.commands import COMMANDS, fill_parser
from mmlape.errors import ConfigError
from mmlape.files import write_text
from mmlape.lab.engine.config import load_config
from mmlape.lab.experiments.launchers import LocalLauncher
from mmlape.lab.experiments.multi_seed import run_study
from mmlape.lab.experiments.planning import Arm, Study, choose, read_arms
from mmlape.lab.studies.study_file import check_arm_name
from mmlape.weights.plain_config import write_plain

STUDY = 'mmlape::studies/mini-sizes.yml'
BASE = 'default'
"""The arm that a user's is made of."""


@dataclass(frozen=True)
class Protocol:
    """How much is run."""

    ours: Sequence[str]  # the arms beside a user's
    seeds: int  # of the study's, the first ones
    scales: Sequence[float]
    options: Sequence[str] = ()  # changes of every arm
    data: str = 'data/mini-sizes'
    data_options: str = ''  # behind the study's own


FULL = Protocol(('default', 'lape', 'none', 'cpe', 'rope'), 5, (1.5, 2.0))
QUICK = Protocol(
    ('default', 'cpe'),
    3,
    (2.0,),
    ('train_cfg.max_iters=150', 'train_cfg.val_interval=150'),
    'data/mini-sizes-quick',
    '--train 600 --val 40',
)
"""For a first look: a fourth of the length, three seeds, two of our arms."""


def run_bench(file: str, kind: str, work_dir: Path, protocol: Protocol, dry_run: bool) -> int:
    """Train what is not trained, evaluate the canvases, and write the report of them.

    Args:
        file: The user's file, which is imported.
        kind: The name of its encoding, which the report compares ours with.
        work_dir: Of runs and report.
        protocol: How much is run.
        dry_run: Print the plan only.

    Returns:
        1 if a run does not count, else 0.

    Raises:
        ConfigError: If the arm's name cannot be one.
    """
    if not dry_run:
        _make_data(protocol)
    arms, seeds = bench_arms(file, kind, protocol, work_dir)
    study = Study(arms, seeds, str(work_dir / 'runs'), 1, [])
    status = run_study(study, LocalLauncher(1, None, per_gpu=None), dry_run)
    if dry_run or status:
        return status
    words = [study.work_dir, '--scales', *map(str, protocol.scales), '--out', str(work_dir / 'canvases')]
    return _command('size-sweep', [*words, '--baseline', kind, '--arms', *(arm.name for arm in arms)])


def bench_arms(file: str, kind: str, protocol: Protocol, work_dir: Path) -> tuple[list[Arm], tuple[int, ...]]:
    """Return the arms, the user's first, and their seeds.

    The config of the user's is written into the work dir: the default's of the study, with another
    encoding and the import of the file.

    Raises:
        ConfigError: If the kind's name cannot be that of an arm.
    """
    check_arm_name(kind)
    arms, seeds, _ = read_arms([STUDY], _options(protocol))
    if kind in {arm.name for arm in arms}:
        raise ConfigError(f'{file}: {kind!r} is the name of an arm of the study: choose another')
    default, *_ = choose(arms, [BASE])
    cfg = load_config(default.config, list(default.cfg_options))
    cfg.model.backbone.pe_type = kind
    cfg.custom_imports = dict(imports=['mmlape', Path(file).stem], allow_failed_imports=False)
    path = write_text(work_dir / f'{kind}.py', write_plain(cfg.to_dict()))
    return [Arm(kind, str(path)), *choose(arms, protocol.ours)], tuple(seeds[: protocol.seeds])


def _options(protocol: Protocol) -> list[str]:
    if protocol.data == FULL.data:
        return list(protocol.options)
    loaders = ('train_dataloader', 'val_dataloader', 'test_dataloader')
    roots = [f'{loader}.dataset.data_root={protocol.data}/ade/' for loader in loaders]
    return [*protocol.options, *roots]


def _make_data(protocol: Protocol) -> None:
    """Draw the study's scenes, unless they are there."""
    if (Path(protocol.data) / 'ade').is_dir():
        return
    options = load_config(f'{STUDY}:{BASE}').mini_data_options
    words = [protocol.data, *shlex.split(options), *shlex.split(protocol.data_options)]
    _command('make-mini-data', words)


def _command(name: str, words: Sequence[str]) -> int:
    """Run another command, as `mmlape NAME WORDS`."""
    if name not in COMMANDS:
        raise ConfigError(f'pe-bench needs the command {name}, which this installation lacks')
    args = fill_parser(argparse.ArgumentParser(f'mmlape {name}'), name).parse_args(list(words))
    return COMMANDS[name].module.run(args) or 0
