"""A zoo has the weights of runs, and says if a file, or a digit, is another one."""

import json

import pytest
import tiny

pytestmark = pytest.mark.release  # it trains, publishes and tests
ZOO = tiny.ROOT / 'docs' / 'results' / 'zoo.py'


def test_a_zoo_gives_the_recorded_digits_and_notices_another_file(tmp_path):
    config = tiny.write_config(tmp_path, tiny.write_data(tmp_path / 'data'))
    tiny.train(config, tmp_path / 'runs' / 'tiny' / 'seed_1', '--seed', 1)
    tiny.run(ZOO, 'make', tmp_path / 'runs', '--out', tmp_path / 'zoo', cwd=tmp_path)
    (entry,) = json.loads((tmp_path / 'zoo' / 'zoo.json').read_text())
    card = (tmp_path / 'zoo' / 'README.md').read_text()
    assert entry['sha256'] in card and all(f'{value:.2f}' in card for value in entry['metrics'].values())

    printed = tiny.run(ZOO, 'check', tmp_path / 'zoo', cwd=tmp_path)
    assert printed.count(': same') == 1 + len(entry['metrics']) and 'DIFFERS' not in printed

    refused = tiny.run(ZOO, 'make', tmp_path / 'runs', '--out', tmp_path / 'zoo', cwd=tmp_path, status=1)
    assert 'is not empty' in refused

    entry['metrics']['mIoU'] += 0.02
    (tmp_path / 'zoo' / 'zoo.json').write_text(json.dumps([entry]))
    assert 'mIoU' in tiny.run(ZOO, 'check', tmp_path / 'zoo', cwd=tmp_path, status=1).partition('DIFFERS')[0]
    (tmp_path / 'zoo' / entry['file']).write_bytes(b'other')
    assert 'SHA-256' in tiny.run(ZOO, 'check', tmp_path / 'zoo', cwd=tmp_path, status=1).partition('DIFFERS')[0]


def test_records_without_weights_are_left_out_by_name(tmp_path):
    runs = tiny.unpack_records('fashion-mnist-depth-rates', tmp_path)
    printed = tiny.run(ZOO, 'make', runs, '--out', tmp_path / 'zoo', cwd=tmp_path, status=1)
    assert printed.count('no weights beside its record') == 49 and 'no run has weights' in printed
