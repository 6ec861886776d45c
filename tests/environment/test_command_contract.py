"""What each option of each command does: its value arrives in one argument of one library function, and nowhere else.

The functions that a command calls are replaced by recorders. `CONTRACTS` says what an option changes in what they are
given, compared with the same line without it. An option without an entry, and an entry without an option, fail.
"""

import argparse
import contextlib
import dataclasses
import functools
import gc
import importlib.machinery
import inspect
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.logging import MMLogger

from mmlape.cli import main
from mmlape.commands import COMMANDS, fill_parser
from mmlape.lab.datasets.formats.base import IssueLog
from mmlape.lab.engine.options import TRACKERS
from mmlape.lab.experiments import averages  # noqa: F401  (whose imports match names, as `list-studies` does)
from mmlape.lab.experiments.planning import Arm
from mmlape.lab.runs.schema import RunRecord
from mmlape.tables import text_table


class Contract(NamedTuple):
    """A command's shortest line, what its functions return, and ``{option: [(words, changes, words beside), ...]}``.

    A positional argument's words replace ``line``; a fourth entry is another ``line``. Changes are
    ``{'function.argument': value}``; ``{'function': True}`` if only the line with the option calls it, False if only
    the one without; and ``{'printed': text}``.
    """

    line: str
    functions: dict[str, Any]
    options: dict[str, list[tuple]]
    required: str = ''


def load(path, cfg_options=None):
    """Return a config that says how it was loaded."""
    return Config(dict(source=' '.join([path, *(cfg_options or ())])), filename=path)


LOAD = dict.fromkeys(('mmlape.lab.engine.config.load_config', 'mmlape.lab.engine.trained.load_config'), load)
QUIET = {'--quiet': [('--quiet', {'quiet_stack.warnings_only': True})]}
TRUST = {'--trust-checkpoint': [('--trust-checkpoint', {'trust_checkpoints': True})]}
EVERYWHERE = {'mmlape.cli.quiet_stack': contextlib.nullcontext(), 'mmlape.weights.reading.trust_checkpoints': None}
SOFTWARE, CFG, IMPORT = '--allow-different-software', '--cfg-options', '--import'
WRITTEN = SimpleNamespace(path=Path('w.onnx'), difference=0.0, seconds=1.0, memory=1, size=1)
TABLE = text_table(('wide enough for a title ' * 4,), [('value',)])


def simple(words, place, value):
    """Return the entry of an option that changes one argument."""
    return {words.split()[0]: [(words, {place: value})]}


def of_config(function, rest=''):
    """Return the entries of a config that is loaded and given to a function, and of its changes."""
    return {
        'config': [(f'b.py {rest}', {'load_config.path': 'b.py', f'{function}.cfg.source': 'b.py'})],
        CFG: [
            (
                f'{CFG} x=1 --cfg-options y=2',
                {'load_config.cfg_options': ['x=1', 'y=2'], f'{function}.cfg.source': 'a.py x=1 y=2'},
            )
        ],
    }


def of_trained(*configs, checkpoint, rest=''):
    """Return the entries of CONFIG CHECKPOINT, which are given to functions, and of the changes of the config."""
    return {
        'trained': [
            (f'b.py m.pth {rest}', {'load_config.path': 'b.py'} | {f'{name}.source': 'b.py' for name in configs}),
            (f'a.py n.pth {rest}', {checkpoint: 'n.pth'}),
        ],
        CFG: [
            (
                f'{CFG} x=1 --cfg-options y=2',
                {'load_config.cfg_options': ['x=1', 'y=2']} | {f'{name}.source': 'a.py x=1 y=2' for name in configs},
            )
        ],
    }


def of_modules(module):
    return {f'mmlape.commands.{module}.import_modules': None}


IMPORTS = simple(f'{IMPORT} one two', 'import_modules.names', ['one', 'two'])


def of_running(plan, run):
    """Return the entries of `add_running`, of a command whose plan and whose function take them."""
    slurm = {'LocalLauncher': False, 'SlurmLauncher': True, f'{run}.launcher': 'slurm'}
    return {
        '--processes': [
            ('--processes 3', {f'{plan}.processes': 3, 'LocalLauncher.processes': 3}),
            ('--processes 3', {f'{plan}.processes': 3, 'SlurmLauncher.processes': 3}, '--slurm'),
        ],
        '--per-gpu': [('--per-gpu 3', {'LocalLauncher.per_gpu': 3})],
        '--slurm': [('--slurm', slurm)],
        '--parallel': [
            ('--parallel 3', {'LocalLauncher.max_parallel': 3}),
            ('--parallel 3', {'SlurmLauncher.max_parallel': 3}, '--slurm'),
        ],
        '--gpus-per-node': [('--gpus-per-node 0', {'SlurmLauncher.per_node': 0}, '--slurm')],
        '--slurm-args': [('--slurm-args a=1 --slurm-args b=2', {'SlurmLauncher.options': ['a=1', 'b=2']}, '--slurm')],
        '--no-wait': [('--no-wait', {f'{run}.wait': False}, '--slurm')],
        '--': [('-- --amp fp16', {f'{plan}.extra': ['--amp', 'fp16']})],
    }


UNTIL = {
    'run_study.until.work_dir': 'work_dirs',
    'run_study.until.arms': ['a', 'b'],
    'run_study.until.margin': 0.3,
    'run_study.until.alpha': 0.05,
    'run_study.until.allow_software': False,
}


def seeds_until(most: int) -> dict:
    """Where the seeds of `multi-seed --until` arrive."""
    return {key: [*range(121, 121 + most)] for key in ('Study.seeds', 'show_arms.seeds', 'run_study.until.seeds')}


LAUNCHERS = {
    'mmlape.lab.experiments.launchers.LocalLauncher': 'local',
    'mmlape.lab.experiments.slurm.SlurmLauncher': 'slurm',
}


