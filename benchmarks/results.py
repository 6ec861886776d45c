"""Lines of results, as they come: printed, and written as ``results.json`` and ``results.md`` after each."""

import time
from collections import Counter
from pathlib import Path

from benchmarks.checks import FAIL, NOT_RUN, PASS
from mmlape.files import write_json


def add(results: dict, line: dict, out: Path) -> None:
    """Add a line, print it, and write the results again."""
    results['lines'].append(line)
    print(
        f'{line["status"]:8}{line["seconds"]:6.1f} s  {line["section"]}: {line["name"]}: {line["figure"]}', flush=True
    )
    write(results, out)


def write(results: dict, out: Path) -> None:
    """Write both files."""
    write_json(out / 'results.json', results)
    (out / 'results.md').write_text(markdown(results), encoding='utf-8')


def summary(results: dict) -> str:
    """Return how many lines have which status."""
    counts = Counter(line['status'] for line in results['lines'])
    return ', '.join(f'{counts[status]} {status}' for status in (PASS, FAIL, NOT_RUN))


def markdown(results: dict) -> str:
    """Return the page of the results: the machine, then a table for each section, what has failed first."""
    machine = results['machine']
    versions = ', '.join(f'{name} {number}' for name, number in results['versions'].items())
    gpu = ', '.join(filter(None, (machine['gpu'] or 'no GPU', machine['gpu_details'])))
    threads = f'{machine["cores"]} cores, {machine["threads"]} threads'
    host = f'{machine["processor"]}, {threads}, {machine["memory_gib"]} GiB'
    text = [
        f'# {machine["gpu"] or "no GPU"}: {summary(results)}',
        '',
        f'- machine: {gpu}; {host}; {machine["system"]}; load at the start {machine["load"]}',
        f'- versions: {versions}',
        f'- command: `{results["command"]}`',
        f'- started {results["started"]}, ended {results["finished"] or "not yet"}',
    ]
    for section in dict.fromkeys(line['section'] for line in results['lines']):
        lines = [line for line in results['lines'] if line['section'] == section]
        lines.sort(key=lambda line: line['status'] != FAIL)
        text += ['', f'## {section}', '', '| check | result | figure | s |', '| --- | --- | --- | ---: |']
        for line in lines:
            cells = ' | '.join(line[key].replace('|', '\\|') for key in ('name', 'status', 'figure'))
            text.append(f'| {cells} | {line["seconds"]:.1f} |')
    return '\n'.join(text) + '\n'


def now() -> str:
    """Return the time, as results have it."""
    return time.strftime('%Y-%m-%dT%H:%M:%S')
