"""Runs of a few seconds: a data set of coloured squares in ADE20K's layout, and a segmentor of 20,000 parameters."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import forking_python
import numpy as np
import pytest
import torch
from PIL import Image

REAL = {'PYTHON': sys.executable}
PYTHONS = [pytest.param({}, id='fork'), pytest.param(REAL, id='interpreter', marks=pytest.mark.release)]
in_a_fork = pytest.mark.parametrize('python', PYTHONS)
"""A test whose tool runs in a fork, and for a release by the interpreter: `run(..., **python)`."""
GUARD = 1800  # seconds after which a subprocess counts as hanging
ROOT = Path(__file__).resolve().parent.parent
CLASSES = ('left', 'right', 'below')
COLOURS = ((200, 60, 60), (60, 200, 60), (60, 60, 200))

CONFIG = """
default_scope = 'mmseg'
data_root = {data_root!r}
classes = ('left', 'right', 'below')
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='RandomCrop', crop_size=(32, 32)),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='PackSegInputs'),
]
dataset = dict(
    type='BaseSegDataset', data_root=data_root, metainfo=dict(classes=classes), reduce_zero_label=True,
    img_suffix='.png', seg_map_suffix='.png',
)
train_dataloader = dict(
    batch_size=2,
    num_workers=0,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
        pipeline=train_pipeline, **dataset,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'),
        test_mode=True, pipeline=test_pipeline, **dataset,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='mmlape.IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
norm_cfg = dict(type='SyncBN', requires_grad=True)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor', mean=[127.5] * 3, std=[127.5] * 3, bgr_to_rgb=True, pad_val=0, seg_pad_val=255,
        size=(32, 32), test_cfg=dict(size_divisor=8),
    ),
    backbone=dict(
        type='mmlape.VisionTransformer',
        arch=dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=64),
        img_size=32, patch_size=8, out_type='featmap', pe_joining='lape', drop_path_rate=0.2,
    ),
    decode_head=dict(
        type='FCNHead', in_channels=32, channels=16, in_index=0, num_convs=1, concat_input=False, dropout_ratio=0.1,
        num_classes=3, norm_cfg=norm_cfg, align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', loss_weight=1.0),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05),
    paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys=dict(pos_embed=dict(decay_mult=0.0))),
)
param_scheduler = [dict(type='PolyLR', eta_min=0, power=1.0, begin=0, end=100, by_epoch=False)]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=6, val_interval=3)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=1, log_metric_by_epoch=False),
    checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=3, max_keep_ckpts=2, save_best='mIoU'),
)
log_processor = dict(by_epoch=False)
auto_scale_lr = dict(enable=False, base_batch_size=2)
env_cfg = dict(cudnn_benchmark=False, mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0))
"""

EPOCHS = """
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=3, val_interval=1)
train_dataloader['sampler'] = dict(type='DefaultSampler', shuffle=True)
param_scheduler = [dict(type='MultiStepLR', milestones=[1])]
default_hooks['checkpoint'].update(by_epoch=True, interval=1)
log_processor = dict(by_epoch=True)
"""
"""Three epochs instead of six iterations."""


def write_data(root: Path, train: int = 8, val: int = 5, side: int = 48) -> Path:
    """Squares: the left, the right and the lower part of a picture have a colour each, 0 (unlabelled) a border."""
    random = np.random.RandomState(0)
    for split, count in (('training', train), ('validation', val)):
        for kind in ('images', 'annotations'):
            (root / kind / split).mkdir(parents=True)
        for number in range(count):
            labels = np.full((side, side), 1, np.uint8)
            labels[:, random.randint(16, 32) :] = 2
            labels[random.randint(20, 36) :] = 3
            labels[:2] = 0
            picture = np.asarray(((0, 0, 0), *COLOURS), np.int64)[labels] + random.randint(-40, 40, (side, side, 3))
            Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(root / 'images' / split / f'{number}.png')
            Image.fromarray(labels).save(root / 'annotations' / split / f'{number}.png')
    return root


def write_config(folder: Path, data_root: Path, extra: str = '', name: str = 'tiny') -> Path:
    """The configuration above on that data, with ``extra`` Python behind it."""
    path = folder / f'{name}.py'
    path.write_text(CONFIG.format(data_root=str(data_root)) + extra)
    return path


def environment(**more: str) -> dict[str, str]:
    """This process's variables for a child on one thread, with the package importable; PYTHON is one that forks."""
    paths = [str(ROOT), str(ROOT / 'tests'), *filter(None, [os.environ.get('PYTHONPATH')])]
    child = {**os.environ, 'PYTHONPATH': os.pathsep.join(paths), 'OMP_NUM_THREADS': '1'}
    return {**child, 'PYTHON': more.get('PYTHON') or forking_python.executable(), **more}


