"""The generated parts of pages: `<!-- generated: NAME -->` in a page becomes what the function NAME returns.

A paragraph in italics behind it is for readers of the checkout: it says where they find the same. The parts are
Markdown, made from the live package: parsers, signatures, docstrings; `catalogue.py` reads the metafiles.
"""

import argparse
import ast
import dataclasses
import functools
import importlib
import inspect
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from catalogue import papers, table
from figures import draw_floors, draw_kinds, draw_objects
from mmengine.registry import Registry
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import mmlape
from mmlape import registry
from mmlape.commands import COMMANDS, GROUPS, fill_parser
from mmlape.console.quiet import quiet_stack
from mmlape.lab.experiments.averages import Average, Evaluations, Summary
from mmlape.lab.experiments.report import data
from mmlape.models.adapter.model import AdapterMixin
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.position import Joining
from mmlape.models.vit.model import VisionTransformer

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = (
    'base.backbone.BaseBackbone', 'base.isotropic.IsotropicBackbone', 'base.checkpoint.CheckpointAdapter',
    'layers.transformer_layer.BaseTransformerLayer', 'adapter.model.AdapterMixin', 'position.AbsolutePosition',
    'position.AttentionPosition', 'position.LayerPosition',
)  # fmt: skip


GENERATED_PART = re.compile(r'^<!-- generated: (\w+) -->\n(?:\n\*[^*].*\n)?', re.M)

PAGE = re.compile(r'\bdocs/[\w/-]+\.md\b')
"""A page, as docstrings and help texts name it."""


def text(words: str) -> str:
    """Return a text of a parser or docstring as Markdown: what is no code is plain, and a page is a link."""
    parts = re.split(rf'(``.+?``|`.+?`|{PAGE.pattern})', ' '.join(words.split()))
    return ''.join(_link(part) if number % 2 else _escape(part) for number, part in enumerate(parts))


def _escape(part: str) -> str:
    return re.sub(r'([*_<\[|\\$])', r'\\\1', part)


def _link(part: str) -> str:
    return f'[{_title(part)}](/{part})' if PAGE.fullmatch(part) else part


def _title(page: str) -> str:
    return re.search(r'^# (.+)$', (ROOT / page).read_text(), re.M)[1]


def link_pages(app: Sphinx, what: str, name: str, found: object, options: object, lines: list[str]) -> None:
    """Make links of the pages that a docstring names."""
    lines[:] = [PAGE.sub(lambda match: f':doc:`{_title(match[0])} </{match[0][:-3]}>`', line) for line in lines]


# commands


def commands() -> str:
    """Return a section for each group of sub-commands: those at a glance, then the usage and every option of each."""
    lines = []
    for group in GROUPS:
        below = {name: command for name, command in COMMANDS.items() if command.group == group}
        lines.append(f'\n## {group}\n\n| command | what it does |\n| --- | --- |')
        lines += [f'| [`{name}`](#mmlape-{name}) | {text(command.text)} |' for name, command in below.items()]
        for name, command in below.items():
            parser = argparse.ArgumentParser(f'mmlape {name}', description=command.module.__doc__)
            lines += _parser(fill_parser(parser, name), '###')
    return '\n'.join(lines)


def _parser(parser: argparse.ArgumentParser, heading: str) -> Iterator[str]:
    formatter = argparse.HelpFormatter(parser.prog, width=80)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
    yield f'\n{heading} {parser.prog}\n\n{text(parser.description or "")}\n\n```text\n{formatter.format_help()}```\n'
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        if group.title not in ('positional arguments', 'options') and actions:
            yield f'**{group.title}**\n'
        for action in actions:
            if isinstance(action, argparse._SubParsersAction):
                for one in action.choices.values():
                    yield from _parser(one, f'{heading}#')
            elif not isinstance(action, argparse._HelpAction):
                option = formatter._format_action_invocation(action)
                if not action.help:
                    raise ExtensionError(f'{parser.prog}: {option} has no help')
                yield f'`{option}`\n: {text(formatter._expand_help(action))}\n'


