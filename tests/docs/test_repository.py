"""The link to the repository in the site's header is the page of the checkout's origin."""

import subprocess
import sys

import pytest
from doc_blocks import ROOT

sys.path.append(str(ROOT / 'docs' / '_ext'))
from repository import repository

PAGE = 'https://example.org/group/name'


@pytest.mark.parametrize(
    ('origin', 'page'),
    [
        ('https://example.org/group/name.git', PAGE),
        ('https://example.org/group/name/', PAGE),
        ('https://user:secret@example.org/group/name', PAGE),
        ('git@example.org:group/name.git', PAGE),
        ('ssh://git@example.org:2222/group/name.git', PAGE),
        ('/srv/git/name', ''),
        ('', ''),
    ],
)
def test_the_page_of_an_origin(tmp_path, origin, page):
    subprocess.run(['git', 'init', '-q', tmp_path], check=True)
    if origin:
        subprocess.run(['git', '-C', tmp_path, 'remote', 'add', 'origin', origin], check=True)
    assert repository(tmp_path) == page
