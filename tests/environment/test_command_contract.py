"""What each option of each command does: its value arrives in the library functions that the command calls.

The functions are replaced by recorders. Words for an option follow from what argparse knows of it; `MORE` has those of
the others. What an option changes in what the functions are given, compared with the same line without it, is kept as
text (`told.py`); an option that changes nothing fails.
"""

import argparse
import contextlib
import dataclasses
import functools
import gc
import importlib.machinery
import inspect
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from each import each
from mmengine.config import Config
from mmengine.logging import MMLogger
from told import assert_told

from mmlape.cli import main
from mmlape.commands import COMMANDS, fill_parser
from mmlape.console.tables import text_table
from mmlape.lab.experiments import averages  # noqa: F401  (whose imports match names, as `list-studies` does)
from mmlape.lab.runs.schema import RunRecord


class Command(NamedTuple):
    """A command's shortest line, and what its functions return.

    An argument of ``more`` has lines ``(words, words beside, another shortest line)`` of its own; the words of a
    positional one replace the line.
    """

    line: str
    functions: dict[str, Any]
    more: dict[str, list[tuple]] = {}
    required: str = ''


def load(path, cfg_options=None):
    """Return a config that says how it was loaded."""
    return Config(dict(source=' '.join([path, *(cfg_options or ())])), filename=path)


LOAD = dict.fromkeys(
    ('mmlape.lab.config.config_file.load_config', 'mmlape.lab.inference.trained_model.load_config'), load
)
EVERYWHERE = {'mmlape.cli.quiet_stack': contextlib.nullcontext(), 'mmlape.checkpoint.opening.trust_checkpoints': None}
LAUNCHERS = {
    'mmlape.lab.experiments.launchers.LocalLauncher': 'local',
    'mmlape.lab.experiments.slurm.SlurmLauncher': 'slurm',
}
WRITTEN = SimpleNamespace(path=Path('w.onnx'), difference=0.0, size=1)
TABLE = text_table(('wide enough for a title ' * 4,), [('value',)])
SPREAD = SimpleNamespace(std=1.0, interval=lambda: None)
NORMS = SimpleNamespace(name='arm', runs=[1], parts=['part'], by_depth=lambda last: np.full((1, 1), 1000.0 * last))
GROUP = SimpleNamespace(
    count=1, names=['in.full'], patterns=lambda: ['in.*'], lr=1.0, weight_decay=0.0, rules=('base', 'base')
)
CHECKED = SimpleNamespace(issues=[], errors=[])
SLURM, SOFTWARE = '--slurm', '--allow-different-software'
RUNNING = {
    '--processes': [('--processes 3',), ('--processes 3', SLURM)],
    '--parallel': [('--parallel 3',), ('--parallel 3', SLURM)],
    '--gpus-per-node': [('--gpus-per-node 0', SLURM)],
    '--slurm-args': [('--slurm-args a=1 --slurm-args b=2', SLURM)],
    '--no-wait': [('--no-wait', SLURM)],
    '--': [('-- --amp fp16',)],
}
"""Of `add_running`."""


def in_modes(words, *modes):
    return [(words,), *((words, mode) for mode in modes)]


def of_modules(module):
    return {f'mmlape.commands.{module}.import_modules': None}


