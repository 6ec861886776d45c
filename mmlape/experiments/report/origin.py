"""What the runs of a report cost, and what they are runs of, as tables of text."""

from collections.abc import Sequence

from mmlape.experiments.report.arms import Result
from mmlape.experiments.report.content import Report
from mmlape.experiments.report.tables import DASH, Table, number
from mmlape.runs.settings import named_differences


def cost_table(report: Report) -> Table:
    """Parameters, FLOPs, memory, time and GPU hours of every arm."""
    rows = []
    for result in report.results:
        size = ' x '.join(map(str, result.known.size)) if result.known else ''
        flops = result.known.flops if result.known else None
        rows.append((
            result.name,
            _millions(parameters(result)),
            DASH if flops is None else f'{flops / 1e9:.2f} ({size})',
            _shown(mean_cost(result, 'peak_memory_mib'), ',.0f'),
            _shown(mean_cost(result, 'seconds_per_iter'), '.3f'),
            _clock(mean_cost(result, 'train_seconds')),
            number(gpu_hours(result)),
        ))  # fmt: skip
    runs = [run for result in report.results for run in result.counted]
    kinds = ' or '.join(dict.fromkeys(run.cost['memory_kind'] for run in runs if run.cost.get('memory_kind')))
    columns = (
        'arm',
        'parameters (M)',
        'GFLOPs (one image)',
        f'peak memory (MiB{", " + kinds if kinds else ""})',
        's / iteration',
        'a run (h:mm:ss)',
        'GPU hours, all runs',
    )
    return Table(columns, rows)


def parameters(result: Result) -> int | None:
    """How many parameters a run counted, or else the metafile has."""
    counted = next((run.cost['parameters'] for run in result.counted if run.cost.get('parameters')), None)
    return counted or (result.known.parameters if result.known else None)


def gpu_hours(result: Result) -> float | None:
    """The GPU hours of all runs, those that do not count included: they were spent."""
    known = [run.cost['gpu_hours'] for run in result.arm.runs if run.cost.get('gpu_hours') is not None]
    return sum(known) if known else None


def mean_cost(result: Result, key: str) -> float | None:
    """The mean of a cost over the averaged runs; None if none recorded it."""
    recorded = [run.cost[key] for run in result.counted if run.cost.get(key) is not None]
    return sum(recorded) / len(recorded) if recorded else None


def _shown(value: float | None, form: str) -> str:
    return DASH if value is None else f'{value:{form}}'


def _clock(seconds: float | None) -> str:
    """Hours, minutes and seconds; hours go beyond a day."""
    if seconds is None:
        return DASH
    minutes, rest = divmod(round(seconds), 60)
    return f'{minutes // 60}:{minutes % 60:02}:{rest:02}'


def _millions(count: int | None) -> str:
    return DASH if count is None else f'{count / 1e6:.3f}'


def origin_table(report: Report) -> Table:
    """What the averaged runs of each arm are runs of."""
    rows = []
    for result in report.results:
        identity, runs = result.identity, result.counted
        code, checkpoint = identity.get('code') or {}, identity.get('checkpoint') or {}
        rows.append((
            result.name,
            f'{_config(result)} {_short(identity.get("config"))}'.strip(),
            ', '.join(map(str, result.summary['seeds'])) or DASH,
            _batch(runs[0].record) if runs else DASH,
            identity.get('batch_policy') or DASH,
            (identity.get('amp') or 'fp32') if identity else DASH,
            f'{checkpoint["name"]} {_short(checkpoint.get("sha256"))}'.strip() if checkpoint else DASH,
            ' '.join(filter(None, (code.get('version'), _short(code.get('source')), _commit(code)))) or DASH,
            _all(runs, 'host'),
            _all(runs, 'device'),
        ))  # fmt: skip
    columns = ('arm', 'config', 'seeds', 'total batch', 'batch policy', 'precision', 'starts from')
    return Table((*columns, 'mmlape', 'host', 'device'), rows, len(columns) + 3)


def _config(result: Result) -> str:
    path = str(result.counted[0].record.get('config') or '') if result.counted else ''
    return path.rpartition('/')[2].removesuffix('.py')


def _batch(record: dict) -> str:
    keys = ('world_size', 'images_per_process', 'accumulation')
    if record.get('total_batch') is None:
        return DASH
    factors = ' x '.join(str(record[key]) for key in keys if record.get(key) is not None)
    return f'{factors} = {record["total_batch"]}' if factors else str(record['total_batch'])


def _short(digest: str | None) -> str:
    return (digest or '')[:10]


def _commit(code: dict) -> str:
    return f'(commit {code["commit"][:9]})' if code.get('commit') else ''


def _all(runs: Sequence, key: str) -> str:
    return ', '.join(dict.fromkeys(str(run.record[key]) for run in runs if run.record.get(key))) or DASH


def stacks(report: Report) -> list[str]:
    """The versions that the arms ran with, a line for each set of versions."""
    found: dict[str, list[str]] = {}
    for result in report.results:
        if result.identity.get('stack'):
            versions = ', '.join(f'{name} {version}' for name, version in result.identity['stack'].items())
            found.setdefault(versions, []).append(result.name)
    return [f'{versions} ({", ".join(names)})' if len(found) > 1 else versions for versions, names in found.items()]


def setting_lines(report: Report) -> list[str]:
    """In which settings an arm differs from its baseline."""
    lines = []
    for arm, other in report.pairs:
        settings = [result.identity.get('settings') for result in (other, arm)]
        if all(settings):
            named = [line.replace(' -> ', ' → ') for line in named_differences(*settings)]
            lines.append(f'{other.name} → {arm.name}: {"; ".join(named) or "the same settings"}')
    return lines