# the numbers of a report


def report_fields() -> str:
    """Return a table of the fields of each part that `report.json` and `summary.json` are made of."""
    lines = []
    for part, fields in data.FIELDS.items():
        lines += [f'\n## {part}\n', '\n| key | meaning |', '| --- | --- |']
        lines += [f'| `{name}` | {text(said)} |' for name, said in fields.items()]
    for kind in (Summary, Evaluations, Average):
        described: dict[str, str] = {}
        for base in reversed(kind.__mro__):
            told = re.search(r'^Attributes:\n(.*)', inspect.cleandoc(base.__doc__ or ''), re.S | re.M)
            described |= re.findall(r'^    (\w+): (.*(?:\n {8}.*)*)', told[1], re.M) if told else {}
        names = [field.name for field in dataclasses.fields(kind)]
        if names != list(described):
            raise ExtensionError(f'{kind.__name__} has the fields {names}, its docstring describes {list(described)}')
        lines += [f'\n## {kind.__name__}\n', text(inspect.getdoc(kind).partition('\n\n')[0])]
        lines += ['\n| key | meaning |', '| --- | --- |']
        lines += [f'| `{name}` | {text(said)} |' for name, said in described.items()]
    return '\n'.join(lines)


# models


@functools.cache
def registered(name: str) -> dict[str, type]:
    """Return the classes of a registry by name."""
    found: Registry = getattr(registry, name)
    with quiet_stack():
        if hasattr(found, 'import_all'):
            found.import_all()
        found.import_from_location()
    return dict(found.module_dict)


def options() -> str:
    """Return a table of the arguments of each backbone, with those that it passes on."""
    lines = []
    for name, kind in registered('MODELS').items():
        if issubclass(kind, BaseBackbone):
            lines += [f'\n## {name}\n', text(inspect.getdoc(kind).partition('\n\n')[0])]
            lines += ['\n| argument | default | meaning |', '| --- | --- | --- |']
            lines += [f'| `{key}` | {default} | {said} |' for key, default, said in _arguments(kind)]
    return '\n'.join(lines)


def _arguments(kind: type) -> Iterator[tuple[str, str, str]]:
    """Yield name, default and description of a constructor's arguments, with those that ``**kwargs`` passes on."""
    done = {'self'}
    for base in kind.__mro__:
        if '__init__' not in vars(base):
            continue
        parameters = inspect.signature(base.__init__).parameters
        for name, one in parameters.items():
            if name not in done and (one.kind == one.POSITIONAL_OR_KEYWORD or f'**{name}' in _docs(base)):
                default = '' if one.default is one.empty else f'`{one.default!r}`'.replace('|', r'\|')
                shown = f'**{name}' if one.kind == one.VAR_KEYWORD else name
                yield shown, default, text(_described(kind, name))
        calls = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(base.__init__))))
        given = [call for call in calls if isinstance(call, ast.Call) and ast.unparse(call.func) == 'super().__init__']
        keywords = [keyword for call in given for keyword in call.keywords]
        passed = {keyword.arg for keyword in keywords if keyword.arg}
        unnamed = [node for keyword in keywords if not keyword.arg for node in ast.walk(keyword.value)]
        passed |= {node.id for node in unnamed if isinstance(node, ast.Name)}
        if 'kwargs' not in passed:
            return
        fixed = getattr(sys.modules[base.__module__], 'FIXED', ())  # the base's, which have one value here
        done |= {*parameters, *passed, *fixed}


def _described(kind: type, name: str) -> str:
    """Return what the first docstring that describes an argument says; by default it means what it does in the ViT."""
    for base in kind.__mro__:
        said = _docs(base).get(name) or _docs(base).get(f'**{name}')
        other = re.fullmatch(r'As in ``(\w+)``\.', said or '')
        if other:
            return _described(registered('MODELS')[other[1]], name)
        if said:
            return said
    return _docs(VisionTransformer).get(name, '')


