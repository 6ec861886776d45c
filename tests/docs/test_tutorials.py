"""Blocks that run on the reader's files; those of tutorials, in an empty folder, are run by the build of the site."""

import itertools
import re
import shutil

import pytest
import tiny
from doc_blocks import ROOT, blocks, script, write_programs

BUILT = re.compile(r'^(<!-- (output|image)\b|file_format: mystnb$)', re.M)
"""A page that the build of the site runs, for its outputs."""
PAGES = [page for page in sorted((ROOT / 'docs').rglob('*.md')) if any(block.runs for block in blocks(page))]
RUN = 'work_dirs/tiny'
STAND_INS = {
    'CONFIG': 'tiny.py', 'CHECKPOINT': f'{RUN}/iter_6.pth', 'FILE': f'{RUN}/iter_6.pth', 'NAME': 'tiny',
    'IMAGE': 'data/images/validation/0.png', 'CONFIG_DEFAULT': 'tiny.py', 'CONFIG_LAPE': RUN,
}  # fmt: skip
"""What the reader's files are on pages that name none."""


def test_the_build_runs_what_starts_in_an_empty_folder():
    left = [page for page in PAGES if page.parent.name != 'how-to' and not BUILT.search(page.read_text())]
    assert not left, f'{left}: show what a block prints, by <!-- output --> behind it'


@pytest.fixture(scope='module')
def checkout(tmp_path_factory):
    """The reader's files, with a run."""
    folder = tmp_path_factory.mktemp('reader') / 'checkout'
    folder.mkdir()
    (folder / 'tools').symlink_to(ROOT / 'tools')
    config = tiny.write_config(folder, tiny.write_data(folder / 'data'))
    tiny.train(config, RUN, '--log-grad-norm')
    return folder


HOW_TO = [page for page in PAGES if page.parent.name == 'how-to']


@pytest.mark.parametrize(
    'page', [pytest.param(one, marks=[pytest.mark.release] * (one.stem == 'analysis'), id=one.stem) for one in HOW_TO]
)
def test_commands_run_on_the_readers_files(checkout, page, tmp_path):
    folder = shutil.copytree(checkout, tmp_path / 'checkout', symlinks=True)
    programs = tmp_path / 'bin'
    programs.mkdir()
    write_programs(programs)
    text, number = script([block for block in blocks(page) if block.runs]), itertools.count()
    text = re.sub(r'\bOUT\b', lambda _: f'out_{next(number)}.pth', text)
    text = re.sub(r'\b[A-Z_]+\b', lambda word: STAND_INS.get(word[0], word[0]), text)
    (programs / 'page.sh').write_text(text.replace('--size 512 512', '--size 64 64'))  # in less time
    tiny.run('bash', programs / 'page.sh', cwd=folder, PATH=f'{programs}:{tiny.environment()["PATH"]}')
