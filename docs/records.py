"""Write the tables of what was run where, from the records in docs/results/records."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.records import read_all  # noqa: E402
from mmlape.environment.packages import PACKAGES  # noqa: E402
from mmlape.quiet import printable  # noqa: E402

PAGES = {'records': ROOT / 'docs' / 'results' / 'records.md', 'stacks': ROOT / 'docs' / 'get-started' / 'tested.md'}


def records(found: list[dict]) -> list[str]:
    """Return the table of all records."""
    lines = heading('date', 'what', 'on', 'versions', 'commit', 'command', 'result')
    for record in found:
        where = record['machine']
        on = f'{where["gpu"] or where["processor"]}, {where["cores"]} cores, {where["memory_gib"]:.0f} GiB'
        chosen = ('python', 'torch', 'timm')
        versions = ', '.join(f'{name} {record["versions"][name]}' for name in chosen if name in record['versions'])
        commit = record['commit'][:9] + ('+' if record['commit'].endswith('+') else '')
        what = f'{record["kind"]}: {record["title"]}'
        shown = [f'[{record["date"]}](records/{record["file"]})', *map(cell, (what, on, versions, commit))]
        lines.append(row([*shown, code(record['command']), counts(record)]))
    return lines


def stacks(found: list[dict]) -> list[str]:
    """Return the table of the latest tests of each stack."""
    latest: dict[str, dict] = {}
    for record in found:
        if record['kind'] == 'tests':
            latest.setdefault(record['title'], record)
    modules = ('torch', 'torchvision', 'mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain', 'timm')
    lines = heading('stack', 'python', *modules, 'command', 'date', 'result')
    for title, record in latest.items():
        installed = record['versions']
        numbers = [installed.get('python', '')]
        for module in modules:
            names = PACKAGES[module].distributions
            numbers.append(next((installed[name] for name in names if name in installed), 'none'))
        shown = [*map(cell, (title, *numbers)), code(record['command']), record['date'], counts(record)]
        lines.append(row(shown))
    return lines


def heading(*names: str) -> list[str]:
    """Return the first two lines of a table."""
    return [row(names), row(['---'] * len(names))]


def row(cells: Sequence[str]) -> str:
    """Return a line of a table."""
    return f'| {" | ".join(cells)} |'


def counts(record: dict) -> str:
    """Return '355 passed, 0 failed'."""
    return cell(', '.join(f'{number} {name}' for name, number in record['counts'].items()))


def cell(text: str) -> str:
    """Return a text from a record as a cell of a table."""
    return re.sub(r'([|<`*_\[\\])', r'\\\1', printable(text).replace('\n', ' '))


def code(text: str) -> str:
    """Return a command as a cell of a table."""
    return f'`{printable(text).replace("`", "").replace("|", chr(92) + "|")}`'


def filled(name: str, found: list[dict]) -> str:
    """Return the text of a page with its table."""
    text = PAGES[name].read_text()
    table = '\n'.join(dict(records=records, stacks=stacks)[name](found))
    pattern = rf'(<!-- {name}: python docs/records.py -->\n).*?(\n<!-- end -->)'
    return re.sub(pattern, lambda match: f'{match[1]}\n{table}\n{match[2]}', text, flags=re.S)


if __name__ == '__main__':
    for name, page in PAGES.items():
        page.write_text(filled(name, read_all()))