@functools.cache
def _docs(kind: type) -> dict[str, str]:
    args = re.search(r'^Args:\n(.*?)(?:\n\n|\Z)', inspect.cleandoc(vars(kind).get('__doc__') or ''), re.S | re.M)
    return dict(re.findall(r'^    ([\w*]+): (.*(?:\n {8}.*)*)', args[1], re.M)) if args else {}


# the API


def api_functions() -> str:
    """Return what ``mmlape`` exports."""
    names = [name for name in mmlape.__all__ if name[0].islower()]  # its classes are on the page of the models
    return ''.join(_autodoc(f'mmlape.{name}', getattr(mmlape, name)) for name in names)


def api_models() -> str:
    """Return the registered models."""
    backbones, adapters, others = [], [], []
    for name, kind in registered('MODELS').items():
        group = adapters if issubclass(kind, AdapterMixin) else backbones if issubclass(kind, BaseBackbone) else others
        group.append(_autodoc(f'mmlape.{name}', kind, '###'))
    titles = ('Backbones', 'Backbones with ViT-Adapter', 'Complete models, heads, necks and their parts')
    groups = zip(titles, (backbones, adapters, others))
    return '\n'.join(f'\n## {title}\n\n{"".join(group)}' for title, group in groups)


def api(titles: dict[str, str]) -> str:
    """Return the classes of registries, each under a title; '{}' stands for the registered name."""
    lines = []
    for name, (title, form) in titles.items():
        names: dict[type, list[str]] = {}
        for one, kind in registered(name).items():
            names.setdefault(kind, []).append(form.format(one))
        lines.append(f'\n## {title}\n')
        lines += [_autodoc(', '.join(given), kind, '###', kind is Joining) for kind, given in names.items()]
    return '\n'.join(lines)


def api_contracts() -> str:
    """Return the base classes that a user's file derives from, with their members."""
    return ''.join(_autodoc(path.rpartition('.')[2], _find(path), members=True) for path in CONTRACTS)


def _find(path: str) -> type:
    module, _, name = path.rpartition('.')
    return getattr(importlib.import_module(f'mmlape.models.{module}'), name)


def _autodoc(title: str, what: type, heading: str = '##', members: bool = False) -> str:
    directive = 'autoclass' if inspect.isclass(what) else 'autofunction'
    option = '   :members:\n' if members else ''
    path = f'{what.__module__}.{what.__qualname__}'
    return f'\n{heading} {title}\n\n```{{eval-rst}}\n.. {directive}:: {path}\n{option}```\n'


def kinds() -> str:
    """Return a section with a figure for each kind of position encoding."""
    lines = []
    for name, contract, summary, alt, file in draw_kinds(ROOT / 'build' / 'figures'):
        lines += [f'\n## {name}\n', f'{text(summary)} It is {contract}.\n', f'![{alt}](/{file.relative_to(ROOT)})\n']
    return '\n'.join(lines)


def floors() -> str:
    """Return the figure of the package's folders."""
    file = ROOT / 'build' / 'figures' / 'floors.png'
    rows = draw_floors(file)
    alt = f'The folders of mmlape from the top down: {"; ".join(rows)}. No arrow points up.'
    return f'![{alt}](/{file.relative_to(ROOT)})\n'


def mutants() -> str:
    """Return what the last recorded run of `tests/mutants.py` found."""
    found = _record('mutants')
    if not found:
        return 'No run is recorded yet.'
    killed, drawn, share, low, high = (found[key] for key in ('killed', 'drawn', 'share', 'low', 'high'))
    rate = f'**{killed} of {drawn} mutants died, {share:.0%}** of all by their folders (95 %: {low:.0%} to {high:.0%})'
    source = f'{found["date"]}, commit `{found["commit"]}`, seed {found["seed"]}, drawn from {found["population"]:,}'
    rows = '\n'.join(
        f'| {name} | {died} | {of} | {died / of:.0%} |' for name, (died, of, *_) in found['folders'].items()
    )
    alive = '\n'.join(f'- `{line.replace("`", "")}`' for line in found['alive'])
    return f"""{rate}: {source}. No test had been written for what this seed draws. No fast test runs the line of
{found['not_reached']} of them.

| folder | died | drawn | share |
| --- | ---: | ---: | ---: |
{rows}

Those that are alive:

{alive}
"""


