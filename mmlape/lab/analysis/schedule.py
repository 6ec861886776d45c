"""The learning rate and the weight decay of a configuration over time, by MMEngine's schedulers, without training."""

import contextlib
import io
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from mmengine.config import Config
from mmengine.optim import OptimWrapper, _ParamScheduler
from mmengine.registry import DATASETS, init_default_scope
from mmengine.registry import PARAM_SCHEDULERS as ROOT_SCHEDULERS

from mmlape.console import console
from mmlape.errors import ConfigError, DataError
from mmlape.figures import COLOURS, new_axes, save_figure, tidy
from mmlape.lab.engine.building import building
from mmlape.lab.engine.plan import require_keys
from mmlape.lab.engine.schedule import check_schedule, schedulers
from mmlape.quiet import say
from mmlape.tables import console_table, text_table

EPOCH_LENGTH = 1000
"""Iterations of an epoch where the training data are not there to count them."""
_POINTS = 3000
"""Most points of a curve."""
_ROWS = 11
"""Rows of a table at equal distances, beside those where something begins or ends."""


@dataclass(frozen=True)
class Schedule:
    """Values of the parameters without a rule of their own, at each step."""

    unit: str  # 'iteration' or 'epoch'
    lr: np.ndarray  # (steps,)
    weight_decay: np.ndarray
    changes: tuple[int, ...]  # steps at which a scheduler begins, ends or has a milestone
    epoch_length: int | None  # iterations of an epoch, where time counts both
    assumed: bool  # whether that is `EPOCH_LENGTH`


def compute_schedule(cfg: Config) -> Schedule:
    """Step through the schedulers of a configuration.

    Raises:
        ConfigError: It has no optimiser or several, or its schedule is wrong.
    """
    require_keys(cfg, ('optim_wrapper', 'train_cfg'), 'trained')
    check_schedule(cfg)
    optimizer = cfg.optim_wrapper.get('optimizer')
    several = isinstance(cfg.get('param_scheduler'), dict) and 'type' not in cfg.param_scheduler
    if not optimizer or several:
        raise ConfigError(f'{cfg.filename}: --schedule is for one optimiser with lr and weight_decay')
    epochs, iterations = cfg.train_cfg.get('max_epochs'), cfg.train_cfg.get('max_iters')
    parts = [part for _, part in schedulers(cfg)]
    mixed = [part for part in parts if not part.get('by_epoch', True) or part.get('convert_to_iter_based')]
    length, assumed = (None, False) if iterations or not mixed else epoch_length(cfg)
    wrapper = _wrapper(cfg)
    ends = {True: epochs, False: iterations}
    built = [_build(cfg, part, wrapper, ends[part.get('by_epoch', True)], length) for part in parts]
    steps = iterations or epochs * (length or 1)
    per_epoch = length or (1 if epochs else None)
    values = _walk(wrapper, built, steps, per_epoch, by_iteration=bool(iterations or length))
    changes = sorted({step for part in parts for step in _changes(part, length) if 0 < step < steps})
    return Schedule('iteration' if iterations or length else 'epoch', *values, tuple(changes), length, assumed)


