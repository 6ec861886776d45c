"""What a user does, by commands on mini data: train, kill and resume, several seeds, test, predict, export.

Each line is a sequence of commands of its own. What is trained on the GPU in bf16 is trained on the cores beside it,
too, and both metrics are said. The data are made once, by the first line that needs them.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import torch

from benchmarks.checks import Check, Found, Options
from benchmarks.checks.training import RECIPES
from mmlape.checkpoint.opening import open_file
from mmlape.lab.runs.schema import read_evaluations, read_record

CHANGES = ('model.backbone.init_cfg=None',)
QUICK = ('--shorten', '0.02')
SHORTER = ('train_cfg.max_iters=4', 'train_cfg.val_interval=2', 'param_scheduler.0.end=2', 'param_scheduler.1.begin=2')
"""The same of `multi-seed`."""
BELOW = 0.7
"""The share of the CPU's metric that the GPU's must have: short runs vary by their roundings."""


def checks(options: Options) -> list[Check]:
    """Return the recipes' lines, then what is done with a run."""
    names = ('Segmenter',) if options.quick else tuple(RECIPES)
    layers = ('--compile', 'layers')
    compiled = [Check('train Segmenter with --compile layers', partial(_train, options, 'Segmenter', *layers))]
    return [
        *(Check(f'train {name} to its end in bf16', partial(_train, options, name)) for name in names),
        *(compiled if options.device == 'cuda' else ()),  # a CPU's compiler takes minutes
        Check('kill -9, resume with --deterministic: bit for bit', partial(_killed, options)),
        Check('three seeds at once on one card', partial(_seeds, options)),
        Check('test, predict and export-onnx of a run', partial(_used, options)),
    ]


def mini_data(options: Options) -> Path:
    """Return the folder of the mini data, made where no other line has."""
    folder = Path(options.scratch) / 'mini'
    with (folder.parent / 'mini.lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            few = ('--train', '12', '--val', '6', '--digits', '60') if options.quick else ()
            command(options, 'make-mini-data', folder, *few)
    return folder


def command(options: Options, *words: object, cpu: bool = False) -> str:
    """Run a command of mmlape and return what it printed.

    Raises:
        RuntimeError: It fails; the message ends with its last lines.
    """
    done = subprocess.run(
        [sys.executable, '-m', 'mmlape', *map(str, words)], env=_environment(options, cpu), text=True,
        cwd=options.scratch, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f'mmlape {words[0]}: {(done.stderr or done.stdout).strip()[-300:]}')
    return done.stdout


def _environment(options: Options, cpu: bool) -> dict[str, str]:
    threads = str(torch.get_num_threads())
    hidden = {'CUDA_VISIBLE_DEVICES': ''} if cpu or options.device == 'cpu' else {}
    return {**os.environ, 'OMP_NUM_THREADS': threads, **hidden}


def _words(options: Options, name: str, work_dir: Path, *more: str, seed: int = 1) -> tuple:
    """Return the command that trains a recipe on the mini data."""
    data = mini_data(options) / ('coco' if RECIPES[name].startswith('mask_rcnn') else 'ade')
    shorter = QUICK if options.quick else ()
    changes = ('--cfg-options', f'data_root={data}/', *CHANGES)
    return ('train', f'mmlape::{RECIPES[name]}', '--work-dir', work_dir, '--seed', seed, *shorter, *more, *changes)


def _train(options: Options, name: str, *more: str) -> Found:
    folder = Path(options.scratch) / ' '.join(('train', name, *more))
    words = _words(options, name, folder / 'gpu', '--amp', *more)
    beside = subprocess.Popen(
        [sys.executable, '-m', 'mmlape', *map(str, _words(options, name, folder / 'cpu'))], cwd=options.scratch,
        env=_environment(options, cpu=True), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    started = time.monotonic()
    command(options, *words)
    seconds = time.monotonic() - started
    found = {'gpu': read_evaluations(folder / 'gpu')[-1].metrics}
    if beside.wait() == 0:
        found['cpu'] = read_evaluations(folder / 'cpu')[-1].metrics
    key = next(key for key in ('segm_mAP', 'coco/segm_mAP', 'mIoU') if key in found['gpu'])
    mine, theirs = found['gpu'][key], found.get('cpu', {}).get(key)
    ok = theirs is not None and mine >= BELOW * theirs
    return Found(ok, f'{key} {mine:.4g}, on the CPU {theirs or "not known"}; {seconds:.0f} s', dict(metrics=found))


def _killed(options: Options) -> Found:
    """Kill a run after its first checkpoint, resume it, and compare it with one that was not killed."""
    folder = Path(options.scratch) / 'killed'
    complete, killed = (_words(options, 'Segmenter', folder / name, '--deterministic') for name in 'ab')
    every = ('default_hooks.checkpoint.interval=1',) if options.quick else ()
    first = subprocess.Popen(
        [sys.executable, '-m', 'mmlape', *map(str, (*killed, *every))], cwd=options.scratch, start_new_session=True,
        env=_environment(options, cpu=False), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while first.poll() is None and not (folder / 'b' / 'last_checkpoint').exists():
        time.sleep(0.05)
    if first.poll() is None:
        os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    record = read_record(folder / 'b')
    command(options, *killed, *every, '--resume')
    command(options, *complete, *every)
    states = [_last_state(folder / name) for name in 'ab']
    differ = sum(not torch.equal(value, states[1][key]) for key, value in states[0].items())
    at = record.iter if record else None
    return Found(differ == 0, f'killed at {at}; {differ} of {len(states[0])} tensors differ', dict(differ=differ))


def _last_state(work_dir: Path) -> dict[str, torch.Tensor]:
    name = Path((work_dir / 'last_checkpoint').read_text().strip()).name
    return open_file(work_dir / name).tensors


def _seeds(options: Options) -> Found:
    folder = Path(options.scratch) / 'seeds'
    _, config, *_, changes, root, weights = _words(options, 'Segmenter', folder)
    started = time.monotonic()
    shorter = SHORTER if options.quick else ()
    seeds = ('--seeds', 1, 2, 3, '--per-gpu', 3, '--work-dir', folder)
    command(options, 'multi-seed', config, *seeds, changes, root, weights, *shorter)
    seconds = time.monotonic() - started
    printed = command(options, 'report', folder, '--out', folder / 'report')
    return Found('mIoU' in printed, f'three runs and a report in {seconds:.0f} s', dict(printed=printed[-2000:]))


def _used(options: Options) -> Found:
    folder = Path(options.scratch) / 'used'
    words = _words(options, 'Segmenter', folder / 'run')
    command(options, *words)
    images = mini_data(options) / 'ade' / 'images' / 'validation'
    run = folder / 'run'
    trained = (next(run.glob('*.py')), run / (run / 'last_checkpoint').read_text().rpartition('/')[2].strip())
    command(options, 'test', *trained, '--work-dir', folder / 'test')
    command(options, 'predict', run, images, '--out', folder / 'maps')
    command(options, 'export-onnx', *trained, '--out', folder / 'model.onnx')
    maps = sum(path.is_file() for path in (folder / 'maps').rglob('*.png'))
    size = (folder / 'model.onnx').stat().st_size
    return Found(maps > 0, f'{maps} label maps, a graph of {size / 2**20:.1f} MiB', dict(maps=maps, bytes=size))
