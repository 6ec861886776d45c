"""What each option of each command does: its value arrives in the library functions that the command calls.

The functions are replaced by recorders. What an option changes in what they are given, compared with the same line
without it, is kept as text (`told.py`), and so is the line; an option that changes nothing fails.
"""

import argparse
import contextlib
import dataclasses
import functools
import gc
import importlib.machinery
import inspect
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from each import each
from mmengine.config import Config
from mmengine.logging import MMLogger
from told import FOLDER, assert_calls_told, assert_told, call_command

from mmlape.cli import main
from mmlape.commands import COMMANDS, fill_parser, parse_arguments
from mmlape.console.tables import text_table
from mmlape.lab.experiments import averages  # noqa: F401  (whose imports match names, as `list-studies` does)
from mmlape.lab.runs.schema import RunRecord
from mmlape.lab.studies import StudyText


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
TABLE = text_table(('wide enough for a title ' * 4,), [('value',)])
SPREAD = SimpleNamespace(std=1.0, interval=lambda: None)
NORMS = SimpleNamespace(name='arm', runs=[1], parts=['part'], by_depth=lambda last: np.full((1, 1), 1000.0 * last))
GROUP = SimpleNamespace(
    count=1, names=['in.full'], patterns=lambda: ['in.*'], lr=1.0, weight_decay=0.0, rules=('base', 'base')
)
CHECKED = SimpleNamespace(issues=[], errors=[])


def of_modules(module):
    return {f'mmlape.commands.{module}.import_modules': None}


FUNCTIONS: dict[str, dict[str, Any]] = {
    'train': LOAD
    | {
        'mmlape.lab.training.trainer.train': RunRecord(state='finished'),
        'mmlape.lab.training.smoke.smoke': None,
        'mmlape.lab.training.smoke.summary': [],
    },
    'test': LOAD
    | {
        'mmlape.lab.inference.evaluator.test': {},
        'mmlape.lab.inference.trained_graph.graph_of': Path('run/onnx/model.onnx'),
    },
    'multi-seed': LAUNCHERS
    | {
        'mmlape.lab.experiments.planning.Study': 'study',
        'mmlape.lab.experiments.multi_seed.run_study': 0,
        'mmlape.lab.experiments.multi_seed.show_arms': None,
    },
    'vtab': LAUNCHERS
    | {
        'mmlape.projects.vtab.sets.read_sets': SimpleNamespace(sets='sets'),
        'mmlape.projects.vtab.sets.check_sets': None,
        'mmlape.projects.vtab.protocol.run_sets': [],
    },
    'status': {
        'mmlape.lab.experiments.status.rows': [],
        'mmlape.lab.experiments.status.watch': None,
        'mmlape.lab.experiments.status.print_rows': None,
        'mmlape.lab.experiments.status.as_json': '[]',
        'mmlape.lab.training.frozen.describe_stored': '',
    },
    'report': {
        'mmlape.lab.experiments.report.report_work_dir': (
            SimpleNamespace(baseline_line='', excluded=[], warnings=[]),
            [Path('a')],
        ),
        'mmlape.lab.experiments.report.print_results': None,
        'mmlape.lab.experiments.report.comparison_lines': [],
    },
    'sample-size': {
        'mmlape.lab.experiments.sample_size.pilot_spread': (SPREAD, 'of a pilot'),
        'mmlape.lab.experiments.sample_size.sample_size_table': TABLE,
    },
    'predict': LOAD
    | {
        'mmlape.lab.inference.predicted_files.images_to_predict': None,
        'mmlape.lab.inference.prediction.model_of': SimpleNamespace(checkpoint='m.pth', task='t', classes=()),
        'mmlape.lab.inference.predicted_files.predict_files': (1, ()),
    },
    'visualize-pe': {
        'mmlape.backbones.open_models': dict(name='model'),
        'mmlape.projects.pe_figures.position.write_figures': ([], []),
        'mmlape.projects.pe_figures.position.numbers_table': None,
        'mmlape.projects.pe_figures.balance.measure_models': 'measured',
        'mmlape.projects.pe_figures.balance.write_balance': [],
        'mmlape.projects.pe_figures.bias_maps.write_bias_maps': [],
    },
    'plot-grad-norms': {
        'mmlape.lab.analysis.gradient_norms.read_norms': [NORMS],
        'mmlape.lab.analysis.gradient_norms.plot_norms': None,
    },
    'check-data': LOAD
    | {
        'mmlape.lab.datasets.checks.full_check': CHECKED,
        'mmlape.lab.datasets.checks.print_report': None,
        'mmlape.lab.datasets.checks.write_report': None,
        'mmlape.lab.analysis.dataset_page.write_page': 'page',
    },
    'new': {'mmlape.new.command.write_config': None},
    'make-mini-data': {'mmlape.lab.datasets.mini.make.make_mini_data': []},
    'checkpoint inspect': of_modules('checkpoint')
    | {'mmlape.checkpoint.converting.inspect': lambda path: {'to load it': path}},
    'checkpoint convert': of_modules('checkpoint') | {'mmlape.checkpoint.converting.convert': []},
    'checkpoint publish': of_modules('checkpoint')
    | {
        'mmlape.checkpoint.converting.publish': 'd-hash.safetensors',
        'mmlape.commands.checkpoint._leave_out': lambda src: src,
        'mmlape.lab.config.stored_config.published_config': 'config',
    },
    'checkpoint average': of_modules('checkpoint') | {'mmlape.checkpoint.converting.average': None},
    'export-onnx': LOAD
    | {
        'mmlape.lab.inference.trained_graph.export': 0.0,
        'mmlape.lab.inference.trained_graph.image_size': (8, 8),
        'mmlape.backbones.export_backbone': 0.0,
        'mmlape.lab.inference.trained_graph.complete': None,
        'mmlape.lab.inference.trained_graph.check': SimpleNamespace(passes=True),
        'mmlape.lab.inference.images.files_of': [],
    },
    'print-config': LOAD
    | {'mmlape.lab.config.schedule.shorten': None, 'mmlape.lab.config.config_file.differing_values': []},
    'list-studies': {
        'mmlape.lab.studies.packaged_studies': [SimpleNamespace(name='one')],
        'fnmatch.fnmatchcase': False,
    },
    'list-models': of_modules('list_models') | {'mmlape.models.model_names.list_models': []},
    'print-params': LOAD | {'mmlape.lab.training.optim.parameter_groups': [GROUP]},
    'model-cost': LOAD
    | {
        'mmlape.lab.analysis.cost.input_shape': (8, 8),
        'mmlape.lab.training.optim.build_model': 'model',
        'mmlape.lab.analysis.cost.model_cost': [],
    },
    'few-shot': LOAD
    | {
        'mmlape.projects.few_shot.dataset.few_shot_config': lambda cfg, *rest: cfg,
        'mmlape.lab.inference.evaluator.test': {},
    },
    'probe': {
        'mmlape.projects.probe.probing.probe_models': ['probe'],
        'mmlape.projects.probe.probing.write_probes': None,
        'mmlape.projects.probe.probing.fit_removal': None,
    },
    'size-sweep': {
        'mmlape.projects.size_sweep.sweep.read_models': (['models'], ['default, seed 3: failed']),
        'mmlape.projects.size_sweep.sweep.sweep_models': (SimpleNamespace(title='title'), TABLE, [Path('index.html')]),
    },
    'demo': {'mmlape.lab.experiments.demo.run_demo': None},
    'doctor': {'mmlape.lab.environment.stack_problems': [], 'mmlape.lab.environment.installed': None},
    'install-ops': {'mmlape.openmmlab.mmcv_ops.installed_ops': None, 'mmlape.openmmlab.mmcv_ops.install_ops': 'file'},
}
"""Of each command, with what they return."""


