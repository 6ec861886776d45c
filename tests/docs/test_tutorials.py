"""The tutorials, and other pages with blocks that run, as a newcomer follows them: in order, in an empty folder."""

import pytest
import tiny
from doc_blocks import ROOT, blocks, script

PAGES = [page for page in sorted((ROOT / 'docs').rglob('*.md')) if any(block.runs for block in blocks(page))]


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.stem)
def test_a_page_runs_as_it_stands(page, tmp_path):
    run(page, tmp_path)


def run(page, folder):
    """Run the blocks of a page in that folder; commands are forks."""
    environment = tiny.environment()
    programs = folder.parent / 'bin'
    programs.mkdir(exist_ok=True)
    for name, call in (('python', ''), ('mmlape', ' -m mmlape')):
        (programs / name).write_text(f'#!/bin/sh\nexec {environment["PYTHON"]}{call} "$@"\n')
        (programs / name).chmod(0o755)
    text = script([block for block in blocks(page) if block.runs])
    (folder.parent / 'page.sh').write_text(text)
    path = f'{programs}:{environment["PATH"]}'
    return tiny.run('bash', folder.parent / 'page.sh', cwd=folder, PATH=path)