def arms(*names, **changes):
    """Return the arms of configs, with their changes."""
    return [Arm(name, f'{name}.py', tuple(changes.get('cfg_options', ()))) for name in names]


def backend(name):
    """Return what a tracker's option changes."""
    visualizer = {'type': 'Visualizer', 'vis_backends': [dict(type='LocalVisBackend'), dict(type=name)]}
    changed = {f'train.cfg.visualizer.{key}': value for key, value in visualizer.items()}
    return {f'--{name}': [(f'--{name}', {'_backend': True, '_backend.name': name, **changed})]}


def every(hook, option):
    """Return the entry of a hook that has an interval, by default 50."""
    changed = 'train.cfg.custom_hooks'
    return {
        option: [
            (option, {changed: [dict(type=hook, interval=50)]}),
            (f'{option} 7', {changed: [dict(type=hook, interval=7)]}),
        ]
    }


SPREAD = SimpleNamespace(std=1.0, interval=lambda: None)
NORMS = SimpleNamespace(name='arm', runs=[1], parts=['part'], by_depth=lambda last: np.full((1, 1), 1000.0 * last))
GROUP = SimpleNamespace(
    count=1, names=['in.full'], patterns=lambda: ['in.*'], lr=1.0, weight_decay=0.0, rules=('base', 'base')
)
CHECKED = SimpleNamespace(interrupted=False, issues=IssueLog())
MINI = 'make_mini_data.options'