def holds_nothing(value, field):
    """Return whether a field of a dataclass is empty, as it is by default."""
    usual = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return usual in ('', {}, None, StudyText()) and getattr(value, field.name) == usual


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
        kept = [field for field in dataclasses.fields(value) if not holds_nothing(value, field)]
        value = {field.name: getattr(value, field.name) for field in kept}
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


def values_of(name, words):
    """Return what the arguments of a command are by its words."""
    command, *words = f'{name} {words}'.split()
    return vars(parse_arguments(fill_parser(argparse.ArgumentParser(), command), words))


def commands_of(text):
    """Yield each command of a recorded text, its words and those that it requires, and its cases.

    A case is of words, of others beside them, and of the words of the command without them.
    """
    for part in text.split('\n\n'):
        words, _, required = part.partition('\n')[0].partition(' | ')
        name = max((name for name in FUNCTIONS if f'{words} '.startswith(f'{name} ')), key=len)
        line = words.removeprefix(name).strip()
        cases = re.findall(r'^  (\S.*?)(?:  beside (.*?))?(?:  of (.*))?$', part, re.M)
        yield name, line, required, [(case, beside, own or line) for case, beside, own in cases]


def test_each_option_arrives_where_it_belongs(calls_of, tmp_path):
    """What is called stands in the recorded text: another option is another line there, behind two blanks."""
    told, seen = [], set()
    for name, line, required, cases in each(commands_of((FOLDER / 'options.txt').read_text())):
        of_line = functools.cache(functools.partial(calls_of, FUNCTIONS[name], name))
        told += ['', ' '.join(filter(None, [name, line, required and f'| {required}']))]
        told += difference(({}, ''), of_line(line, required, ''))
        tried = set()
        for words, beside, own in cases:
            own_line = own.removeprefix('nothing')
            changed = (own_line, words) if words.startswith('-') else (words, '')
            usual = values_of(name, f'{own_line} {required} {beside}')
            chosen = values_of(name, f'{changed[0]} {required} {beside} {changed[1]}')
            tried |= {key for key in chosen if chosen[key] != usual[key]}
            before, after = of_line(own_line, required, beside), of_line(changed[0], required, beside, changed[1])
            found = [f'    {entry}' for entry in difference(before, after)]
            assert found, f'{name}: `{words}` changes nothing'
            more = (f'  beside {beside}' if beside else '') + (f'  of {own}' if own != line else '')
            told += [f'  {words}{more}', *found]
        places = {option: action.dest if action else 'extra' for option, action in ACTIONS[name].items()}
        untried = [option for option, place in places.items() if place not in tried and option != '--help']
        assert not untried, f'{name}: {untried} are changed by no line'
        seen.add(name)
    assert seen == set(FUNCTIONS) == set(ACTIONS)
    assert_told('options', '\n'.join(told[1:]), folder=tmp_path)


def test_an_option_that_would_do_nothing_or_has_no_such_value_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr('signal.signal', lambda *_: None)
    (tmp_path / 'a.py').touch()

    def refused(words):
        _, errors, status = call_command(words, capsys)
        assert status in ('status 1', 'status 2') and [path.name for path in tmp_path.iterdir()] == ['a.py']
        return [errors.splitlines()[-1], status]

    assert_calls_told('refused-options', refused)


def test_an_unknown_option_of_any_command_is_one_line_behind_its_usage(capsys):
    for name, line, required, _ in each(commands_of((FOLDER / 'options.txt').read_text())):
        assert main(f'{name} {line} {required} --no-such-option'.split()) == 2
        *usage, error = capsys.readouterr().err.strip().splitlines()
        assert usage[0].startswith(f'usage: mmlape {name.split()[0]} ') and '--no-such-option' in error