COMMANDS_CALLED = {
    'train': Command(
        'a.py',
        LOAD
        | {
            'mmlape.lab.training.trainer.train': RunRecord(state='finished'),
            'mmlape.lab.training.smoke.smoke': None,
            'mmlape.lab.training.smoke.summary': [],
        },
        {'config': [('b.py',)]},
    ),
    'test': Command(
        'a.py m.pth',
        LOAD
        | {
            'mmlape.lab.inference.evaluator.test': {},
            'mmlape.lab.inference.trained_graph.graph_of': Path('run/onnx/model.onnx'),
        },
        {'trained': [('b.py m.pth',), ('a.py n.pth',)]},
    ),
    'multi-seed': Command(
        'a.py b.py',
        LAUNCHERS
        | {
            'mmlape.lab.experiments.planning.Study': 'study',
            'mmlape.lab.experiments.multi_seed.run_study': 0,
            'mmlape.lab.experiments.multi_seed.show_arms': None,
        },
        RUNNING
        | {
            'config': [('b.py',)],
            '--arms': [('--arms b',)],
            '--arm': [('--arm mine c.py x=1 --arm d d.py',)],
            '--fractions': [('--fractions 1/2 1', '--arms a')],
            '--seeds': in_modes('--seeds 7 8', '--dry-run'),
            '--work-dir': in_modes('--work-dir d', '--dry-run'),
            '--cfg-options': [('--cfg-options x=1 --cfg-options y=2',), ('--cfg-options x=1', '--arm m c.py y=2')],
            '--until': [('--until 0.3', '--dry-run')],
            '--max-seeds': [('--max-seeds 5', '--until 0.3 --dry-run')],
            '--alpha': [('--alpha 0.1', '--until 0.3 --dry-run')],
            '--': in_modes(f'-- {SOFTWARE}', '--dry-run'),
        },
    ),
    'vtab': Command(
        's.yml m.pth',
        LAUNCHERS
        | {
            'mmlape.projects.vtab.sets.read_sets': SimpleNamespace(sets='sets'),
            'mmlape.projects.vtab.sets.check_sets': None,
            'mmlape.projects.vtab.protocol.run_sets': [],
        },
        RUNNING | {'configs': [('s.yml t.yml m.pth',)], 'checkpoint': [('s.yml n.pth',)]},
        '--data d',
    ),
    'status': Command(
        '',
        {
            'mmlape.lab.experiments.status.rows': [],
            'mmlape.lab.experiments.status.watch': None,
            'mmlape.lab.experiments.status.print_rows': None,
            'mmlape.lab.experiments.status.as_json': '[]',
            'mmlape.lab.training.frozen.describe_stored': '',
        },
        {'work_dir': in_modes('w', '--json', '--watch')},
    ),
    'report': Command(
        'w',
        {
            'mmlape.lab.experiments.report.report_work_dir': (
                SimpleNamespace(baseline_line='', excluded=[], warnings=[]),
                [Path('a')],
            ),
            'mmlape.lab.experiments.report.print_results': None,
            'mmlape.lab.experiments.report.comparison_lines': [],
        },
    ),
    'sample-size': Command(
        'w',
        {
            'mmlape.lab.experiments.sample_size.pilot_spread': (SPREAD, 'of a pilot'),
            'mmlape.lab.experiments.sample_size.sample_size_table': TABLE,
        },
        {'--std': [('--std 2.5', '--std 1', '')], '--paired': [('--paired',), ('--paired', '--std 1', '')]},
        '--difference 0.5',
    ),
    'predict': Command(
        'a.py m.pth images',
        LOAD
        | {
            'mmlape.lab.inference.predicted_files.images_to_predict': None,
            'mmlape.lab.inference.prediction.model_of': SimpleNamespace(checkpoint='m.pth', task='t', classes=()),
            'mmlape.lab.inference.predicted_files.predict_files': (1, ()),
        },
        {
            'trained': [('b.py m.pth images',), ('a.py n.pth images',), ('a.py m.pth b.py n.pth images',)],
            'images': [('a.py m.pth more',)],
        },
    ),
    'visualize-pe': Command(
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
            '--out': in_modes('--out p', '--balance --images i.png', '--bias-maps'),
            '--layers': in_modes('--layers 1 3', '--bias-maps'),
            '--size': [('--size 32',), ('--size 32 48',)],
            '--balance': [('--images i.png --balance',)],
            '--images': [('--images j.png', '--balance --images i.png'), ('--images j.png', '--bias-maps')],
            '--cells': [('--cells 1,2 3,4', '--bias-maps')],
        },
        '--out o',
    ),
    'plot-grad-norms': Command(
        'w',
        {
            'mmlape.lab.analysis.gradient_norms.read_norms': [NORMS],
            'mmlape.lab.analysis.gradient_norms.plot_norms': None,
        },
        {'--out': [('--out p.pdf',)]},
        '--out o.png',
    ),
    'check-data': Command(
        'a.py',
        LOAD
        | {
            'mmlape.lab.datasets.checks.full_check': CHECKED,
            'mmlape.lab.datasets.checks.print_report': None,
            'mmlape.lab.datasets.checks.write_report': None,
            'mmlape.lab.analysis.dataset_page.write_page': 'page',
        },
        {
            'config': [('b.py',)],
            '--splits': in_modes('--splits val test', '--browse d'),
            '--num': [('--num 3', '--browse d')],
        },
    ),
    'new': Command(
        'd --out c.py',
        {'mmlape.new.command.write_config': None},
        {'data': [('e --out c.py',)], '--out': [('--out x.py',)], '--time': [('--time 2h',)]},
    ),
    'make-mini-data': Command(
        'd',
        {'mmlape.lab.datasets.mini.make.make_mini_data': []},
        {
            '--size': [('--size 300',), ('--size 300 320',)],
            '--density': [('--density 8 9', '--objects')],
            '--object-size': [('--object-size 20 30', '--objects')],
            '--objects': [('--objects s', '--objects')],
            '--digits': [('--digits 19',)],
            '--crop': [('--crop 20',)],
            '--digit-size': [('--digit-size 20 30',)],
            '--drawn-for': [('--drawn-for 200 210',)],
        },
    ),
    'checkpoint inspect': Command(
        'm.pth', of_modules('checkpoint') | {'mmlape.checkpoint.converting.inspect': lambda path: {'to load it': path}}
    ),
    'checkpoint convert': Command(
        'm.pth d.pth',
        of_modules('checkpoint') | {'mmlape.checkpoint.converting.convert': []},
        {'src': [('n.pth d.pth',)], 'dst': [('m.pth e.pth',)]},
        '--to timm',
    ),
    'checkpoint publish': Command(
        'm.pth d.safetensors',
        of_modules('checkpoint')
        | {
            'mmlape.checkpoint.converting.publish': 'd-hash.safetensors',
            'mmlape.commands.checkpoint._leave_out': lambda src: src,
            'mmlape.lab.config.stored_config.published_config': 'config',
        },
        {'src': [('n.pth d.safetensors',)], 'dst': [('m.pth e.safetensors',)]},
    ),
    'checkpoint average': Command(
        'm.pth n.pth',
        of_modules('checkpoint') | {'mmlape.checkpoint.converting.average': None},
        {'files': [('n.pth m.pth m.pth',)]},
        '--out o.pth',
    ),
    'export-onnx': Command(
        'a.py m.pth',
        LOAD
        | {
            'mmlape.lab.inference.trained_graph.export': WRITTEN,
            'mmlape.lab.inference.trained_graph.image_size': (8, 8),
            'mmlape.backbones.export_backbone_of': WRITTEN,
            'mmlape.lab.inference.trained_graph.complete': None,
            'mmlape.lab.analysis.graph_check.check': SimpleNamespace(passes=True),
            'mmlape.lab.inference.images.files_of': [],
        },
        {
            'trained': [('b.py m.pth',), ('a.py n.pth',), ('a.py m.pth b.py n.pth',)],
            '--size': [('--size 32',), ('--size 32 48',)],
            '--batch': [('--batch 4',), ('--batch dynamic',)],
            '--graph': [('--check d --graph g.onnx',)],
            '--out': [('--out p.onnx',), ('--out made',)],
        },
        '--out o.onnx',
    ),
    'print-config': Command(
        'a.py',
        LOAD | {'mmlape.lab.config.schedule.shorten': None, 'mmlape.lab.config.config_file.differing_values': []},
        {
            'config': [('b.py',)],
            '--cfg-options': in_modes('--cfg-options x=1 --cfg-options y=2', '--diff b.py'),
            '--diff': [('--diff b.py',)],
        },
    ),
    'list-studies': Command(
        '', {'mmlape.lab.studies.packaged_studies': [SimpleNamespace(name='one')], 'fnmatch.fnmatchcase': False}
    ),
    'list-models': Command('', of_modules('list_models') | {'mmlape.models.model_names.list_models': []}),
    'print-params': Command(
        'a.py', LOAD | {'mmlape.lab.training.optim.parameter_groups': [GROUP]}, {'config': [('b.py',)]}
    ),
    'model-cost': Command(
        'a.py',
        LOAD
        | {
            'mmlape.lab.analysis.cost.input_shape': (8, 8),
            'mmlape.lab.training.optim.build_model': 'model',
            'mmlape.lab.analysis.cost.model_cost': [],
        },
        {'configs': [('b.py',), ('a.py b.py',)], '--size': [('--size 32',), ('--size 32 48',)]},
    ),
    'few-shot': Command(
        'a.py m.pth',
        LOAD
        | {
            'mmlape.projects.few_shot.dataset.few_shot_config': lambda cfg, *rest: cfg,
            'mmlape.lab.inference.evaluator.test': {},
        },
        {'trained': [('b.py m.pth',), ('a.py n.pth',)], '--data': [('--data b.py',)]},
    ),
    'probe': Command(
        'a.py',
        {
            'mmlape.projects.probe.probing.probe_models': ['probe'],
            'mmlape.projects.probe.probing.write_probes': None,
            'mmlape.projects.probe.probing.fit_removal': None,
        },
        {'models': [('b.py',), ('a.py b.py',)]},
        '--out o',
    ),
    'size-sweep': Command(
        's.yml --sizes 8',
        {
            'mmlape.projects.size_sweep.models.read_models': (['models'], ['default, seed 3: failed']),
            'mmlape.projects.size_sweep.sweep.sweep_models': (
                SimpleNamespace(title='title'),
                TABLE,
                [Path('index.html')],
            ),
        },
        {
            'models': [('a.py n.pth --sizes 8',)],
            '--sizes': [('--sizes 32 16 32', '', 's.yml')],
            '--scales': [('--scales 2 0.5 2', '', 's.yml')],
        },
        '--out o',
    ),
    'demo': Command('', {'mmlape.lab.experiments.demo.run_demo': None}),
    'doctor': Command('', {'mmlape.lab.environment.stack_problems': [], 'mmlape.lab.environment.installed': None}),
    'install-ops': Command(
        '', {'mmlape.openmmlab.mmcv_ops.installed_ops': None, 'mmlape.openmmlab.mmcv_ops.install_ops': 'file'}
    ),
}


