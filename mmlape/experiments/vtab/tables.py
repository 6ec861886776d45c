"""The results as tables: for the terminal, as Markdown, JSON and CSV, with the paper's figures beside ours."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from mmlape.experiments.averages import DASH, interval, moments, number
from mmlape.experiments.report.tables import INTERVAL, mean_std_n
from mmlape.experiments.vtab.protocol import METRIC, Options, SetResult
from mmlape.experiments.vtab.sets import VtabSets
from mmlape.files import atomic_path, write_json
from mmlape.tables import markdown_table, text_table


@dataclass(frozen=True)
class Mean:
    """The mean over the sets of a group, or over all.

    Attributes:
        name: The group, or 'all'.
        sets: The sets that it is over.
        left_out: The sets of the group that it is not over.
        test: The moments over seeds of the mean test accuracy; None without a set.
        paper: The mean of the paper's figures over the same sets; None if one of them has none.
    """

    name: str
    sets: tuple[str, ...]
    left_out: tuple[str, ...]
    test: dict | None
    paper: float | None

    @property
    def title(self) -> str:
        """Its name, and over how many sets: 'natural, 6 of 7 sets'."""
        return f'{self.name}, {len(self.sets)} of {len(self.sets) + len(self.left_out)} sets'


@dataclass(frozen=True)
class VtabReport:
    """All results.

    Attributes:
        results: Of the sets.
        means: Of the groups, and of all sets.
        model: The study's name of the model; None if the paper has no figures for it.
        paper: The paper's figures by set.
        notes: How they came about, and what is left out, a sentence each.
    """

    results: Sequence[SetResult]
    means: Sequence[Mean]
    model: str | None
    paper: Mapping[str, float]
    notes: Sequence[str]

    @property
    def complete(self) -> bool:
        """Whether every set that was asked for has a result."""
        return all(result.test for result in self.results)


def build_report(results: Sequence[SetResult], options: Options, sets: VtabSets) -> VtabReport:
    """Collect the results.

    Args:
        results: Of the sets.
        options: How they were trained.
        sets: What they are part of.
    """
    paper = {entry.name: entry.figure for entry in sets.sets if entry.figure is not None}
    model, groups = sets.model if paper else None, sets.groups
    values = {result.vtab_set.name: result.test['values'] for result in results if result.test}
    means = [
        _mean(group, [name for name in groups if group in (groups[name], 'all')], values, paper)
        for group in [*dict.fromkeys(groups.values()), 'all']
    ]
    reasons = {result.vtab_set.name: result.reason for result in results if not result.test} | dict(sets.absent)
    left_out = [f'{name} ({reasons.get(name, "not asked for")})' for name in means[-1].left_out]
    rates = ', '.join(f'{rate:g}' for rate in sorted(options.rates))
    seeds = ', '.join(map(str, options.seeds))
    again = '; the chosen rate is trained once more on train800val200' if options.images == 1000 else ''
    notes = [
        f'Test accuracy in percent of the rate with the best mean validation accuracy, among {rates}; seeds {seeds}.',
        f'Trained on the list train800, validated on val200{again}.',
        *[f'{result.vtab_set.name}: {result.reason}.' for result in results if result.test and result.reason],
        *([f'In no mean: {"; ".join(left_out)}.'] if left_out else []),
    ]
    if model:
        notes.append(f"The paper's figures are for {model}, not measured by us; means are over the same sets as ours.")
    return VtabReport(results, means, model, paper, notes)


def _mean(name: str, members: Sequence[str], values: Mapping[str, Mapping], paper: Mapping[str, float]) -> Mean:
    """Average the sets of a group seed by seed, then over the seeds."""
    have = tuple(member for member in members if member in values)
    missing = tuple(member for member in members if member not in values)
    if not have:
        return Mean(name, have, missing, None, None)
    rows = {seed: {METRIC: math.fsum(values[member][seed] for member in have) / len(have)} for seed in values[have[0]]}
    known = all(member in paper for member in have)
    figure = math.fsum(paper[member] for member in have) / len(have) if known else None
    return Mean(name, have, missing, moments(rows)[METRIC], figure)


def results_table(report: VtabReport) -> pd.DataFrame:
    """Build the table: a row a set, then a row a mean."""
    rows = []
    for result in report.results:
        chosen = result.validation.get(result.rate)
        rate, validation = (f'{result.rate:g}', number(chosen['mean'])) if chosen else (DASH, DASH)
        cells = _cells(result.test, report.paper.get(result.vtab_set.name))
        rows.append((result.vtab_set.name, result.vtab_set.group, rate, validation, *cells))
    for mean in report.means:
        rows.append((f'mean of {mean.title}', '', '', '', *_cells(mean.test, mean.paper)))
    columns = ['set', 'group', 'rate', 'validation', 'test: mean ± std (n)', INTERVAL, "paper's", 'difference']
    table = text_table(columns, rows, 2)
    return table.rename(columns={"paper's": f"{report.model}, paper's"}) if report.model else table.iloc[:, :-2]


def _cells(test: Mapping | None, paper: float | None) -> tuple[str, ...]:
    """Return mean with deviation and n, interval, the paper's figure and the difference from it."""
    difference = None if test is None or paper is None else test['mean'] - paper
    return mean_std_n(test), interval(test), number(paper, '.1f'), number(difference, '+.2f')


def write_results(report: VtabReport, options: Options) -> list[Path]:
    """Write ``vtab.md``, ``vtab.json`` and ``vtab.csv`` (an accuracy a row) into the work dir; return their paths."""
    files = [Path(options.work_dir) / f'vtab.{suffix}' for suffix in ('md', 'json', 'csv')]
    with atomic_path(files[0]) as partial:
        notes = '\n'.join(f'- {note}' for note in report.notes)
        partial.write_text(f'# VTAB\n\n{markdown_table(results_table(report))}\n\n{notes}\n', encoding='utf-8')
    write_json(files[1], as_json(report, options))
    with atomic_path(files[2]) as partial:
        columns = ['set', 'group', 'split', 'rate', 'chosen', 'seed', 'accuracy']
        pd.DataFrame(_values(report), columns=columns).to_csv(partial, index=False)
    return files


def as_json(report: VtabReport, options: Options) -> dict:
    """Return the results as JSON: the options, the sets, the means, the notes."""
    return dict(
        rates=sorted(options.rates),
        seeds=list(options.seeds),
        images=options.images,
        model=report.model,
        sets={
            result.vtab_set.name: dict(
                group=result.vtab_set.group,
                config=result.vtab_set.config,
                validation={f'{rate:g}': entry for rate, entry in result.validation.items()},
                rate=result.rate,
                test=result.test,
                paper=report.paper.get(result.vtab_set.name),
                reason=result.reason,
            )
            for result in report.results
        },
        means={mean.name: {key: value for key, value in vars(mean).items() if key != 'name'} for mean in report.means},
        notes=list(report.notes),
    )


def _values(report: VtabReport) -> Iterator[tuple]:
    for result in report.results:
        head = (result.vtab_set.name, result.vtab_set.group)
        for rate, entry in result.validation.items():
            for seed, value in entry['values'].items():
                yield (*head, 'validation', f'{rate:g}', rate == result.rate, seed, value)
        for seed, value in (result.test or {'values': {}})['values'].items():
            yield (*head, 'test', f'{result.rate:g}', True, seed, value)
