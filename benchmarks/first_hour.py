"""From a folder of data to a report, predictions and an ONNX graph, by five commands, four times.

    python -m benchmarks.first_hour --time 6m --out work_dirs/first-hour

The folders are a stranger's: forty images with label maps, boxes in YOLO's form, boxes and masks in COCO's form in
folders of their own names, and a folder for each class. No file is edited. What each command takes is printed, by the
clock and in seconds of a core, and written to ``first_hour.json``; a command that fails ends the script.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mmlape.errors import MMLaPEError
from mmlape.files import write_json
from mmlape.quiet import say
from mmlape.tables import markdown_table, text_table

SCENES = dict(train=60, val=12)


def draw(folder: Path) -> None:
    """Draw the scenes and the digits that the folders are made of."""
    counts = [f'--{split}={count}' for split, count in SCENES.items()]
    options = ['--size', '128', '--digit-size', '40', '48', '--digits', '200', '--quiet']
    subprocess.run([*MMLAPE, 'make-mini-data', str(folder), *counts, *options], check=True)


def label_maps(mini: Path, folder: Path) -> None:
    """Forty images and forty label maps, in two folders."""
    for part, name in (('images', 'photos'), ('annotations', 'masks')):
        (folder / name).mkdir(parents=True)
        for file in sorted((mini / 'ade' / part / 'training').iterdir())[:40]:
            shutil.copy(file, folder / name)


def yolo(mini: Path, folder: Path) -> None:
    """Images, text files and data.yaml, as YOLO has them."""
    for split, source in (('train', 'train2017'), ('val', 'val2017')):
        content = _coco(mini, source)
        numbers = {one['id']: number for number, one in enumerate(content['categories'])}
        for image in content['images']:
            width, height = image['width'], image['height']
            rows = []
            for one in content['annotations']:
                if one['image_id'] == image['id']:
                    x, y, w, h = one['bbox']
                    box = ((x + w / 2) / width, (y + h / 2) / height, w / width, h / height)
                    rows.append(' '.join(map(str, (numbers[one['category_id']], *box))))
            label = folder / 'labels' / split / Path(image['file_name']).with_suffix('.txt')
            label.parent.mkdir(parents=True, exist_ok=True)
            label.write_text('\n'.join(rows) + '\n')
            (folder / 'images' / split).mkdir(parents=True, exist_ok=True)
            shutil.copy(mini / 'coco' / source / image['file_name'], folder / 'images' / split)
    names = json.dumps([one['name'] for one in content['categories']])
    (folder / 'data.yaml').write_text(f'train: images/train\nval: images/val\nnames: {names}\n')


def coco(mini: Path, folder: Path) -> None:
    """Annotations in COCO's form that lie beside the images of each split."""
    for split, source in (('train', 'train2017'), ('valid', 'val2017')):
        shutil.copytree(mini / 'coco' / source, folder / split / 'pictures')
        shutil.copy(_annotations(mini, source), folder / split / 'export.json')


def class_folders(mini: Path, folder: Path) -> None:
    """A folder for each class, without a split."""
    shutil.copytree(mini / 'digits' / 'train', folder)


def _annotations(mini: Path, source: str) -> Path:
    return mini / 'coco' / 'annotations' / f'instances_{source}.json'


def _coco(mini: Path, source: str) -> dict:
    return json.loads(_annotations(mini, source).read_text())


FOLDERS: dict[str, Callable[[Path, Path], None]] = {
    'maps': label_maps,
    'yolo': yolo,
    'coco': coco,
    'classes': class_folders,
}
IMAGES = dict(maps='photos', yolo='images/val', coco='valid/pictures', classes='')
"""The images of each folder that are predicted."""
MMLAPE = (sys.executable, '-m', 'mmlape')


def five_commands(name: str, length: list[str], model: str) -> list[list[str]]:
    """Return the commands for a folder, which lies in the working directory."""
    run = f'work_dirs/{name}'
    return [
        ['new', name, '--model', model, *length],
        ['train', f'{name}.py'],
        ['report', run],
        ['predict', run, f'{name}/{IMAGES[name]}'.rstrip('/'), '--out', f'{name}_predicted'],
        ['export-onnx', run],
    ]


def measure(command: list[str], folder: Path, log: Path) -> tuple[float, float]:
    """Run a command; return its seconds by the clock, and of the cores.

    Raises:
        MMLaPEError: It failed; the message has its last line.
    """
    before, started = os.times(), time.monotonic()
    with log.open('a') as file:
        done = subprocess.run([*MMLAPE, *command], cwd=folder, stdout=file, stderr=subprocess.STDOUT, check=False)
    after = os.times()
    if done.returncode:
        last = log.read_text().strip().rpartition('\n')[2]
        raise MMLaPEError(f'mmlape {" ".join(command)} ended with status {done.returncode}: {last}')
    cores = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - started, cores


def outcome(name: str, folder: Path) -> dict[str, str]:
    """Return the three things that a stranger wants, by what they are.

    Raises:
        MMLaPEError: One is not there.
    """
    found = dict(
        report=folder / 'work_dirs' / name / 'report' / 'index.html',
        predictions=folder / f'{name}_predicted',
        graph=folder / 'work_dirs' / name / 'onnx' / 'model.onnx',
    )
    absent = [what for what, path in found.items() if not path.exists()]
    if absent:
        raise MMLaPEError(f'{name}: no {", ".join(absent)} in {folder}')
    return {what: str(path.relative_to(folder)) for what, path in found.items()}


def main() -> None:
    """Run the commands of each folder, and print what they took."""
    parser = argparse.ArgumentParser('python -m benchmarks.first_hour', description=__doc__.partition('\n')[0])
    parser.add_argument('--only', nargs='+', choices=FOLDERS, default=list(FOLDERS), metavar='FOLDER')
    parser.add_argument('--model', default='mini', help='of `mmlape new`; default: %(default)s')
    length = parser.add_mutually_exclusive_group()
    length.add_argument('--time', default='6m', help='of training, for `mmlape new`; default: %(default)s')
    length.add_argument('--iters', help='of training instead')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/first-hour'), metavar='DIR')
    args = parser.parse_args()
    if args.out.exists():
        raise SystemExit(f'{args.out} exists: remove it, or give another --out')
    args.out.mkdir(parents=True)
    args.out = args.out.resolve()
    mini = args.out / 'mini'
    draw(mini)
    words = ['--iters', args.iters] if args.iters else ['--time', args.time]
    took: dict[str, dict] = {}
    rows = []
    for name in args.only:
        FOLDERS[name](mini, args.out / name)
        seconds = {}
        for command in five_commands(name, words, args.model):
            seconds[command[0]] = measure(command, args.out, args.out / f'{name}.log')
            say(f'{name}: mmlape {" ".join(command)}: {seconds[command[0]][0]:.0f} s', flush=True)
        total = tuple(map(sum, zip(*seconds.values())))
        cells = (f'{clock:.0f} ({cores:.0f})' for clock, cores in (*seconds.values(), total))
        rows.append((name, *cells))
        took[name] = dict(seconds=seconds, total=total, **outcome(name, args.out))
        write_json(args.out / 'first_hour.json', took)
    print(markdown_table(text_table(('folder', *seconds, 'all'), rows)))


if __name__ == '__main__':
    main()