def words_of(action: argparse.Action) -> list[tuple]:
    """Return lines for an option, of words that it takes and that are not its default."""
    flag, parse = (action.option_strings or [''])[-1], action.type or str
    if action.nargs == 0:
        return [(flag,)]
    extends = isinstance(action, argparse._ExtendAction)
    words = action.choices or (('x=1', 'y=2') if extends else ('x', '7', '8', '0.5'))
    words = [word for word in words if _takes(parse, word) and parse(word) not in (action.default, action.const)]
    line = f'{flag} {words[0]}'.strip()
    if extends:
        return [(f'{line} {flag} {words[1]}',)]
    if isinstance(action.nargs, int):
        return [(f'{line} {words[1]}',)]
    lines = [(f'{line} {words[1]}' if action.nargs in ('+', '*') else line,)]
    return [(flag,), *lines] if action.nargs in ('?', '*') and flag else lines


def _takes(parse, word) -> bool:
    try:
        parse(word)
    except (ValueError, argparse.ArgumentTypeError):
        return False
    return True


def plain(value):
    """Return a value that can be compared: of short texts, numbers, lists and dicts."""
    if isinstance(value, str):
        return value[:80]
    if isinstance(value, int | float | None):
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
        values = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        value = {name: one for name, one in values.items() if one not in ('', {}, None)}
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


