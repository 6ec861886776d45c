"""Write the tables of what was run where: from docs/results/records, and of GPU checks from docs/results/gpu."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.records import read_all  # noqa: E402
from mmlape.console.quiet import printable  # noqa: E402
from mmlape.lab.environment import PACKAGES  # noqa: E402

RESULTS = ROOT / 'docs' / 'results'
PAGES = {
    'records': RESULTS / 'records.md',
    'stacks': ROOT / 'docs' / 'get-started' / 'tested.md',
    'costs': RESULTS / 'gpu.md',
}
ARCHS = {'deit-tiny': 'Ti', 'deit-small': 'S', 'deit-base': 'B'}
COST = re.compile(r'ViT-Adapter, (deit-\w+), (\d+) x 3 x (\d+) x \d+, (\w+): .*, (.*)')
"""A line of the section `cost`: arch, images, their size, dtype and work."""


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


def gpu_checks() -> dict[str, dict]:
    """Return the results of the calls of `gpu_check` by name, without the lines that were not run."""
    return {
        path.stem: json.loads(path.read_text(encoding='utf-8')) for path in sorted((RESULTS / 'gpu').glob('*.json'))
    }


def costs(found: list[dict]) -> list[str]:
    """Return the table of lines of two sides: time, that of the kernels alone, memory."""
    table = heading('call', 'ViT-Adapter', 'work', 'sides', 'time', 'ratio [95 %]', 'kernels alone', 'peak memory')
    for name, one in gpu_checks().items():
        for line in one['lines']:
            named = COST.fullmatch(line['name'])
            if named and len(line['values']) == 2:
                arch, images, size, dtype, work = named.groups()
                (reference, base), (side, other) = line['values'].items()
                head = [name, f'{ARCHS[arch]}, {images} of {size}, {dtype}', work]
                table.append(row([*head, f'{reference} -> {side}', *compared(base, other)]))
    return table


def compared(base: dict, side: dict) -> list[str]:
    """Return time, ratio, time of the kernels and memory of a side beside its reference."""

    def both(key: str, scale: float, digits: int) -> str:
        return f'{scale * base[key]:,.{digits}f} -> {scale * side[key]:,.{digits}f}'

    ratio = side['ratio']
    kernels = f'{both("kernel_seconds", 1e3, 1)} ms, {side["kernel_ratio"]:.3f}' if 'kernel_ratio' in side else ''
    return [
        f'{both("median", 1e3, 1)} ms',
        f'{ratio["value"]:.3f} [{ratio["low"]:.3f}, {ratio["high"]:.3f}]',
        kernels,
        f'{both("memory_mib", 1, 0)} MiB, {side["memory_ratio"]:.4f}',
    ]


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
    table = '\n'.join(dict(records=records, stacks=stacks, costs=costs)[name](found))
    pattern = rf'(<!-- {name}: python docs/records.py -->\n).*?(<!-- end -->)'
    return re.sub(pattern, lambda match: f'{match[1]}\n{table}\n\n{match[2]}', text, flags=re.S)


if __name__ == '__main__':
    for name, page in PAGES.items():
        page.write_text(filled(name, read_all()))
