"""Train a user's encoding beside ours as the study of larger canvases does, and write a card.

Arms, data, settings, seeds and canvases are those of ``studies/mini-sizes.yml``; runs are those of
`mmlape multi-seed`, canvases those of `mmlape size-sweep`, intervals and tests those of reports.
"""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mmlape.commands import COMMANDS, fill_parser
from mmlape.console import clock
from mmlape.errors import ConfigError, DataError
from mmlape.files import read_json, write_json, write_text
from mmlape.lab.engine.config import load_config
from mmlape.lab.experiments.launchers import LocalLauncher
from mmlape.lab.experiments.multi_seed import run_study
from mmlape.lab.experiments.planning import Arm, Study, choose, read_arms
from mmlape.lab.experiments.statistics import Difference, Estimate, estimate, holm, welch
from mmlape.lab.runs.run import read_seeds
from mmlape.lab.studies.study_file import check_arm_name
from mmlape.page import Part, write_page
from mmlape.quiet import say
from mmlape.tables import markdown_table, text_table
from mmlape.weights.plain_config import write_plain

STUDY = 'mmlape::studies/mini-sizes.yml'
OURS = ('default', 'lape', 'none', 'cpe', 'rope')
"""The arms beside a user's."""
BASELINE, METRIC = 'default', 'mIoU'
LARGEST = 2.0


@dataclass(frozen=True)
class Protocol:
    """How much is run."""

    ours: Sequence[str]
    seeds: int  # of the study's, the first ones
    scales: Sequence[float]
    options: Sequence[str] = ()  # changes of every arm
    data: str = 'data/mini-sizes'
    data_options: str = ''  # behind the study's own

    @property
    def is_quick(self) -> bool:
        """Whether it is a first look, not the study's protocol."""
        return bool(self.options)


FULL = Protocol(OURS, 5, (1.5, 2.0))
QUICK = Protocol(
    ('default', 'cpe'),
    3,
    (2.0,),
    ('train_cfg.max_iters=150', 'train_cfg.val_interval=150'),
    'data/mini-sizes-quick',
    '--train 600 --val 40',
)
"""For a first look: a fourth of the length, three seeds, two of our arms."""


@dataclass(frozen=True)
class Card:
    """What came out, by arm and by what was measured."""

    kind: str
    file: str
    is_quick: bool
    means: Mapping[str, Mapping[str, Estimate]]
    differences: Mapping[str, Mapping[str, Difference]]  # of the user's minus each of ours
    seconds: Mapping[str, float]  # of a run