def epoch_length(cfg: Config) -> tuple[int, bool]:
    """Return the iterations of an epoch at the recipe's total batch, and whether they are assumed for want of data."""
    loader = cfg.train_dataloader
    batch = (cfg.get('auto_scale_lr') or {}).get('base_batch_size') or loader.batch_size
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints
            images = len(DATASETS.build(dict(loader.dataset)))
    except (OSError, DataError):
        return EPOCH_LENGTH, True
    processes = max(1, batch // loader.batch_size)
    mine = -(-images // processes)  # a sampler repeats images, so that processes have equally many
    if loader.get('drop_last'):
        return max(1, mine * processes // batch), False
    return max(1, -(-images // batch)), False


def _wrapper(cfg: Config) -> OptimWrapper:
    """Return an optimiser of one parameter with the configuration's values."""
    values = cfg.optim_wrapper.optimizer
    if values.get('lr') is None:
        raise ConfigError(f'{cfg.filename}: optim_wrapper.optimizer has no lr, so there is nothing to show')
    group = dict(params=[torch.zeros(1, requires_grad=True)], lr=values.lr)
    group['weight_decay'] = values.get('weight_decay', 0.0)
    return OptimWrapper(torch.optim.SGD([group], momentum=0.9))


def _build(
    cfg: Config, part: dict, wrapper: OptimWrapper, end: int | None, length: int | None
) -> tuple[_ParamScheduler, bool]:
    """Return a scheduler, and whether it steps by epoch."""
    settings = {key: value for key, value in part.items() if key != 'end' or value is not None}
    if end is not None:
        settings.setdefault('end', end)
    with building(cfg, 'param_scheduler'):
        built = ROOT_SCHEDULERS.build(settings, default_args=dict(optimizer=wrapper, epoch_length=length or 1))
    return built, built.by_epoch


def _walk(
    wrapper: OptimWrapper,
    built: list[tuple[_ParamScheduler, bool]],
    steps: int,
    per_epoch: int | None,
    by_iteration: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rate and the decay that each step is taken with."""
    (group,) = wrapper.param_groups
    values = np.empty((2, steps))
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'Detected call of `scheduler.step')
        for step in range(steps):
            values[:, step] = group['lr'], group['weight_decay']
            ends = per_epoch is not None and (step + 1) % per_epoch == 0
            for scheduler, of_epochs in built:
                if ends if of_epochs else by_iteration:
                    scheduler.step()
    return values[0], values[1]


def _changes(part: dict, length: int | None) -> list[int]:
    """Return the steps at which a scheduler begins, ends, or changes by a jump."""
    begin = part.get('begin', 0)
    spans = [begin + count for count in (*part.get('milestones', ()), part.get('warmup') or 0)]
    factor = length or 1 if part.get('by_epoch', True) else 1
    return [round(step * factor) for step in (begin, part.get('end') or 0, *spans)]


def schedule_table(schedule: Schedule) -> pd.DataFrame:
    """Return steps, at equal distances and where something changes, with the values there."""
    last = len(schedule.lr) - 1
    even = np.linspace(0, last, min(_ROWS, last + 1)).round().astype(int).tolist()
    rows = []
    for step in sorted({*even, *schedule.changes}):
        epoch = [f'{step / schedule.epoch_length:.2f}'] if schedule.epoch_length else []
        rows.append((f'{step:,}', *epoch, f'{schedule.lr[step]:.4g}', f'{schedule.weight_decay[step]:.4g}'))
    heads = (schedule.unit, *(['epoch'] if schedule.epoch_length else []), 'lr', 'weight decay')
    return text_table(heads, rows)


def note(schedule: Schedule) -> str:
    """Say whose values these are, and what is assumed."""
    of = 'of parameters without a rule of their own (print-params shows the others)'
    if not schedule.assumed:
        return of
    return f'{of}; the training data are not there, so an epoch is taken as {EPOCH_LENGTH} iterations'


def draw_schedule(schedule: Schedule, title: str, path: Path) -> Path:
    """Draw both over time."""
    figure, left = new_axes((8.0, 4.0))
    right = left.twinx()
    tidy(left)
    right.spines['top'].set_visible(False)
    steps = np.arange(len(schedule.lr))
    every = max(1, len(steps) // _POINTS)
    kept = np.unique(np.concatenate([steps[::every], steps[-1:], np.array(schedule.changes, int)]))
    for axes, values, name, ink, style in (
        (left, schedule.lr, 'learning rate', COLOURS[0], '-'),
        (right, schedule.weight_decay, 'weight decay', COLOURS[1], '--'),
    ):
        axes.plot(kept, values[kept], style, color=ink, lw=1.8)
        axes.set_ylabel(name, color=ink)
        axes.set_ylim(0, 1.08 * values.max() or 1)
    assumed = ' (assumed)' if schedule.assumed else ''
    of_epoch = f', {schedule.epoch_length:,} in an epoch{assumed}' if schedule.epoch_length else ''
    left.set(xlabel=schedule.unit + of_epoch, title=title)
    left.set_xlim(0, max(1, steps[-1]))
    return save_figure(figure, path)


def show_schedule(cfg: Config, path: str | Path) -> None:
    """Print the table of a configuration's schedule, and draw it into a file.

    Raises:
        ConfigError: As of `compute_schedule`, or the file is no figure.
    """
    path = Path(path)
    if path.suffix not in ('.png', '.svg', '.pdf'):
        raise ConfigError(f'--schedule {path}: give a file that ends with .png, .svg or .pdf')
    schedule = compute_schedule(cfg)
    terminal = console()
    terminal.print(console_table(schedule_table(schedule)))
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_schedule(schedule, Path(str(cfg.filename)).name, path)
    say(f'{note(schedule)}; drawn in {path}')
