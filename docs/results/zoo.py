#!/usr/bin/env python
"""A zoo of the small: the weights behind a table as files for others, and the table's digits from them again.

`python docs/results/zoo.py make WORK_DIR... --out ZOO` publishes the last checkpoint of every run that enters
averages, as `mmlape checkpoint publish` does, with its config, a card and `zoo.json`, which has the SHA-256 of each.
`python docs/results/zoo.py check ZOO` tests each file and compares every metric with what the run has recorded.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mmlape.cli import main as mmlape
from mmlape.files import sha256
from mmlape.lab.runs.run import Run, read_arms
from mmlape.tables import markdown_table, text_table

INDEX = 'zoo.json'
CARD = """# {title}

{count} checkpoints, {size:.1f} MB. Each holds the weights and what rebuilds their model. Loading it runs no code.

{table}

`accuracy/top1` and the like are what the run recorded after its last iteration, in percent.

```bash
mmlape predict {file} IMAGES --out predicted
mmlape test {config} {file}
python docs/results/zoo.py check {folder}      # all of them: SHA-256, and every digit above
```

Licence of the weights: Apache-2.0, as the code. The data they were trained on have licences of their own.
"""


def checkpoint(run: Run) -> Path | None:
    """Return the checkpoint of a run's last evaluation; None if its folder has records alone."""
    last = run.last
    names = [f'epoch_{last.epoch}.pth', f'iter_{last.step}.pth']
    return next((run.folder / name for name in names if (run.folder / name).is_file()), None)


def make(work_dirs: Sequence[str], out: Path) -> list[dict[str, Any]]:
    """Publish the runs of some work dirs into an empty folder; return the entries of the index."""
    if out.is_dir() and any(out.iterdir()):
        sys.exit(f'{out} is not empty: a zoo is made anew, give another --out')
    out.mkdir(parents=True, exist_ok=True)
    entries = []
    for work_dir in work_dirs:
        for arm, runs in read_arms(work_dir).items():
            for run in runs:
                source = checkpoint(run) if run.counts else None
                if source is None:
                    why = 'no weights beside its record' if run.counts else run.outcome
                    print(f'left out: {run.folder}: {why}', file=sys.stderr)
                    continue
                name = f'{Path(work_dir).name}-{arm}' if len(work_dirs) > 1 else arm  # studies share names of arms
                entries.append(_published(name.replace('/', '-'), run, source, out))
    if not entries:
        sys.exit('no run has weights: train them by the command of their page, then call this again')
    (out / INDEX).write_text(json.dumps(entries, indent=1) + '\n', encoding='utf-8')
    (out / 'README.md').write_text(card(entries, out), encoding='utf-8')
    return entries


def _published(arm: str, run: Run, source: Path, out: Path) -> dict[str, Any]:
    """Publish a checkpoint, under a name without the digits of the hash; those are in the index, complete."""
    config = out / 'configs' / f'{arm}.py'
    if not config.is_file():
        (dumped,) = run.folder.glob('*.py')
        config.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(dumped, config)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        if mmlape(['checkpoint', 'publish', str(source), f'{folder}/weights.safetensors', '--quiet']):
            sys.exit(f'{source} cannot be published, see above')
        (written,) = Path(folder).glob('*.safetensors')
        file = out / f'{arm}-seed_{run.seed}.safetensors'
        shutil.move(written, file)
    file.chmod(0o644)
    return dict(
        file=file.name, sha256=sha256(file), bytes=file.stat().st_size, arm=arm, seed=run.seed,
        config=str(config.relative_to(out)), metrics=run.last.metrics, step=run.last.step,
        recorded_with=run.record.mmlape,
    )  # fmt: skip


def card(entries: Sequence[dict[str, Any]], out: Path) -> str:
    """Return the page of a zoo."""
    rows = [
        (entry['file'], entry['seed'], ', '.join(f'{name} {value:.2f}' for name, value in entry['metrics'].items()),
         entry['sha256'])
        for entry in entries
    ]  # fmt: skip
    return CARD.format(
        title=out.name, count=len(entries), size=sum(entry['bytes'] for entry in entries) / 1e6,
        table=markdown_table(text_table(['file', 'seed', 'recorded', 'SHA-256'], rows, text_columns=4)),
        file=entries[0]['file'], config=entries[0]['config'], folder=out.name,
    )  # fmt: skip


def check(zoo: Path) -> bool:
    """Test every file of a zoo; print its digits beside the recorded ones; return whether all agree."""
    entries = json.loads((zoo / INDEX).read_text(encoding='utf-8'))
    found = [row for entry in entries for row in _checked(zoo, entry)]
    for file, name, recorded, again in found:
        print(f'{file}: {name} {recorded}, again {again}: {"same" if recorded == again else "DIFFERS"}')
    means: dict[tuple[str, str], list[float]] = {}
    for entry in entries:
        for name, value in entry['metrics'].items():
            means.setdefault((entry['arm'], name), []).append(value)
    for (arm, name), values in means.items():
        print(f'{arm}: mean {name} {statistics.mean(values):.2f} (n = {len(values)})')
    return all(recorded == again for _, _, recorded, again in found)


def _checked(zoo: Path, entry: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield name of the file, what is compared, the recorded value and the one of now."""
    file = zoo / entry['file']
    digest = sha256(file)
    yield file.name, 'SHA-256', entry['sha256'], digest
    if digest != entry['sha256']:
        return
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / 'metrics.json'
        words = ['test', str(zoo / entry['config']), str(file), '--work-dir', folder, '--out', str(out), '--quiet']
        if mmlape(words):
            sys.exit(f'{file} cannot be tested, see above')
        again = json.loads(out.read_text(encoding='utf-8'))['metrics']
    for name, value in entry['metrics'].items():
        yield file.name, name, f'{value:.2f}', f'{again[name]:.2f}'


def main(argv: Sequence[str] | None = None) -> int:
    """Make or check a zoo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest='action', required=True)
    maker = actions.add_parser('make', help='publish the runs of work dirs')
    maker.add_argument('work_dirs', nargs='+', metavar='WORK_DIR')
    maker.add_argument('--out', type=Path, required=True, metavar='ZOO')
    actions.add_parser('check', help='test every file').add_argument('zoo', type=Path, metavar='ZOO')
    args = parser.parse_args(argv)
    if args.action == 'make':
        entries = make(args.work_dirs, args.out)
        size = sum(entry['bytes'] for entry in entries) / 1e6
        print(f'{args.out}: {len(entries)} checkpoints, {size:.1f} MB')
        return 0
    return 0 if check(args.zoo) else 1


if __name__ == '__main__':
    sys.exit(main())
