"""The tutorials, and other blocks that run, as a newcomer follows them: in order, in an empty folder."""

import itertools
import re

import pytest
import tiny
from doc_blocks import ROOT, blocks, script, write_programs

BUILT = re.compile(r'^(<!-- (output|image)\b|file_format: mystnb$)', re.M)
"""A page that the build of the site runs, for its outputs."""
PAGES = [
    page
    for page in sorted((ROOT / 'docs').rglob('*.md'))
    if not BUILT.search(page.read_text()) and any(block.runs for block in blocks(page))
]
RUN = 'work_dirs/tiny'
STAND_INS = {
    'CONFIG': 'tiny.py', 'CHECKPOINT': f'{RUN}/iter_6.pth', 'FILE': f'{RUN}/iter_6.pth', 'NAME': 'tiny',
    'IMAGE': 'data/images/validation/0.png', 'CONFIG_DEFAULT': 'tiny.py', 'CONFIG_LAPE': RUN,
}  # fmt: skip
"""What the reader's files are on pages that name none."""


@pytest.fixture
def programs(tmp_path):
    """A folder with `mmlape` and `python`, whose calls are forks."""
    folder = tmp_path / 'bin'
    folder.mkdir()
    write_programs(folder)
    return folder


@pytest.mark.parametrize('page', [page for page in PAGES if page.parent.name != 'how-to'], ids=lambda page: page.stem)
def test_a_page_runs_in_an_empty_folder(page, programs):
    run(page, programs, programs.parent / 'empty')


@pytest.mark.parametrize('page', [page for page in PAGES if page.parent.name == 'how-to'], ids=lambda page: page.stem)
def test_commands_run_on_the_readers_files(page, programs):
    folder = programs.parent / 'checkout'
    folder.mkdir()
    (folder / 'tools').symlink_to(ROOT / 'tools')
    config = tiny.write_config(folder, tiny.write_data(folder / 'data'))
    tiny.train(config, RUN, '--log-grad-norm')
    run(page, programs, folder)


def run(page, programs, folder):
    """Run the blocks of a page in that folder."""
    folder.mkdir(exist_ok=True)
    text, number = script([block for block in blocks(page) if block.runs]), itertools.count()
    if page.parent.name == 'how-to':
        text = re.sub(r'\bOUT\b', lambda _: f'out_{next(number)}.pth', text)
        text = re.sub(r'\b[A-Z_]+\b', lambda word: STAND_INS.get(word[0], word[0]), text)
    (programs / 'page.sh').write_text(text)
    tiny.run('bash', programs / 'page.sh', cwd=folder, PATH=f'{programs}:{tiny.environment()["PATH"]}')