CONTRACTS = {
    'train': Contract(
        'a.py',
        LOAD
        | {
            'mmlape.lab.engine.trainer.train': RunRecord(state='finished'),
            'mmlape.lab.engine.trackers._backend': lambda name, work_dir: dict(type=name),
            'mmlape.lab.engine.smoke.smoke': None,
            'mmlape.lab.engine.smoke.summary': [],
        },
        of_config('train')
        | {'--smoke': [('--smoke', {'train': False, 'smoke': True, 'summary': True})]}
        | simple('--shorten 0.5', 'train.share', 0.5)
        | simple('--work-dir d', 'train.work_dir', 'd')
        | simple('--arm lape', 'train.arm', 'lape')
        | {'--resume': [('--resume', {'train.resume': True}), ('--resume p.pth', {'train.resume': 'p.pth'})]}
        | {'--amp': [('--amp', {'train.amp': 'bf16'}), ('--amp fp16', {'train.amp': 'fp16'})]}
        | simple('--compile layers', 'train.compile', 'layers')
        | simple('--seed 5', 'train.seed', 5)
        | simple('--deterministic', 'train.deterministic', True)
        | simple('--auto-scale-lr', 'train.batch', 'auto-scale-lr')
        | simple('--accumulate', 'train.batch', 'accumulate')
        | simple('--allow-batch-mismatch', 'train.batch', 'allow-batch-mismatch')
        | simple('--launcher slurm', 'train.launcher', 'slurm')
        | simple(SOFTWARE, 'train.allow_different_software', True)
        | backend('tensorboard')
        | backend('wandb')
        | backend('mlflow')
        | every('mmlape.GradientNormHook', '--log-grad-norm')
        | every('mmlape.PEBalanceHook', '--log-pe-balance')
        | TRUST,
    ),
    'test': Contract(
        'a.py m.pth',
        LOAD
        | {
            'mmlape.lab.engine.evaluator.test': {},
            'mmlape.lab.export.model.graph_of': Path('run/onnx/model.onnx'),
        },
        of_trained('test.cfg', checkpoint='test.checkpoint')
        | simple('--work-dir d', 'test.work_dir', 'd')
        | simple('--out o.json', 'test.out', 'o.json')
        | simple('--show-dir d', 'test.show_dir', 'd')
        | {'--save-pred': [('--save-pred', {'test.save_pred': True}), ('--save-pred p', {'test.save_pred': 'p'})]}
        | {'--page': [('--page', {'test.page': True}), ('--page p.html', {'test.page': 'p.html'})]}
        | {
            '--compile': [('--compile layers', {'test.compile': 'layers'})],
            '--backend': [
                (
                    '--backend onnx',
                    {
                        'graph_of': True,
                        'test.checkpoint': 'run/onnx/model.onnx',
                        'test.work_dir': Path('run'),
                        'test.name': 'metrics-onnx.json',
                    },
                )
            ],
            '--tta': [
                ('--tta', {'test.tta': [], 'test.name': 'metrics-tta.json'}),
                ('--tta 0.5 2', {'test.tta': [0.5, 2.0], 'test.name': 'metrics-tta.json'}),
            ]
        }
        | simple('--launcher pytorch', 'test.launcher', 'pytorch')
        | TRUST,
    ),
    'multi-seed': Contract(
        'a.py b.py',
        LAUNCHERS
        | {
            'mmlape.lab.experiments.planning.Study': 'study',
            'mmlape.lab.experiments.multi_seed.run_study': 0,
            'mmlape.lab.experiments.multi_seed.average_arms': 0,
            'mmlape.lab.experiments.multi_seed.show_arms': None,
        },
        of_running('Study', 'run_study')
        | {
            'config': [('b.py', {'Study.arms': arms('b')})],
            '--arms': [('--arms b', {'Study.arms': arms('b')})],
            '--arm': [
                (
                    '--arm mine c.py x=1 --arm d d.py',
                    {'Study.arms': [*arms('a', 'b'), Arm('mine', 'c.py', ('x=1',)), *arms('d')]},
                )
            ],
            '--fractions': [
                (
                    '--fractions 1/2 1',
                    {
                        'Study.arms': [
                            Arm('a+1of2', 'a.py', ('data_fraction=1/2',)),
                            Arm('a', 'a.py', ('data_fraction=1',)),
                        ]
                    },
                    '--arms a',
                )
            ],
            '--seeds': [
                ('--seeds 7 8', {'Study.seeds': [7, 8]}),
                ('--seeds 7 8', {'average_arms.seeds': [7, 8]}, '--aggregate-only'),
                ('--seeds 7 8', {'Study.seeds': [7, 8], 'show_arms.seeds': [7, 8]}, '--dry-run'),
            ],
            '--work-dir': [
                ('--work-dir d', {'Study.work_dir': 'd'}),
                ('--work-dir d', {'average_arms.work_dir': 'd'}, '--aggregate-only'),
                ('--work-dir d', {'Study.work_dir': 'd', 'show_arms.work_dir': 'd'}, '--dry-run'),
            ],
            CFG: [
                (f'{CFG} x=1 --cfg-options y=2', {'Study.arms': arms('a', 'b', cfg_options=('x=1', 'y=2'))}),
                (
                    f'{CFG} x=1',
                    {'Study.arms': [*arms('a', 'b', cfg_options=('x=1',)), Arm('m', 'c.py', ('x=1', 'y=2'))]},
                    '--arm m c.py y=2',
                ),
            ],
            '--dry-run': [
                ('--dry-run', {'show_arms': True, 'show_arms.arms': arms('a', 'b'), 'run_study.dry_run': True})
            ],
            '--until': [('--until 0.3', seeds_until(20) | UNTIL, '--dry-run')],
            '--max-seeds': [('--max-seeds 5', seeds_until(5), '--until 0.3 --dry-run')],
            '--alpha': [('--alpha 0.1', {'run_study.until.alpha': 0.1}, '--until 0.3 --dry-run')],
            '--aggregate-only': [
                (
                    '--aggregate-only',
                    {
                        'average_arms': True,
                        'average_arms.arms': arms('a', 'b'),
                        'average_arms.seeds': None,
                        'Study': False,
                        'LocalLauncher': False,
                        'run_study': False,
                    },
                )
            ],
            '--': [
                (f'-- {SOFTWARE}', {'Study.extra': [SOFTWARE]}),
                (f'-- {SOFTWARE}', {'average_arms.allow_software': True}, '--aggregate-only'),
                (f'-- {SOFTWARE}', {'Study.extra': [SOFTWARE], 'show_arms.extra': [SOFTWARE]}, '--dry-run'),
            ],
        },
    ),
    'vtab': Contract(
        's.yml m.pth',
        LAUNCHERS
        | {
            'mmlape.projects.vtab.sets.read_sets': SimpleNamespace(sets='sets'),
            'mmlape.projects.vtab.sets.check_sets': None,
            'mmlape.projects.vtab.protocol.run_sets': [],
        },
        of_running('run_sets.options', 'run_sets')
        | {
            'configs': [('s.yml t.yml m.pth', {'read_sets.configs': ['s.yml', 't.yml']})],
            'checkpoint': [('s.yml n.pth', {'read_sets.checkpoint': 'n.pth'})],
        }
        | simple('--base b16', 'read_sets.base', 'b16')
        | simple('--sets one two', 'read_sets.names', ['one', 'two'])
        | simple('--data e', 'read_sets.data', 'e')
        | simple('--skip-missing', 'read_sets.skip', True)
        | simple(f'{CFG} x=1 --cfg-options y=2', 'read_sets.cfg_options', ['x=1', 'y=2'])
        | simple('--rates 0.5 2', 'run_sets.options.rates', [0.5, 2.0])
        | simple('--seeds 7 8', 'run_sets.options.seeds', [7, 8])
        | {'--images': [('--images 1000', {'run_sets.options.images': 1000, 'check_sets.images': 1000})]}
        | simple('--prune', 'run_sets.options.prune', True)
        | simple('--work-dir w', 'run_sets.options.work_dir', 'w')
        | simple('--dry-run', 'run_sets.dry_run', True),
        '--data d',
    ),
    'status': Contract(
        '',
        {
            'mmlape.lab.experiments.status.rows': [],
            'mmlape.lab.experiments.status.watch': None,
            'mmlape.lab.experiments.status.table': '',
            'mmlape.lab.experiments.status.as_json': '[]',
        },
        {
            'work_dir': [
                ('w', {'rows.work_dir': 'w'}),
                ('w', {'rows.work_dir': 'w'}, '--json'),
                ('w', {'watch.work_dir': 'w'}, '--watch'),
            ],
            '--watch': [
                ('--watch', {'watch': True, 'watch.seconds': 5.0, 'rows': False, 'table': False}),
                ('--watch 9', {'watch': True, 'watch.seconds': 9.0, 'rows': False, 'table': False}),
            ],
            '--json': [('--json', {'as_json': True, 'as_json.runs': [], 'table': False})],
        },
    ),
    'report': Contract(
        'w',
        {
            'mmlape.lab.experiments.report.report_work_dir': (
                SimpleNamespace(baseline_line='', excluded=[], warnings=[]),
                [Path('a')],
            ),
            'mmlape.lab.experiments.report.console_table': '',
        },
        {'work_dir': [('v', {'report_work_dir.work_dir': 'v'})]}
        | simple('--arms x y', 'report_work_dir.names', ['x', 'y'])
        | simple('--baseline x', 'report_work_dir.baseline', 'x')
        | simple('--metric x y', 'report_work_dir.metrics', ['x', 'y'])
        | simple('--out o', 'report_work_dir.out', 'o')
        | simple('--title t', 'report_work_dir.title', 't')
        | simple('--images i', 'report_work_dir.images', 'i')
        | simple(SOFTWARE, 'report_work_dir.allow_software', True),
    ),
    'sample-size': Contract(
        'w',
        {
            'mmlape.lab.experiments.sample_size.pilot_spread': (SPREAD, 'of a pilot'),
            'mmlape.lab.experiments.sample_size.given_spread': SPREAD,
            'mmlape.lab.experiments.sample_size.sample_size_table': TABLE,
        },
        {
            'work_dir': [('v', {'pilot_spread.work_dir': 'v'})],
            '--std': [('--std 2.5', {'given_spread.std': 2.5}, '--std 1', '')],
            '--pilot-seeds': [('--pilot-seeds 3', {'given_spread.pilot_seeds': 3}, '--std 1', '')],
            '--paired': [
                (
                    '--paired',
                    {'pilot_spread.paired': True, 'sample_size_table.paired': True, 'printed': ' differences'},
                ),
                ('--paired', {'sample_size_table.paired': True, 'printed': ', paired test'}, '--std 1', ''),
            ],
            '--power': [('--power 0.6', {'sample_size_table.power': 0.6, 'printed': 'a power of 0.6'})],
        }
        | simple('--arms x y', 'pilot_spread.arms', ['x', 'y'])
        | simple('--metric x', 'pilot_spread.metric', 'x')
        | simple('--difference 1 2', 'sample_size_table.differences', [1.0, 2.0])
        | simple(SOFTWARE, 'pilot_spread.allow_software', True),
        '--difference 0.5',
    ),
    'predict': Contract(
        'a.py m.pth images',
        LOAD
        | {
            'mmlape.lab.analysis.predicted_files.images_to_predict': None,
            'mmlape.lab.analysis.prediction.model_of': SimpleNamespace(checkpoint='m.pth', task='t', classes=()),
            'mmlape.lab.analysis.predicted_files.predict_files': (1, ()),
        },
        of_trained('model_of.trained.config', checkpoint='model_of.trained.checkpoint', rest='images')
        | {
            'images': [('a.py m.pth more', {'images_to_predict.images': 'more', 'predict_files.images': 'more'})],
            '--out': [('--out p', {'images_to_predict.out': 'p', 'predict_files.out': 'p'})],
            '--overwrite': [
                ('--overwrite', {'images_to_predict.overwrite': True, 'predict_files.overwrite': True})
            ],
        }
        | simple('--batch-size 3', 'predict_files.batch_size', 3)
        | simple('--score-thr 0.6', 'predict_files.score_thr', 0.6)
        | simple('--no-overlays', 'predict_files.overlays', False)
        | simple('--tile 64', 'predict_files.tile', 64)
        | simple('--overlap 8', 'predict_files.overlap', 8)
        | simple('--device cuda:1', 'model_of.device', 'cuda:1')
        | TRUST,
        '--out o',
    ),
    'visualize-pe': Contract(
        'a.py',
        {
            'mmlape.backbones.open_models': dict(name='model'),
            'mmlape.projects.pe_figures.position.write_figures': ([], []),
            'mmlape.projects.pe_figures.position.numbers_table': None,
            'mmlape.projects.pe_figures.balance.measure_models': 'measured',
            'mmlape.projects.pe_figures.balance.write_balance': [],
            'mmlape.projects.pe_figures.bias_maps.write_bias_maps': [],
        },
        {
            'models': [('a.py b.py', {'open_models.texts': ['a.py', 'b.py']})],
            '--out': [
                ('--out p', {'write_figures.out': 'p'}),
                ('--out p', {'write_balance.folder': 'p'}, '--balance --images i.png'),
                ('--out p', {'write_bias_maps.folder': 'p'}, '--bias-maps'),
            ],
            '--layers': [
                ('--layers 1 3', {'write_figures.layers': [1, 3]}),
                ('--layers 1 3', {'write_bias_maps.layers': [1, 3]}, '--bias-maps'),
            ],
            '--size': [
                ('--size 32', {'write_figures.size': [32, 32]}),
                ('--size 32 48', {'write_figures.size': [32, 48]}),
            ],
            '--bias-maps': [
                (
                    '--bias-maps',
                    {
                        'write_bias_maps': True,
                        'write_bias_maps.name': 'name',
                        'write_bias_maps.model': 'model',
                        'write_figures': False,
                        'numbers_table': False,
                    },
                )
            ],
            '--balance': [
                (
                    '--images i.png --balance',
                    {
                        'measure_models': True,
                        'measure_models.models.name': 'model',
                        'measure_models.files': ['i.png'],
                        'write_balance': True,
                        'write_balance.balances': 'measured',
                        'write_figures': False,
                        'numbers_table': False,
                    },
                )
            ],
            '--images': [
                ('--images j.png', {'measure_models.files': ['j.png']}, '--balance --images i.png'),
                ('--images j.png', {'write_bias_maps.paths': ['j.png']}, '--bias-maps'),
            ],
            '--cells': [('--cells 1,2 3,4', {'write_bias_maps.cells': [[1, 2], [3, 4]]}, '--bias-maps')],
        }
        | simple('--token 1 2', 'write_figures.token', [1, 2])
        | simple('--grid 3 4', 'open_models.options.grid', [3, 4])
        | simple('--untrained', 'open_models.options.untrained', True)
        | simple(f'{CFG} x=1 --cfg-options y=2', 'open_models.options.cfg_options', ['x=1', 'y=2'])
        | TRUST,
        '--out o',
    ),
    'plot-grad-norms': Contract(
        'w',
        {
            'mmlape.lab.analysis.gradient_norms.read_norms': [NORMS],
            'mmlape.lab.analysis.gradient_norms.plot_norms': None,
        },
        {
            'work_dirs': [('v w', {'read_norms.work_dirs': ['v', 'w']})],
            '--last': [('--last 77', {'plot_norms.last': 77, 'printed': '7.7e+04'})],
            '--out': [('--out p.pdf', {'plot_norms.path': 'p.pdf', 'printed': 'p.pdf'})],
        },
        '--out o.png',
    ),
    'check-data': Contract(
        'a.py',
        LOAD
        | {
            'mmlape.lab.datasets.checks.full_check': CHECKED,
            'mmlape.lab.datasets.checks.print_report': None,
            'mmlape.lab.datasets.checks.write_report': None,
            'mmlape.lab.analysis.dataset_page.write_page': 'page',
        },
        of_config('full_check')
        | {
            '--splits': [
                ('--splits val test', {'full_check.splits': ['val', 'test']}),
                (
                    '--splits val test',
                    {'full_check.splits': ['val', 'test'], 'write_page.split': 'val'},
                    '--browse d',
                ),
            ],
            '--json': [
                (
                    '--json o.json',
                    {'write_report': True, 'write_report.path': 'o.json', 'write_report.config': 'a'},
                )
            ],
            '--browse': [
                ('--browse d', {'write_page': True, 'write_page.folder': 'd', 'write_page.cfg.source': 'a.py'})
            ],
            '--num': [('--num 3', {'write_page.num': 3}, '--browse d')],
        }
        | simple('--sample 3', 'full_check.sample', 3)
        | simple('--workers 3', 'full_check.workers', 3),
    ),
    'new': Contract(
        'd --out c.py',
        {'mmlape.new.command.write_config': None},
        {
            'data': [('e --out c.py', {'write_config.data': 'e', 'write_config.command': 'mmlape new e'})],
            '--classes': [('--classes a b', {'write_config.names': ['a', 'b']})],
            '--background': [
                ('--background ignore', {'write_config.background': False}),
                ('--background class', {'write_config.background': True}),
            ],
            '--time': [('--time 2h', {'write_config.seconds': 7200.0})],
        }
        | simple('--out x.py', 'write_config.out', 'x.py')
        | simple('--task boxes', 'write_config.task', 'boxes')
        | simple('--model deit-tiny', 'write_config.model', 'deit-tiny')
        | simple('--weights w', 'write_config.weights', 'w')
        | simple('--head adapter', 'write_config.head', 'adapter')
        | simple('--fine-tune', 'write_config.fine_tune', True)
        | simple('--iters 9', 'write_config.iterations', 9)
        | simple('--patience 9', 'write_config.patience', 9)
        | simple('--balance', 'write_config.balance', True)
        | simple('--seed 9', 'write_config.seed', 9),
    ),
    'make-mini-data': Contract(
        'd',
        {'mmlape.lab.datasets.mini.make.make_mini_data': []},
        {
            'root': [('e', {'make_mini_data.root': 'e'})],
            '--size': [('--size 300', {f'{MINI}.size': [300, 300]}), ('--size 300 320', {f'{MINI}.size': [300, 320]})],
            '--drawn-for': [('--drawn-for 200 210', {f'{MINI}.drawn_for': [200, 210]})],
            '--seed': [('--seed 9', {f'{MINI}.seed': 9, 'printed': 'seed 9'})],
        }
        | simple('--train 9', f'{MINI}.train', 9)
        | simple('--val 9', f'{MINI}.val', 9)
        | simple('--digits 19', f'{MINI}.digits', 19)
        | simple('--vtab 9', f'{MINI}.vtab', 9)
        | simple('--crop 20', f'{MINI}.crop', 20)
        | simple('--per-scene 8 9', f'{MINI}.per_scene', [8, 9])
        | {
            '--density': [('--density 8 9', {f'{MINI}.density': [8, 9]}, '--objects')],
            '--object-size': [('--object-size 20 30', {f'{MINI}.object_size': [20, 30]}, '--objects')],
            '--objects': [('--objects s', {f'{MINI}.stamps': 's'}, '--objects')],
        }
        | simple('--digit-size 20 30', f'{MINI}.digit_size', [20, 30])
        | simple('--masks rle', f'{MINI}.masks', 'rle')
        | simple('--overwrite', 'make_mini_data.overwrite', True),
    ),
    'checkpoint inspect': Contract(
        'm.pth',
        of_modules('checkpoint')
        | {'mmlape.checkpoint.inspecting.inspect': lambda path: {'to load it': path}},
        {'file': [('n.pth', {'inspect.path': 'n.pth', 'printed': 'to load it: n.pth'})]} | IMPORTS | TRUST,
    ),
    'checkpoint convert': Contract(
        'm.pth d.pth',
        of_modules('checkpoint') | {'mmlape.checkpoint.converting.convert': []},
        {
            'src': [('n.pth d.pth', {'convert.src': 'n.pth'})],
            'dst': [('m.pth e.pth', {'convert.dst': 'e.pth', 'printed': 'e.pth'})],
        }
        | simple('--to lape', 'convert.to', 'lape')
        | simple('--overwrite', 'convert.overwrite', True)
        | IMPORTS
        | TRUST,
        '--to timm',
    ),
    'checkpoint publish': Contract(
        'm.pth d.safetensors',
        of_modules('checkpoint')
        | {
            'mmlape.checkpoint.publishing.publish': 'd-hash.safetensors',
            'mmlape.lab.engine.stored_config.published_config': 'config',
        },
        {
            'src': [('n.pth d.safetensors', {'publish.src': 'n.pth', 'published_config.path': 'n.pth'})],
            'dst': [('m.pth e.safetensors', {'publish.dst': 'e.safetensors'})],
        }
        | simple('--weights ema', 'publish.weights', 'ema')
        | IMPORTS
        | TRUST,
    ),
    'checkpoint average': Contract(
        'm.pth n.pth',
        of_modules('checkpoint') | {'mmlape.checkpoint.converting.average': None},
        {
            'files': [('n.pth m.pth m.pth', {'average.files': ['n.pth', 'm.pth', 'm.pth'], 'printed': 'of 3 '})],
            '--out': [('--out p.pth', {'average.dst': 'p.pth', 'printed': 'p.pth'})],
        }
        | simple('--overwrite', 'average.overwrite', True)
        | IMPORTS
        | TRUST,
        '--out o.pth',
    ),
    'export-onnx': Contract(
        'a.py m.pth',
        LOAD
        | {
            'mmlape.lab.export.model.export': WRITTEN,
            'mmlape.lab.export.model.image_size': (8, 8),
            'mmlape.backbones.export_backbone_of': WRITTEN,
            'mmlape.lab.export.integer.export_integers': WRITTEN,
            'mmlape.lab.export.integer.calibration_files': ([], []),
            'mmlape.lab.export.folder.complete': None,
            'mmlape.lab.export.check.check': SimpleNamespace(passes=True),
            'mmlape.lab.analysis.images.files_of': [],
        },
        of_trained('image_size.cfg', 'export.cfg', checkpoint='export.checkpoint')
        | {
            '--size': [
                ('--size 32', {'image_size': False, 'export.form.size': [32, 32], 'printed': '32 x 32'}),
                ('--size 32 48', {'image_size': False, 'export.form.size': [32, 48], 'printed': '32 x 48'}),
            ],
            '--batch': [
                ('--batch 4', {'export.form.batch': 4, 'printed': '4 images'}),
                ('--batch dynamic', {'export.form.batch': None, 'printed': 'any number of images'}),
            ],
            '--precision': [
                ('--precision fp16', {'export.form.precision': 'fp16', 'printed': 'limit 0.05'}),
            ],
            '--calibration': [
                (
                    '--precision int8 --calibration d',
                    {
                        'export': False, 'export_integers': True, 'export_integers.images': 'd',
                        'export_integers.form.precision': 'int8', 'calibration_files': True, 'printed': 'limit 10%',
                    },
                )
            ],
            '--check': [('--check d', {'check': True, 'check.images': 'd', 'files_of': True})],
            '--tolerance': [('--tolerance 0.5', {'export.form.tolerance': 0.5, 'printed': 'limit 0.5'})],
            '--backbone': [
                (
                    '--backbone',
                    {'export': False, 'export_backbone_of': True, 'export_backbone_of.checkpoint': 'm.pth'},
                )
            ],
            '--out': [
                ('--out p.onnx', {'export.out': Path('p.onnx')}),
                ('--out made', {'export.out': Path('made/model.onnx'), 'complete': True}),
            ],
        }
        | simple('--labels', 'export.labels', True)
        | TRUST,
        '--out o.onnx',
    ),
    'print-config': Contract(
        'a.py',
        LOAD
        | {
            'mmlape.lab.engine.schedule.shorten': None,
            'mmlape.lab.engine.config_values.value_sources': [],
            'mmlape.lab.engine.config_values.differing_values': [],
        },
        {
            'config': [
                ('b.py', {'load_config.path': 'b.py', 'printed': "source = 'b.py'"}),
                ('b.py', {'value_sources.path': 'b.py'}, '--from'),
            ],
            CFG: [
                (f'{CFG} x=1 --cfg-options y=2', {'load_config.cfg_options': ['x=1', 'y=2'], 'printed': 'x=1 y=2'}),
                (f'{CFG} x=1', {'value_sources.cfg_options': ['x=1']}, '--from'),
                (
                    f'{CFG} x=1',
                    {'load_config.cfg_options': ['x=1'], 'differing_values.first.source': 'a.py x=1'},
                    '--diff b.py',
                ),
            ],
            '--diff': [
                (
                    '--diff b.py',
                    {
                        'load_config#2': True,
                        'differing_values': True,
                        'differing_values.first.source': 'a.py',
                        'differing_values.second.source': 'b.py',
                    },
                )
            ],
            '--from': [('--from', {'load_config': False, 'value_sources': True, 'value_sources.path': 'a.py'})],
            '--shorten': [
                ('--shorten 0.5', {'shorten': True, 'shorten.cfg.source': 'a.py', 'shorten.share': 0.5}),
            ],
        },
    ),
    'list-studies': Contract(
        '',
        {
            'mmlape.lab.studies.study_file.packaged_studies': [SimpleNamespace(name='one')],
            'fnmatch.fnmatchcase': False,
        },
        {'pattern': [('x*', {'fnmatchcase.pat': 'x*'})]},
    ),
    'list-models': Contract(
        '',
        of_modules('list_models') | {'mmlape.models.names.list_models': []},
        {'pattern': [('x*', {'list_models.pattern': 'x*'})]} | IMPORTS,
    ),
    'print-params': Contract(
        'a.py',
        LOAD | {'mmlape.lab.engine.optim.parameter_groups': [GROUP]},
        of_config('parameter_groups') | {'--names': [('--names', {'printed': 'in.full'})]},
    ),
    'model-cost': Contract(
        'a.py',
        LOAD
        | {
            'mmlape.lab.analysis.cost.input_shape': (8, 8),
            'mmlape.lab.engine.optim.build_model': 'model',
            'mmlape.lab.analysis.cost.model_cost': [],
        },
        {
            'configs': [
                (
                    'b.py',
                    {'load_config.path': 'b.py', 'build_model.cfg.source': 'b.py', 'input_shape.cfg.source': 'b.py'},
                ),
                (
                    'a.py b.py',
                    {'load_config#2': True, 'build_model#2': True, 'input_shape#2': True, 'model_cost#2': True}
                    | {'build_model#2.cfg.source': 'b.py'},
                ),
            ],
            CFG: [
                (
                    f'{CFG} x=1 --cfg-options y=2',
                    {
                        'load_config.cfg_options': ['x=1', 'y=2'],
                        'build_model.cfg.source': 'a.py x=1 y=2',
                        'input_shape.cfg.source': 'a.py x=1 y=2',
                    },
                )
            ],
            '--size': [
                ('--size 32', {'input_shape': False, 'model_cost.shape': [32, 32]}),
                ('--size 32 48', {'input_shape': False, 'model_cost.shape': [32, 48]}),
            ],
            '--json': [('--json', {'printed': '"config": "a"'})],
        },
    ),
    'few-shot': Contract(
        'a.py m.pth',
        LOAD
        | {
            'mmlape.projects.few_shot.dataset.few_shot_config': lambda cfg, *rest: cfg,
            'mmlape.lab.engine.evaluator.test': {},
        },
        of_trained('few_shot_config.cfg', 'test.cfg', checkpoint='test.checkpoint')
        | {
            '--data': [('--data b.py', {'load_config#2': True, 'few_shot_config.data.source': 'b.py'})],
        }
        | simple('--shots 3 4', 'few_shot_config.shots', [3, 4])
        | simple('--num-seeds 9', 'few_shot_config.seeds', 9)
        | simple('--l2 0.5', 'few_shot_config.l2', 0.5)
        | simple('--work-dir d', 'test.work_dir', 'd')
        | simple('--out o.json', 'test.out', 'o.json')
        | simple('--launcher pytorch', 'test.launcher', 'pytorch')
        | TRUST,
    ),
    'pe-bench': Contract(
        'f.py',
        {
            'mmlape.projects.pe_bench.contract.import_kind': 'mine',
            'mmlape.projects.pe_bench.contract.check_kind': None,
            'mmlape.projects.pe_bench.bench.run_bench': 0,
        },
        {
            'file': [('g.py', {'import_kind.file': 'g.py', 'check_kind.file': 'g.py', 'run_bench.file': 'g.py'})],
            '--quick': [
                (
                    '--quick',
                    {
                        'run_bench.work_dir': 'work_dirs/pe-bench-mine-quick',
                        'run_bench.protocol.ours': ['default', 'cpe'],
                        'run_bench.protocol.seeds': 3,
                        'run_bench.protocol.scales': [2.0],
                        'run_bench.protocol.options': ['train_cfg.max_iters=150', 'train_cfg.val_interval=150'],
                        'run_bench.protocol.data': 'data/mini-sizes-quick',
                        'run_bench.protocol.data_options': '--train 600 --val 40',
                    },
                )
            ],
        }
        | simple('--work-dir d', 'run_bench.work_dir', 'd')
        | simple('--dry-run', 'run_bench.dry_run', True)
        | simple('--name n', 'import_kind.name', 'n'),
    ),
    'probe': Contract(
        'a.py',
        {
            'mmlape.projects.probe.probing.probe_models': ['probe'],
            'mmlape.projects.probe.page.summary_table': TABLE,
            'mmlape.projects.probe.page.write_probe_page': [Path('index.html')],
        },
        {
            'model': [('b.py', {'probe_models.texts': ['b.py']})],
            '--compare': [('--compare b.py c.py', {'probe_models.texts': ['a.py', 'b.py', 'c.py']})],
            '--out': [('--out p', {'probe_models.out': 'p', 'write_probe_page.out': 'p'})],
            '--size': [('--size 32 48', {'probe_models.settings.size': [32, 48]})],
            '--shifts': [('--shifts 3 2 3', {'probe_models.settings.shifts': [2, 3]})],
            '--no-canvas': [('--no-canvas', {'probe_models.settings.canvases': []})],
        }
        | simple('--images d', 'probe_models.settings.images', 'd')
        | simple('--num-images 7', 'probe_models.settings.count', 7)
        | simple('--no-control', 'probe_models.settings.control', False)
        | {'--grid': [('--grid 2 3', {'probe_models.grid': [2, 3]})]}
        | TRUST,
        '--out o',
    ),
    'size-sweep': Contract(
        's.yml --sizes 8',
        {
            'mmlape.projects.size_sweep.models.read_models': (['models'], ['default, seed 3: failed']),
            'mmlape.projects.size_sweep.sweep.sweep_models': (
                SimpleNamespace(first=[SimpleNamespace(content=TABLE)], title='title'),
                [Path('index.html')],
            ),
        },
        {
            'models': [('a.py n.pth --sizes 8', {'read_models.items': ['a.py', 'n.pth']})],
            '--sizes': [
                ('--sizes 32 16 32', {'sweep_models.sizes': [16, 32], 'sweep_models.scaled': False}, '', 's.yml')
            ],
            '--scales': [('--scales 2 0.5 2', {'sweep_models.sizes': [0.5, 1.0, 2.0]}, '', 's.yml')],
        }
        | simple('--out p', 'sweep_models.out', 'p')
        | simple('--baseline x', 'sweep_models.baseline', 'x')
        | simple('--arms x y', 'read_models.patterns', ['x', 'y'])
        | simple(f'{CFG} x=1', 'read_models.cfg_options', ['x=1'])
        | TRUST,
        '--out o',
    ),
    'demo': Contract(
        '',
        {'mmlape.lab.experiments.demo.run_demo': None},
        simple('--work-dir w', 'run_demo.work_dir', 'w')
        | simple('--data d', 'run_demo.data', 'd')
        | simple('--num-seeds 3', 'run_demo.seeds', 3)
        | simple('--shorten 0.1', 'run_demo.shorten', 0.1),
    ),
    'completion': Contract(
        'bash',
        {'shtab.complete': 'script'},
        {'shell': [('tcsh', {'complete.shell': 'tcsh'})]},
    ),
    'doctor': Contract('', {'mmlape.lab.environment.doctor.examine': [], 'mmlape.lab.environment.doctor.show': 0}, {}),
    'install-ops': Contract(
        '',
        {
            'mmlape.mmcv_ops.ops_in_use': 'none',
            'mmlape.mmcv_ops.install_ops': 'file',
            'mmlape.mmcv_ops.remove_ops': 'file',
        },
        {'--remove': [('--remove', {'remove_ops': True, 'install_ops': False, 'ops_in_use': False})]},
    ),
}  # fmt: skip


