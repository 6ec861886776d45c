"""The cost of a report's arms: parameters, FLOPs, memory, time and GPU hours."""

from mmlape.console import clock
from mmlape.experiments.formats import DASH, number
from mmlape.experiments.report.arms import ArmResult
from mmlape.experiments.report.content import Report
from mmlape.experiments.report.tables import Table


def cost_table(report: Report) -> Table:
    """Build the table of every arm's cost."""
    rows = []
    for result in report.results:
        count, entry, seconds = parameters(result), result.known, mean_cost(result, 'train_seconds')
        flops = f'{entry.flops / 1e9:.2f} ({" x ".join(map(str, entry.size))})' if entry and entry.flops else DASH
        rows.append((
            result.name,
            number(count and count / 1e6, '.3f'),
            flops,
            number(mean_cost(result, 'peak_memory_mib'), ',.0f'),
            number(mean_cost(result, 'seconds_per_iter'), '.3f'),
            DASH if seconds is None else clock(seconds),
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


def parameters(result: ArmResult) -> int | None:
    """Return the number of parameters: as a run counted them, else from the metafile."""
    counted = next((run.cost['parameters'] for run in result.counted if run.cost.get('parameters')), None)
    return counted or (result.known.parameters if result.known else None)


def gpu_hours(result: ArmResult) -> float | None:
    """Return the GPU hours of all runs, including those that do not count."""
    known = [run.cost['gpu_hours'] for run in result.arm.runs if run.cost.get('gpu_hours') is not None]
    return sum(known) if known else None


def mean_cost(result: ArmResult, key: str) -> float | None:
    """Return the mean of a cost over the averaged runs; None if none recorded it."""
    recorded = [run.cost[key] for run in result.counted if run.cost.get(key) is not None]
    return sum(recorded) / len(recorded) if recorded else None
