"""The provenance of a report's numbers: configs, checkpoints, code, machines and settings of the averaged runs."""

from collections.abc import Sequence

from mmlape.experiments.formats import DASH
from mmlape.experiments.report.content import Report
from mmlape.experiments.report.tables import Table
from mmlape.runs.run import Run
from mmlape.runs.settings import named_differences


def provenance_table(report: Report) -> Table:
    """Build the table of what each arm was trained from, with and on."""
    rows = []
    for result in report.results:
        identity, record = result.identity, result.first.record if result.first else {}
        code, checkpoint = identity.get('code') or {}, identity.get('checkpoint') or {}
        config = str(record.get('config') or '').rpartition('/')[2].removesuffix('.py')
        rows.append((
            result.name,
            f'{config} {_short(identity.get("config"))}'.strip(),
            ', '.join(map(str, result.summary['seeds'])) or DASH,
            _batch(record),
            identity.get('batch_policy') or DASH,
            (identity.get('amp') or 'fp32') if identity else DASH,
            f'{checkpoint["name"]} {_short(checkpoint.get("sha256"))}'.strip() if checkpoint else DASH,
            ' '.join(filter(None, (code.get('version'), _short(code.get('source')), _commit(code)))) or DASH,
            _all(result.counted, 'host'),
            _all(result.counted, 'device'),
        ))  # fmt: skip
    columns = (
        'arm', 'config', 'seeds', 'total batch', 'batch policy', 'precision', 'starts from',
        'mmlape', 'host', 'device',
    )  # fmt: skip
    return Table(columns, rows, len(columns))


def _batch(record: dict) -> str:
    if record.get('total_batch') is None:
        return DASH
    keys = ('world_size', 'images_per_process', 'accumulation')
    factors = ' x '.join(str(record[key]) for key in keys if record.get(key) is not None)
    return f'{factors} = {record["total_batch"]}' if factors else str(record['total_batch'])


def _short(digest: str | None) -> str:
    return (digest or '')[:10]


def _commit(code: dict) -> str:
    return f'(commit {code["commit"][:9]})' if code.get('commit') else ''


def _all(runs: Sequence[Run], key: str) -> str:
    return ', '.join(dict.fromkeys(str(run.record[key]) for run in runs if run.record.get(key))) or DASH


def stacks(report: Report) -> list[str]:
    """Return the versions that the arms ran with, a line for each set of versions."""
    found: dict[str, list[str]] = {}
    for result in report.results:
        if result.identity.get('stack'):
            versions = ', '.join(f'{name} {version}' for name, version in result.identity['stack'].items())
            found.setdefault(versions, []).append(result.name)
    return [f'{versions} ({", ".join(names)})' if len(found) > 1 else versions for versions, names in found.items()]


def setting_lines(report: Report) -> list[str]:
    """Return the settings in which each arm differs from its baseline, a line for each pair."""
    lines = []
    for arm, other in report.pairs:
        settings = [result.identity.get('settings') for result in (other, arm)]
        if all(settings):
            named = [line.replace(' -> ', ' → ') for line in named_differences(*settings)]
            lines.append(f'{other.name} → {arm.name}: {"; ".join(named) or "the same settings"}')
    return lines