def difference(before, after):
    """Yield what differs between the calls and the output of two lines."""
    (calls, printed), (others, printed_then) = before, after
    for name in calls | others:
        if name not in others:
            yield f'no {name}'
            continue
        old = calls.get(name, {})
        changed = {key: value for key, value in others[name].items() if key not in old or old[key] != value}
        gone = [f'no {key}' for key in old if key not in others[name]]
        if changed or gone or name not in calls:
            yield ' '.join([f'{name}:', *(f'{key}={value!r}' for key, value in changed.items()), *gone])
    for line in printed_then.splitlines():
        # MMPretrain prints of OneDL where it is imported first
        if line.strip(' ┏┓━┳┡┩╇└┘─┴') and line not in printed.splitlines() and 'OneDL' not in line:
            yield f'prints: {line.strip()}'


def actions_of(parser, name):
    """Yield command, or command and action, with its options and arguments."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in below:
        for word, child in action.choices.items():
            yield from actions_of(child, f'{name} {word}')
    if not below:
        found = {(action.option_strings or [action.dest])[-1]: action for action in parser._actions}
        yield name, found | ({'--': None} if parser.get_default('extra') is not None else {})


ACTIONS = {
    name: options
    for command in COMMANDS
    for name, options in actions_of(fill_parser(argparse.ArgumentParser(), command), command)
}


def state_of_process():
    """Return what whoever calls a command from Python must find again."""
    logger = MMLogger.get_instance('mmengine')
    torch_state = torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype(), torch.initial_seed()
    return logger.level, logging.root.manager.disable, gc.isenabled(), Path.cwd(), *torch_state


@pytest.fixture
def calls_of(monkeypatch, tmp_path, capsys):
    """Return what the recorders of a command are given by a line, and what is printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('COLUMNS', '200')
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    for name in ('a.py', 'b.py', 'm.pth', 'n.pth'):
        (tmp_path / name).touch()
    monkeypatch.setattr('signal.signal', lambda *_: None)

    def call(functions, *words):
        calls, before = {}, state_of_process()
        capsys.readouterr()
        with monkeypatch.context() as patched:
            functions = EVERYWHERE | functions
            for name in functions:  # all first: a module that is imported later would keep a recorder for good
                importlib.import_module(name.rpartition('.')[0])
            for name, result in functions.items():
                module, _, attribute = name.rpartition('.')
                function = getattr(importlib.import_module(module), attribute)
                patched.setattr(f'{module}.{attribute}', recorder(function, result, attribute, calls))
            status = main(' '.join(words).split())
        assert state_of_process() == before, words
        captured = capsys.readouterr()
        assert status in (0, 1) and not captured.err, f'{words}: {captured.err}'
        return calls, captured.out

    return call