MMLAPE = ('-m', 'mmlape')
"""The words that begin a call of the command line."""


def command_of(words: Iterable[object], python: str) -> list[str]:
    """The words of a call, by that Python where they start with a file or a module of Python's, or the interpreter."""
    words = [str(word) for word in words]
    if words[0].endswith('.py') or words[0] == '-m':
        return [python, *words]
    return [python if words[0] == sys.executable else words[0], *words[1:]]


def run(*command: object, cwd: Path, status: int = 0, **more: str) -> str:
    """Runs a tool and returns what it printed on both streams; fails unless it ends with ``status``.

    It runs in a fork, and so does what it starts; with ``**REAL`` the interpreter is started.
    """
    variables = environment(**more)
    words = command_of(command, variables['PYTHON'])
    done = subprocess.run(
        words,
        cwd=cwd,
        env=variables,
        encoding='utf-8',
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=GUARD,
    )
    assert done.returncode == status, f'{words} ended with {done.returncode}:\n{done.stdout[-6000:]}'
    return done.stdout


def hang_up() -> None:
    """Let SIGHUP end this process, also where nohup has its parent ignore it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start(*command: object, cwd: Path, **more: str) -> subprocess.Popen:
    """Starts a tool as ``run`` does, in a process group of its own, and leaves it running."""
    variables = environment(**more)
    return subprocess.Popen(
        command_of(command, variables['PYTHON']),
        cwd=cwd,
        env=variables,
        encoding='utf-8',
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=hang_up,
    )


def until(happened: Callable[[], object], process: subprocess.Popen | None = None) -> None:
    """Waits until something has happened; fails if the process that it depends on ends before."""
    deadline = time.monotonic() + GUARD
    while not happened():
        assert process is None or process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def train(config: Path, work_dir: Path, *options: object, status: int = 0, **more: str) -> str:
    """Runs ``tools/train.py`` in the configuration's folder."""
    command = (ROOT / 'tools' / 'train.py', config, '--work-dir', work_dir, *options)
    return run(*command, cwd=config.parent, status=status, **more)


def difference(first: Path, second: Path) -> float:
    """The largest difference between the weights of two checkpoints."""
    from mmlape.checkpoint import read_checkpoint

    one, two = (read_checkpoint(path)['state_dict'] for path in (first, second))
    assert list(one) == list(two)
    return max(float((one[name].double() - two[name].double()).abs().max()) for name in one)


def record(work_dir: Path) -> dict:
    """What ``run.json`` says."""
    return json.loads((work_dir / 'run.json').read_text())


def evaluations(work_dir: Path) -> list[dict]:
    """All evaluations of the run in ``work_dir``."""
    return [json.loads(line) for line in (work_dir / 'evaluations.jsonl').read_text().splitlines()]


def losses(work_dir: Path) -> dict[int, float]:
    """Step and loss of every iteration that was logged, a resumed run's over those that it repeats."""
    logs = sorted(work_dir.rglob('vis_data/scalars.json'))
    rows = [json.loads(line) for log in logs for line in log.read_text(encoding='utf-8').splitlines()]
    return {row['step']: row['loss'] for row in rows if 'loss' in row}


def differences(one: object, two: object, place: str = '', tolerance: float = 0) -> Iterator[str]:
    """The places where the contents of two files differ; by default to the bit."""
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        same = one.shape == two.shape and torch.allclose(one.double(), two.double(), rtol=tolerance, atol=tolerance)
    elif isinstance(one, float) and isinstance(two, float):
        same = one == pytest.approx(two, rel=tolerance, abs=tolerance)
    elif isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        for key in one:
            yield from differences(one[key], two[key], f'{place}/{key}', tolerance)
        return
    elif isinstance(one, list | tuple) and isinstance(two, list | tuple) and len(one) == len(two):
        for number, pair in enumerate(zip(one, two)):
            yield from differences(*pair, f'{place}/{number}', tolerance)
        return
    else:
        same = one == two
    if not same:
        yield f'{place}: {str(one)[:300]} / {str(two)[:300]}'


def unpack_records(name: str, folder: Path) -> Path:
    """Unpack ``docs/results/<name>.tar.xz`` into a folder; return where its study is, if it is of that name."""
    with tarfile.open(ROOT / f'docs/results/{name}.tar.xz') as archive:
        archive.extractall(folder, filter='data')
    return folder / name