def plain(value):
    """Return a value that can be compared: of texts, numbers, lists and dicts."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Config):
        return plain(value.to_dict())
    if isinstance(value, functools.partial):
        return plain(value.args)
    if isinstance(value, list | tuple):
        return list(map(plain, value))
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    return f'<{type(value).__name__}>'


def flat(values, prefix=''):
    """Return the entries of nested dicts by dotted names."""
    entries = {}
    for key, value in values.items():
        entries |= flat(value, f'{prefix}{key}.') if isinstance(value, dict) and value else {f'{prefix}{key}': value}
    return entries


def recorder(function, result, name, calls):
    """Return a function that keeps the arguments of a call by the names that the real one gives them."""
    signature = inspect.signature(function)

    def record(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        number = sum(call.partition('#')[0] == name for call in calls) + 1
        calls[name if number == 1 else f'{name}#{number}'] = flat(plain(dict(bound.arguments)))
        return result(*args, **kwargs) if inspect.isfunction(result) else result

    return record


def difference(before, after, expected):
    """Return what differs between the calls of two lines, in the form of a contract's changes."""
    changes = {}
    for name in before | after:
        if name in before and name in after:
            for place in before[name] | after[name]:
                old, new = (calls[name].get(place, 'absent') for calls in (before, after))
                if old != new and (old, new) != (None, 'absent'):
                    changes[f'{name}.{place}'] = new
        else:
            changes[name] = name in after
            changes |= {
                place: after.get(name, {}).get(place.removeprefix(f'{name}.'), 'absent')
                for place in expected
                if place.startswith(f'{name}.')
            }
    return changes


