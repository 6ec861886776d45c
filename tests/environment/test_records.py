"""Records of what was run where: made from results, checked key by key, and shown by two tables."""

import importlib.util
import json

import pytest
from tiny import ROOT

from benchmarks import records
from benchmarks.__main__ import main
from benchmarks.checks import Options, line_of, recipes
from mmlape.errors import ConfigError

JUNIT = (
    '<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10" time="1" '
    'timestamp="2026-11-24T20:00:00+00:00" hostname="secret"><testcase/></testsuite></testsuites>'
)
MACHINE = dict(processor='AMD EPYC (cpu family 26)', cores=2, memory_gib=7.7, system='Linux', gpu=None, load=9.0)
CHECKED = dict(
    command='python -m benchmarks.gpu_check', started='2026-11-24T20:00:00', finished='2026-11-24T20:09:00',
    machine=dict(MACHINE, gpu='NVIDIA H100'), versions=dict(python='3.12.1', torch='2.15.0'),
    commit='0123', lines=[dict(status=one, section='cost') for one in ('PASS', 'FAIL', 'PASS', 'NOT RUN')],
)  # fmt: skip
LINE = dict(section='joining', name='a', status='PASS', figure='default 1 ms')
MEASURED = dict(CHECKED, machine=MACHINE, command='python -m benchmarks joining', lines=[LINE])


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


def test_measurements_keep_their_figures(tmp_path):
    record = submitted(tmp_path, 'results.json', MEASURED)
    assert record['figures'] == [dict(what='a', figure='default 1 ms')]
    assert (record['kind'], record['title'], record['counts']) == ('benchmarks', 'joining', dict(PASS=1))
    assert set(record['machine']) == set(records.MACHINE)


def test_a_gpu_check_is_counted_by_status(tmp_path):
    record = submitted(tmp_path, 'results.json', CHECKED)
    assert record['counts'] == {'PASS': 2, 'FAIL': 1, 'NOT RUN': 1} and record['file'].endswith('nvidia-h100.json')


@pytest.mark.parametrize(
    ('name', 'content', 'message'),
    [
        ('none.json', None, 'none.json is not results.json'),
        ('a.json', '{', 'a.json is not results.json'),
        ('a.json', {}, 'a.json is not results.json'),
        ('a.json', dict(CHECKED, finished=None), 'the run was interrupted; run `python -m benchmarks.gpu_check`'),
        ('a.json', dict(CHECKED, machine={}), "a.json is not results.json .*KeyError\\('processor'\\)"),
        ('a.xml', '<x', 'a.xml is not what pytest --junitxml writes'),
        ('a.xml', '<x/>', 'a.xml is not what pytest --junitxml writes'),
    ],
)
def test_another_file_is_one_line(tmp_path, name, content, message):
    path = tmp_path / name if content is None else write(tmp_path / name, content)
    with pytest.raises(ConfigError, match=message) as caught:
        records.of_file(path, 'title', 'command')
    assert '\n' not in str(caught.value)


def test_a_record_has_the_fields_of_the_schema(tmp_path):
    record = records.of_file(write(tmp_path / 'results.json', MEASURED))
    for change, message in (
        (dict(schema=2), 'schema=2 is not 1'),
        (dict(kind=None), 'kind=None has the wrong type'),
        (dict(extra=1), 'extra is unknown'),
        (dict(machine={}), 'machine: processor is missing'),
    ):
        with pytest.raises(ConfigError, match=f'^r.json: {message}'):
            records.check(record | change, 'r.json')


def test_the_pages_show_the_records_of_the_folder(tables):
    found = records.read_all()
    for name, page in tables.PAGES.items():
        assert page.read_text() == tables.filled(name, found), 'run python docs/records.py'
    assert all(f'(records/{record["file"]})' in tables.PAGES['records'].read_text() for record in found)


def test_the_catalogue_has_what_recipes_cost_on_each_card(tables, monkeypatch):
    monkeypatch.setattr(recipes, '_iterations', lambda *_: ([0.5, 0.25, 9.0], 2048.0))
    measured = [dict(line_of(check), section='recipes') for check in recipes.checks(Options('cuda'))[:3]]
    checked = {str(i): dict(machine=dict(gpu='GPU'), lines=measured) for i in range(2)}
    monkeypatch.setattr(tables, 'gpu_checks', dict)
    assert tables.recipes([]) == ['Not run on a GPU yet: `make gpu-run` measures it.']
    monkeypatch.setattr(tables, 'gpu_checks', lambda: checked)
    _, _, coco, upernet, segmenter = tables.recipes([])  # one row each, though measured twice
    assert '| default | GPU | 2 | 0.500 s | 2,048 MiB | 527,724 | 73.3 h on 4 cards |' in coco
    assert '| 160,000 | 22.2 h on 4 cards |' in upernet and 'segmenter_deit-tiny_4xb2' in segmenter
