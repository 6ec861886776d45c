"""What `make dist` refuses: versions that differ, and a tag of a version that is not ready."""

import shutil
import subprocess

import pytest
import release
from build_dist import build
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


def test_a_tag_is_that_of_the_version_and_the_changelog_has_a_date(root):
    path = root / 'CHANGELOG.md'
    head = path.read_text().partition('## 0.1.0 (')[0]
    path.write_text(f'{head}## 0.1.0 (unreleased)\n')
    assert release.problems(root, 'v0.1.0') == ['CHANGELOG.md: give 0.1.0 its date in the place of "unreleased"']
    path.write_text(f'{head}## 0.1.0 (2027-01-31)\n')
    assert release.problems(root, 'v0.1.0') == []
    assert release.problems(root, '0.1.0') == ['the tag 0.1.0 is not v0.1.0, the version of mmlape/__init__.py']


@pytest.mark.release
def test_two_builds_of_a_commit_are_the_same_bytes(tmp_path):
    """In two clones, of other names and times, as two people would."""
    digests = []
    for source, name in ((ROOT, 'one'), (tmp_path / 'one', 'another')):
        clone = tmp_path / name
        subprocess.run(['git', 'clone', '-q', source, clone], check=True)
        digests.append(build(clone, tmp_path / f'dist-{name}'))
    assert digests[0] == digests[1]
    assert {name.removesuffix('.whl').removesuffix('.tar.gz').partition('-')[0] for name in digests[0]} == {'mmlape'}
    assert len(digests[0]) == 2