def run_bench(file: str, kind: str, work_dir: Path, protocol: Protocol, dry_run: bool) -> int:
    """Train what is not trained, evaluate the canvases, and write the card.

    Args:
        file: The user's file, which is imported.
        kind: The name of its encoding.
        work_dir: Of runs and card.
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
    sweep = work_dir / 'canvases'
    words = [study.work_dir, '--scales', *map(str, protocol.scales), '--out', sweep]
    words += ['--baseline', BASELINE, '--arms', *(arm.name for arm in arms)]
    status = _command('size-sweep', [str(word) for word in words])
    if status:
        return status
    report = read_json(sweep / 'report.json')
    if report is None:
        raise DataError(f'{sweep / "report.json"} is missing: run the same command again')
    seconds = {arm.name: _seconds(study.folder(arm)) for arm in arms}
    card = card_of(report, file, kind, arms[0].name, protocol, seconds)
    for path in write_card(card, work_dir):
        say(f'wrote {path}')
    return 0


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
    default, *_ = choose(arms, [BASELINE])
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
    options = load_config(f'{STUDY}:{BASELINE}').mini_data_options
    words = [protocol.data, *shlex.split(options), *shlex.split(protocol.data_options)]
    _command('make-mini-data', words)


def _command(name: str, words: Sequence[str]) -> int:
    """Run another command, as `mmlape NAME WORDS`."""
    if name not in COMMANDS:
        raise ConfigError(f'pe-bench needs the command {name}, which this installation lacks')
    args = fill_parser(argparse.ArgumentParser(f'mmlape {name}'), name).parse_args(list(words))
    return COMMANDS[name].module.run(args) or 0


def _seconds(folder: Path) -> float:
    found = [run.cost.train_seconds for run in read_seeds(folder) if run.cost.train_seconds]
    return sum(found) / len(found) if found else 0.0


def card_of(
    report: Mapping, file: str, kind: str, user: str, protocol: Protocol, seconds: Mapping[str, float]
) -> Card:
    """Build the card from the report of the canvases."""
    arms = [user, *protocol.ours]
    values: dict[str, dict[str, list[float]]] = {}
    for arm in arms:
        metrics = report['arms'][arm]['last']['metrics']
        at = {scale: metrics[f'{METRIC} at {scale:g}']['values'] for scale in (1.0, *protocol.scales)}
        for scale, by_seed in at.items():
            values.setdefault(_at(scale), {})[arm] = list(by_seed.values())
        shares = [100 * value / at[1.0][seed] for seed, value in at[LARGEST].items() if at[1.0].get(seed)]
        values.setdefault(KEPT, {})[arm] = shares
    differences = {
        measure: dict(zip(protocol.ours, holm([welch(by_arm[user], by_arm[arm]) for arm in protocol.ours])))
        for measure, by_arm in values.items()
    }
    means = {measure: {arm: estimate(found) for arm, found in by_arm.items()} for measure, by_arm in values.items()}
    return Card(kind, file, protocol.is_quick, means, differences, seconds)


KEPT = f'kept at {LARGEST:g}x, in percent'


def _at(scale: float) -> str:
    return f'{METRIC} at {scale:g}x'


NOTES = (
    'A Segmenter of four layers on scenes of digits on photographs, 64 x 64 pixels; a canvas '
    'of 1.5 or 2 times the side has more objects of the same size. Arms, data and settings are those of '
    'studies/mini-sizes.yml; the learning rate was chosen for the default encoding, for no other.',
    'Means over seeds with 95 % intervals (Student); differences are yours minus ours, by Welch, with p after '
    "Holm's correction over the arms. An interval that holds 0 shows no difference.",
    'A small model on small data: what is better here need not be better in yours.',
)
QUICK_NOTE = (
    'A first look: 150 of 600 iterations, three seeds, fewer scenes. Encodings that are learned slowly look '
    'worse than they are. Run it without --quick before you say anything about it.'
)


def tables(card: Card) -> dict[str, object]:
    """Return the tables of a card by title."""
    arms = list(next(iter(card.means.values())))
    rows = [
        (arm, *(_estimate(by_arm[arm]) for by_arm in card.means.values()), clock(card.seconds[arm])) for arm in arms
    ]
    columns = ('encoding', *card.means, 'time of a run')
    compared = [
        (f'{card.kind} - {arm}', measure, *_difference(found))
        for measure, by_arm in card.differences.items()
        for arm, found in by_arm.items()
    ]
    return {
        'Encodings': text_table(columns, rows),
        'Differences': text_table(('yours - ours', 'of', 'mean', '95 % interval', 'p (Holm)'), compared, 2),
    }


def _estimate(found: Estimate) -> str:
    if found.mean is None:
        return '-'
    interval = '' if found.low is None else f' [{found.low:.1f}, {found.high:.1f}]'
    return f'{found.mean:.1f}{interval}'


def _difference(found: Difference) -> tuple[str, str, str]:
    if found.mean is None:
        return '-', found.note or '', ''
    interval = found.note if found.low is None else f'{found.low:.1f} to {found.high:.1f}'
    return f'{found.mean:+.1f}', interval or '', '' if found.holm is None else f'{found.holm:.2g}'


def write_card(card: Card, folder: Path) -> list[Path]:
    """Write the card as a page, as Markdown and as JSON."""
    title = f'{card.kind} beside our position encodings'
    notes = [*([QUICK_NOTE] if card.is_quick else []), *NOTES]
    found = tables(card)
    sections = {'': [Part('list', notes[:1])]} | {name: [Part('table', table)] for name, table in found.items()}
    sections['What the numbers are of'] = [Part('list', notes)]
    page = write_page(title, sections, [name for name in sections if name], folder / 'index.html')
    parts = [f'# {title}', *(f'- {note}' for note in notes)]
    parts += [f'## {name}\n\n{markdown_table(table)}' for name, table in found.items()]
    markdown = write_text(folder / 'card.md', '\n\n'.join(parts) + '\n')
    write_json(folder / 'card.json', asdict(card))
    return [page, markdown, folder / 'card.json']
