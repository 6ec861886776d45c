"""Records of what was run where: made from results, and shown by two tables."""

import importlib.util
import json

import pytest
from tiny import ROOT

from benchmarks import records
from benchmarks.__main__ import main

JUNIT = (
    '<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10" time="1" '
    'timestamp="2026-11-24T20:00:00+00:00" hostname="secret"><testcase/></testsuite></testsuites>'
)


@pytest.fixture(scope='module')
def tables():
    spec = importlib.util.spec_from_file_location('records_script', ROOT / 'docs' / 'records.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def submitted(tmp_path, name, content, *more):
    folder = tmp_path / 'records'
    assert main(['submit', str(write(tmp_path / name, content)), '--out', str(folder), *more]) == 0
    (record,) = records.read_all(folder)
    return record


def test_tests_are_counted_and_no_host_is_named(tmp_path):
    words = ('--title', 'oldest', '--command', 'tests/floors.sh')
    record = submitted(tmp_path, 'junit.xml', JUNIT, *words)
    assert record['counts'] == dict(passed=4, failed=3, skipped=3)
    assert (record['title'], record['command'], record['date']) == ('oldest', 'tests/floors.sh', '2026-11-24')
    assert {'python', 'torch'} <= set(record['versions']) and 'secret' not in json.dumps(record)


def test_the_pages_show_the_records_of_the_folder(tables):
    found = records.read_all()
    for name, page in tables.PAGES.items():
        assert page.read_text() == tables.filled(name, found), 'run python docs/records.py'
    assert all(f'(records/{record["file"]})' in tables.PAGES['records'].read_text() for record in found)


def test_survivors_of_mutants_are_lines_of_today():
    """A measurement is of one tree; where what it names is gone, it says nothing of the tests."""
    file = ROOT / 'docs' / 'results' / 'mutants.json'
    for change in json.loads(file.read_text())['alive'] if file.is_file() else ():
        path, _, old = change.partition(' -> ')[0].split(':', 2)
        lines = (ROOT / path).read_text().split() if (ROOT / path).is_file() else []
        assert ' '.join(old.split()) in ' '.join(lines), f'{change}: measure anew, or remove {file}'
