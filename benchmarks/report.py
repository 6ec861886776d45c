"""Results as a Markdown page, and two result files set against each other."""

import json
from pathlib import Path

from benchmarks.timing import ratio
from mmlape.errors import ConfigError
from mmlape.tables import markdown_table, text_table

COLUMNS = (
    'case',
    'work',
    'input',
    'dtype',
    'side',
    'median',
    'MAD',
    'n',
    'items/s',
    'ratio [95 %]',
    'matrix',
    'bandwidth',
)
LEGEND = (
    'Median and MAD (median absolute deviation) of n interleaved rounds. Ratio: median over the median of the first '
    'side, with a bootstrap interval from nine rounds on; below 1 is faster, or smaller. Matrix and bandwidth: the '
    "share of the measured machine's rates above that the work reaches; bytes are those of each PyTorch operation by "
    'itself, so caches and fused kernels can pass 100 %.'
)


def markdown(results: dict) -> str:
    """Return the page of a result file."""
    machine, rates = results['machine'], results['rates']
    versions = ', '.join(f'{name} {number}' for name, number in results['versions'].items())
    where = machine['gpu'] or f'{machine["processor"]}, {machine["threads"]} threads'
    lines = [
        f'# Benchmarks on {where}', '',
        f'- machine: {machine["processor"]}, {machine["cores"]} cores, {machine["memory_gib"]} GiB; '
        f'GPU: {machine["gpu"] or "none"}; {machine["system"]}; load at the start {machine["load"]}',
        f'- versions: {versions}',
        f'- command: `{results["command"]}`',
        f'- started {results["started"]}, {"ended " + results["finished"] if results["finished"] else "not finished"}',
    ]  # fmt: skip
    for name, rate in rates.items():
        matrix, bandwidth = rate['matrix'] / 1e9, rate['bandwidth'] / 1e9
        lines.append(f'- {name}: {matrix:,.0f} GFLOP/s in a matrix product, {bandwidth:,.1f} GB/s in a copy')
    lines += ['', LEGEND]
    for suite in dict.fromkeys(result['suite'] for result in results['results']):
        chosen = [result for result in results['results'] if result['suite'] == suite]
        table = text_table(COLUMNS, [cells for result in chosen for cells in _cells(result)], text_columns=5)
        lines += ['', f'## {suite}', '', markdown_table(table)]
        lines += _remarks(chosen)
    return '\n'.join(lines) + '\n'


def _cells(result: dict) -> list[list[str]]:
    scale, unit = (1e3, 'ms') if result['unit'] == 's' else (1, result['unit'])
    ratios = {found['side']: found for found in result['ratios']}
    rows = []
    for number, side in enumerate(result['sides']):
        head = [result[key] for key in ('case', 'work', 'shape', 'dtype')] if number == 0 else [''] * 4
        found = ratios.get(side['name'])
        rows.append([
            *head, side['name'], f'{side["median"] * scale:.4g} {unit}', f'{side["mad"] * scale:.2g}', side['n'],
            f'{side["items_per_second"]:.4g}' if 'items_per_second' in side else '',
            interval(found) if found else '',
            *(f'{side[key]:.0%}' if key in side else '' for key in ('of_matrix_rate', 'of_bandwidth')),
        ])  # fmt: skip
    return rows


def interval(found: dict) -> str:
    """Return a ratio with its interval, where it has one."""
    text = f'{found["value"]:.3f}'
    return text if found['low'] is None else f'{text} [{found["low"]:.3f}, {found["high"]:.3f}]'


def _remarks(results: list[dict]) -> list[str]:
    """Return the notes below a table, and what could not run."""
    notes: dict[str, list[str]] = {}
    for result in results:
        texts = [result['note'], *(f'{name} did not run: {why}' for name, why in result['failed'].items())]
        for text in filter(None, texts):
            notes.setdefault(text, []).append(result['case'])
    return ['', *(f'- {"; ".join(dict.fromkeys(cases))}: {text}' for text, cases in notes.items())] if notes else []


def read(path: str | Path) -> dict:
    """Read a result file.

    Raises:
        ConfigError: It is not a result file.
    """
    try:
        results = json.loads(Path(path).read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise ConfigError(f'{path} is not a result file of python -m benchmarks: {error!r}') from error
    parts = dict(results=list, machine=dict, versions=dict, options=dict)
    if not isinstance(results, dict) or not all(isinstance(results.get(key), kind) for key, kind in parts.items()):
        raise ConfigError(f'{path} is not a result file of python -m benchmarks: it lacks one of {", ".join(parts)}')
    return results


def compare(first: dict, second: dict) -> tuple[list[dict], list[str]]:
    """Set the second file's medians against the first's, side by side where both measured the same.

    Returns:
        A row per side: ``key``, ``side``, ``first``, ``second``, ``unit`` and the ratio's fields; and what differs
        between the machines, the versions, and the lists of what was measured.
    """
    known = _sides(first)
    rows = []
    for (key, name), (unit, side) in _sides(second).items():
        if (key, name) in known:
            before = known[key, name][1]
            found = ratio(side['samples'], before['samples'], paired=False)
            medians = dict(first=before['median'], second=side['median'], unit=unit)
            rows.append({'key': key, 'side': name, **medians, **found})
    remarks = []
    for part in ('machine', 'versions', 'options'):
        for name in dict.fromkeys([*first[part], *second[part]]):
            values = first[part].get(name), second[part].get(name)
            if values[0] != values[1] and name != 'load':
                remarks.append(f'{part}: {name} {values[0]} -> {values[1]}')
    only = len(known) - len(rows), len(_sides(second)) - len(rows)
    if any(only):
        remarks.append(f'measured in the first file only: {only[0]} sides, in the second only: {only[1]}')
    return rows, remarks


def _sides(results: dict) -> dict[tuple[str, str], tuple[str, dict]]:
    return {
        (result['key'], side['name']): (result['unit'], side)
        for result in results['results']
        for side in result['sides']
    }