def options_of(parser, name):
    """Yield command, or command and action, with the names of its options."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in below:
        for word, child in action.choices.items():
            yield from options_of(child, f'{name} {word}')
    if not below:
        found = {action.option_strings[-1] if action.option_strings else action.dest for action in parser._actions}
        yield name, (found - {'--help'}) | ({'--'} if parser.get_default('extra') is not None else set())


KNOWN = {
    name: options
    for command in COMMANDS
    for name, options in options_of(fill_parser(argparse.ArgumentParser(), command), command)
}


def state_of_process():
    """Return what whoever calls a command from Python must find again."""
    logger = MMLogger.get_instance('mmengine')
    torch_state = torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype(), torch.initial_seed()
    return logger.level, logging.root.manager.disable, gc.isenabled(), Path.cwd(), *torch_state


@pytest.fixture
def calls_of(monkeypatch, tmp_path, capsys):
    """Return what the recorders of a contract are given by a line, and what is printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('COLUMNS', '200')
    for name in ('a.py', 'b.py', 'm.pth', 'n.pth'):
        (tmp_path / name).touch()
    for name in TRACKERS:
        module = ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr('signal.signal', lambda *_: None)

    def call(contract, *words):
        calls, before = {}, state_of_process()
        with monkeypatch.context() as patched:
            functions = EVERYWHERE | contract.functions
            for name in functions:  # all first: a module that is imported later would keep a recorder for good
                importlib.import_module(name.rpartition('.')[0])
            for name, result in functions.items():
                module, _, attribute = name.rpartition('.')
                function = getattr(importlib.import_module(module), attribute)
                patched.setattr(f'{module}.{attribute}', recorder(function, result, attribute, calls))
            status = main(' '.join(words).split())
        assert state_of_process() == before, words
        captured = capsys.readouterr()
        assert status in (0, 1) and not captured.err, captured.err
        return calls, captured.out

    return call


