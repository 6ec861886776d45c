"""What `make dist` refuses: versions that differ, and with a tag, a version that is not ready."""

import shutil

import pytest
import release
from tiny import ROOT

FILES = ('mmlape/__init__.py', 'CITATION.cff', 'CHANGELOG.md')


@pytest.fixture
def root(tmp_path):
    (tmp_path / 'mmlape').mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_versions_of_this_checkout_agree():
    assert release.problems() == []


@pytest.mark.parametrize('name', FILES)
def test_another_version_in_one_place(root, name):
    path = root / name
    path.write_text(path.read_text().replace('0.1.0', '0.2.0'))
    assert len(release.problems(root)) == (2 if name == FILES[0] else 1)


def test_a_tag_is_that_of_the_version_and_the_changelog_has_a_date(root):
    path = root / 'CHANGELOG.md'
    head = path.read_text().partition('## 0.1.0 (')[0]
    path.write_text(f'{head}## 0.1.0 (unreleased)\n')
    assert release.problems(root, 'v0.1.0') == ['CHANGELOG.md: give 0.1.0 its date in the place of "unreleased"']
    path.write_text(f'{head}## 0.1.0 (2027-01-31)\n')
    assert release.problems(root, 'v0.1.0') == []
    assert release.problems(root, '0.1.0') == ['the tag 0.1.0 is not v0.1.0, the version of mmlape/__init__.py']