def test_each_option_arrives_where_it_belongs(calls_of, tmp_path):
    assert set(COMMANDS_CALLED) == set(ACTIONS)
    told = []
    for name in each(COMMANDS_CALLED):
        line, functions, more, required = COMMANDS_CALLED[name]
        of_line = functools.cache(functools.partial(calls_of, functions, name))
        told += ['', f'{name} {line} {required}'.strip(), *difference(({}, ''), of_line(line, required, ''))]
        assert set(more) <= set(ACTIONS[name])
        for option, action in ACTIONS[name].items():
            for words, *others in more.get(option) or (() if option == '--help' else words_of(action)):
                beside, own_line = (*others, *('', line)[len(others) :])
                changed = (own_line, words) if option.startswith('-') else (words, '')
                before, after = of_line(own_line, required, beside), of_line(changed[0], required, beside, changed[1])
                found = [f'    {entry}' for entry in difference(before, after)]
                assert found, f'{name}: `{words}` changes nothing'
                told += [f'  {words}' + (f'  beside {beside}' if beside else ''), *found]
    assert_told('options', '\n'.join(told), folder=tmp_path)


UNUSED = {
    'sample-size --difference 1 --std 1 --arms a': '--arms is an option of WORK_DIR, which is not given',
    'multi-seed a.py --gpus-per-node 4': '--gpus-per-node: only with --slurm',
    'multi-seed a.py --no-wait': '--no-wait: only with --slurm',
    'status --json --watch': 'not allowed with argument',
    'export-onnx a.py m.pth --graph g.onnx': '--graph names what --check DIR compares',
    'make-mini-data d --density 1 2': '--density is an option of objects (--objects)',
}


def test_an_option_that_would_do_nothing_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr('signal.signal', lambda *_: None)
    (tmp_path / 'a.py').touch()
    for line in each(UNUSED):
        assert main(line.split()) in (1, 2)
        assert UNUSED[line] in capsys.readouterr().err and [path.name for path in tmp_path.iterdir()] == ['a.py']


def test_an_unknown_option_of_any_command_is_one_line_behind_its_usage(capsys):
    for name in each(COMMANDS_CALLED):
        words = f'{name} {COMMANDS_CALLED[name].line} {COMMANDS_CALLED[name].required} --no-such-option'.split()
        assert main(words) == 2
        *usage, error = capsys.readouterr().err.strip().splitlines()
        assert usage[0].startswith(f'usage: mmlape {name.split()[0]} ') and '--no-such-option' in error