def test_time() -> str:
    """Return what the last recorded run of all tests took."""
    found = _record('test-time')
    if not found:
        return 'No run is recorded yet.'
    busy = f', while {found["load"]} processes waited for each' if found['load'] > 1.2 else ''
    time = f'{found["tests"]:,} tests in {found["minutes"]} minutes on {found["cores"]} cores{busy}'
    return f'The last recorded run: {time}, on {found["date"]}.'


def _record(name: str) -> dict | None:
    file = ROOT / 'docs' / 'results' / f'{name}.json'
    return json.loads(file.read_text()) if file.is_file() else None


def objects() -> str:
    """Return images of scenes of objects, or how to have them."""
    drawn = [f'![{alt}](/{file.relative_to(ROOT)})\n' for alt, file in draw_objects(ROOT / 'build' / 'figures')]
    return '\n'.join(drawn) or 'This site was built without the stamps; with them, examples stand here.\n'


GENERATED = dict(
    floors=floors,
    objects=objects,
    mutants=mutants,
    test_time=test_time,
    commands=commands,
    report_fields=report_fields,
    options=options,
    functions=api_functions,
    models=api_models,
    contracts=api_contracts,
    catalogue=table,
    papers=papers,
    kinds=kinds,
    encodings=lambda: api(dict(POSITION_ENCODINGS=('Kinds', '{}'), JOININGS=('Joinings', '{}'))),
    training=lambda: api(
        dict(
            HOOKS=('Hooks', 'mmlape.{}'),
            OPTIM_WRAPPERS=('Optimiser wrappers', 'mmlape.{}'),
            OPTIM_WRAPPER_CONSTRUCTORS=('Parameter groups', 'mmlape.{}'),
            PARAM_SCHEDULERS=('Learning rate', 'mmlape.{}'),
            WEIGHT_INITIALIZERS=('Initial values', 'mmlape.{}'),
            MODEL_WRAPPERS=('Distributed models', 'mmlape.{}'),
        )
    ),
    data=lambda: api(
        dict(
            DATASETS=('Datasets', 'mmlape.{}'),
            TRANSFORMS=('Transforms', 'mmlape.{}'),
            METRICS=('Metrics', 'mmlape.{}'),
        )
    ),
)


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Write the generated parts into a page; links to folders go to their README, those to configs/README.md here."""
    folder = (ROOT / page).parent

    def link(match: re.Match) -> str:
        path = (folder / match[1]).resolve()
        if path == ROOT / 'configs' / 'README.md':
            return '](/docs/reference/catalogue.md)'
        return f']({match[1].rstrip("/")}/README.md)' if (path / 'README.md').is_file() else match[0]

    words = re.sub(r'\]\(([^):#]+)\)', link, source[0])
    source[0] = GENERATED_PART.sub(lambda match: GENERATED[match[1]]() + '\n', words)


def copy_configs(app: Sphinx, error: Exception | None) -> None:
    """Put configs and studies beside the pages, for the links of the catalogue."""
    for name in () if error else ('configs', 'studies'):
        ignore = shutil.ignore_patterns('*.md', '__pycache__')
        shutil.copytree(ROOT / name, Path(app.outdir) / name, ignore=ignore, dirs_exist_ok=True)


def setup(app: Sphinx) -> dict:
    """Connect the functions above; the package is imported before Sphinx forks its readers."""
    for name in ('MODELS', 'HOOKS', 'DATASETS', 'TRANSFORMS', 'METRICS', 'MODEL_WRAPPERS'):
        registered(name)
    app.connect('source-read', fill)
    app.connect('autodoc-process-docstring', link_pages)
    app.connect('build-finished', copy_configs)
    return dict(parallel_read_safe=True, parallel_write_safe=True)