def test_each_option_of_each_command_has_an_entry():
    entries = {name: {*contract.options, *QUIET} for name, contract in CONTRACTS.items()}
    assert entries == KNOWN


@pytest.mark.parametrize('name', CONTRACTS)
def test_the_value_of_an_option_arrives_where_it_belongs_and_only_there(name, calls_of):
    contract, wrong = CONTRACTS[name], []
    if name == 'completion':
        pytest.importorskip('shtab')
    for option, cases in (contract.options | QUIET).items():
        for words, changes, *more in cases:
            beside, line = (*more, *('', contract.line)[len(more) :])
            changed = (line, words) if option.startswith('-') else (words, '')
            before, printed = calls_of(contract, name, line, contract.required, beside)
            after, printed_then = calls_of(contract, name, changed[0], contract.required, beside, changed[1])
            expected = plain(changes)
            text = expected.pop('printed', None)
            found = difference(before, after, expected)
            if found != expected:
                wrong.append(f'{option}: `{words}` changes {found} instead of {expected}')
            if text is not None and (text in printed or text not in printed_then):
                wrong.append(f'{option}: `{words}` does not print {text!r}, or it is printed without')
    assert not wrong, '\n'.join(wrong)


UNUSED = {
    'sample-size --difference 1 --std 1 --arms a': '--arms is an option of WORK_DIR, which is not given',
    'sample-size --difference 1 --std 1 --metric mIoU': '--metric is an option of WORK_DIR',
    'sample-size --difference 1 --std 1 --allow-different-software': '--allow-different-software is an option',
    'sample-size w --difference 1 --pilot-seeds 3': '--pilot-seeds is an option of --std, which is not given',
    'multi-seed a.py --gpus-per-node 4': '--gpus-per-node: only with --slurm',
    'multi-seed a.py --no-wait': '--no-wait: only with --slurm',
    'status --json --watch': 'not allowed with argument',
    'print-config a.py --from --shorten 0.5': 'give no --shorten',
    'export-onnx a.py m.pth --calibration d': '--precision int8 and --calibration DIR belong together',
    'make-mini-data d --density 1 2': '--density is an option of objects (--objects)',
}


@pytest.mark.parametrize('line', UNUSED)
def test_an_option_that_would_do_nothing_is_refused(line, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr('signal.signal', lambda *_: None)
    (tmp_path / 'a.py').touch()
    assert main(line.split()) in (1, 2)
    assert UNUSED[line] in capsys.readouterr().err and [path.name for path in tmp_path.iterdir()] == ['a.py']
