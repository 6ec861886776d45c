"""What was run where: a record is a small JSON file that one person makes and `python docs/records.py` shows.

`python -m benchmarks submit FILE` makes one of the results of a measurement, of `benchmarks.gpu_check` or of pytest.
"""

import argparse
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine
from mmlape.errors import ConfigError
from mmlape.files import read_json, write_json

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / 'docs' / 'results' / 'records'
SCHEMA = 1
MACHINE = ('processor', 'cores', 'memory_gib', 'system', 'gpu')


def parser() -> argparse.ArgumentParser:
    """Return the parser of `submit`."""
    command = argparse.ArgumentParser(
        'python -m benchmarks submit', description='Make the record of what was run on this machine, to be sent to us.'
    )
    add = command.add_argument
    add('file', metavar='FILE', help='results.json of a measurement or a GPU check, or what pytest --junitxml wrote')
    add('--title', metavar='TEXT', help='what was run, in a few words; pytest only')
    add('--command', metavar='TEXT', help='the command that ran the tests; pytest only')
    add('--out', metavar='DIR', default='work_dirs/records', help='the folder of the record; default: %(default)s')
    return command


def submit(argv: Sequence[str]) -> None:
    """Make a record, and say where it goes."""
    args = parser().parse_args(argv)
    record = of_file(Path(args.file), args.title, args.command)
    where = record['machine']['gpu'] or record['machine']['processor'].partition(' (')[0]
    name = '-'.join(re.findall(r'[a-z0-9.]+', f'{record["date"]} {record["title"]} {where}'.lower()))
    path = Path(args.out) / f'{name[:100]}.json'
    write_json(path, record)
    print(
        f'{path}: attach it to an issue (form "A record of a machine"), or add it to docs/results/records in a pull '
        'request. It names the machine, versions and the command, and no users.'
    )


def of_file(path: Path, title: str | None = None, command: str | None = None) -> dict:
    """Return the record of a result file.

    Raises:
        ConfigError: It is none, or the title or the command of tests is missing.
    """
    return _of_tests(path, title, command) if path.suffix == '.xml' else _of_results(path)


def _of_tests(path: Path, title: str | None, command: str | None) -> dict:
    if not title or not command:
        raise ConfigError(f'{path}: the file does not say what ran: give --title and --command')
    try:
        (suite,) = ElementTree.parse(path).getroot().iter('testsuite')
        found = {name: int(suite.attrib[name]) for name in ('tests', 'failures', 'errors', 'skipped')}
        day = suite.attrib['timestamp'][:10]
    except (OSError, ElementTree.ParseError, ValueError, KeyError) as error:
        raise ConfigError(f'{path} is not what pytest --junitxml writes: {error!r}') from error
    failed = found['failures'] + found['errors']
    return {
        'schema': SCHEMA,
        'kind': 'tests',
        'title': title,
        'command': command,
        'date': day,
        'commit': machine.commit(),
        'machine': _chosen(machine.describe('cpu', None)),
        'versions': machine.versions(),
        'counts': {
            'passed': found['tests'] - failed - found['skipped'],
            'failed': failed,
            'skipped': found['skipped'],
        },
        'figures': [],
    }


def _of_results(path: Path) -> dict:
    results = read_json(path)
    try:
        if not results['finished']:
            raise ConfigError(f'{path}: the run was interrupted; run `{results["command"]}` to its end')
        checked = 'benchmarks.gpu_check' in results['command']
        lines = results['lines']
        sections = ' '.join(dict.fromkeys(line['section'] for line in lines))
        return {
            'schema': SCHEMA,
            'kind': 'GPU check' if checked else 'benchmarks',
            'title': 'GPU check' if checked else sections,
            'command': results['command'],
            'date': results['started'][:10],
            'commit': results['commit'],
            'machine': _chosen(results['machine']),
            'versions': results['versions'],
            'counts': dict(Counter(line['status'] for line in lines)),
            'figures': [] if checked else [dict(what=line['name'], figure=line['figure']) for line in lines],
        }
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f'{path} is not results.json of python -m benchmarks or benchmarks.gpu_check: {error!r}'
        ) from error


def _chosen(described: dict) -> dict:
    return {key: described[key] for key in MACHINE}


def read_all(folder: Path = FOLDER) -> list[dict]:
    """Return the records of a folder, the newest first."""
    records = []
    for path in sorted(folder.glob('*.json')):
        records.append({**read_json(path), 'file': path.name})
    return sorted(records, key=lambda record: (record['date'], record['file']), reverse=True)
