"""The page of the study on real features shows what its records give."""

import tarfile

import real_features
from tiny import ROOT


def test_the_table_of_the_page_is_that_of_the_records(tmp_path):
    with tarfile.open(ROOT / 'docs/results/real-features.tar.xz') as archive:
        archive.extractall(tmp_path, filter='data')
    values, memory = real_features.read_runs(tmp_path / 'work_dirs' / 'real-features')
    assert values['linear'].keys() == {501, 502, 503}
    page = (ROOT / 'docs/results/real-features.md').read_text()
    assert real_features.table(values, memory) in page
