"""The generated parts of pages: `<!-- generated: NAME -->` in a page becomes what the function NAME returns.

They are Markdown, made from the live package: parsers, signatures, docstrings, metafiles.
"""

import argparse
import functools
import importlib
import inspect
import re
import shutil
from collections.abc import Iterator
from html import escape
from pathlib import Path, PurePosixPath

import yaml
from catalogue import figures as paper_figures
from catalogue import what
from figures import draw_kinds
from mmengine.registry import Registry
from sphinx.application import Sphinx

import mmlape
from mmlape import registry
from mmlape.cli import COMMANDS
from mmlape.engine.study_file import read_study
from mmlape.models.adapter.model import AdapterMixin
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.position import Joining
from mmlape.quiet import quiet_stack

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = (
    'base.backbone.BaseBackbone', 'base.isotropic.IsotropicBackbone', 'base.checkpoint.CheckpointAdapter',
    'layers.transformer_layer.BaseTransformerLayer', 'adapter.model.AdapterMixin', 'position.AbsolutePosition',
    'position.AttentionPosition', 'position.LayerPosition',
)  # fmt: skip


def text(words: str) -> str:
    """Return a text of a parser or docstring as Markdown: what is no code is plain."""
    parts = re.split(r'(``.+?``|`.+?`)', ' '.join(words.split()))
    return ''.join(
        part if number % 2 else re.sub(r'([*_<\[|\\$])', r'\\\1', part) for number, part in enumerate(parts)
    )


# commands


def commands() -> str:
    """Return a section for each sub-command: its usage, and every option."""
    return '\n'.join(line for name in COMMANDS for line in _command(name))


def _command(name: str) -> Iterator[str]:
    module = importlib.import_module(f'mmlape.commands.{name.replace("-", "_")}')
    parser = argparse.ArgumentParser(f'mmlape {name}', description=module.__doc__)
    module.add_arguments(parser)
    yield from _parser(parser, '##')


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
                for one, listed in zip(action.choices.values(), action._choices_actions):
                    one.description = one.description or f'{listed.help[0].upper()}{listed.help[1:]}.'
                    yield from _parser(one, f'{heading}#')
            elif not isinstance(action, argparse._HelpAction):
                yield f'`{formatter._format_action_invocation(action)}`\n: {text(formatter._expand_help(action))}\n'


# models


@functools.cache
def registered(name: str) -> dict[str, type]:
    """Return the classes of a registry by name."""
    found: Registry = getattr(registry, name)
    with quiet_stack():
        if isinstance(found, registry.LazyRegistry):
            found.import_all()
        found.import_from_location()
    return dict(found.module_dict)


def options() -> str:
    """Return a table of the arguments of each backbone, with those that it passes on."""
    lines = []
    for name, kind in registered('MODELS').items():
        if issubclass(kind, BaseBackbone):
            lines += [f'\n## {name}\n', text(_summary(kind)), '\n| argument | default | |', '| --- | --- | --- |']
            lines += [f'| `{key}` | {default} | {said} |' for key, default, said in _arguments(kind)]
    return '\n'.join(lines)


def _summary(kind: type) -> str:
    return inspect.getdoc(kind).partition('\n\n')[0]


def _arguments(kind: type) -> Iterator[tuple[str, str, str]]:
    """Yield name, default and description of a constructor's arguments, with those that ``**kwargs`` passes on."""
    done = {'self'}
    for place, base in enumerate(kind.__mro__):
        parameters = inspect.signature(base.__init__).parameters.values() if '__init__' in vars(base) else ()
        for one in parameters:
            if one.kind == one.POSITIONAL_OR_KEYWORD and one.name not in done:
                done.add(one.name)
                default = '' if one.default is one.empty else f'`{one.default!r}`'.replace('|', r'\|')
                yield one.name, default, text(_described(kind.__mro__[place:], one.name))
        if parameters and not any(one.kind == one.VAR_KEYWORD for one in parameters):
            return


def _described(mro: tuple[type, ...], name: str) -> str:
    """Return what the first docstring that describes an argument says; 'As in ``X``.' is looked up in X."""
    for base in mro:
        said = _docs(base).get(name)
        other = re.fullmatch(r'As in ``(\w+)``\.', said or '')
        if other:
            return _described(registered('MODELS')[other[1]].__mro__, name)
        if said:
            return said
    return ''


@functools.cache
def _docs(kind: type) -> dict[str, str]:
    args = re.search(r'^Args:\n(.*?)(?:\n\n|\Z)', inspect.cleandoc(vars(kind).get('__doc__') or ''), re.S | re.M)
    return dict(re.findall(r'^    (\w+): (.*(?:\n {8}.*)*)', args[1], re.M)) if args else {}


# the API


def api_functions() -> str:
    """Return what ``mmlape`` exports."""
    names = [name for name in mmlape.__all__ if not name.startswith('_')]
    return ''.join(_autodoc(f'mmlape.{name}', getattr(mmlape, name)) for name in names)


def api_models() -> str:
    """Return the registered models."""
    groups = {'Backbones': [], 'Backbones with ViT-Adapter': [], 'Complete models, heads, necks and their parts': []}
    backbones, adapters, others = groups.values()
    for name, kind in registered('MODELS').items():
        (
            adapters if issubclass(kind, AdapterMixin) else backbones if issubclass(kind, BaseBackbone) else others
        ).append(_autodoc(f'mmlape.{name}', kind, '###'))
    return '\n'.join(f'\n## {title}\n\n{"".join(group)}' for title, group in groups.items())


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


# the catalogue

TASKS = dict(detection='detection', segmentation='segmentation', classification='classification', lit='text tuning')


def catalogue() -> str:
    """Return every config and every arm of a study as one table, which `catalogue.js` filters."""
    rows, known = [], {}
    for metafile in yaml.safe_load((ROOT / 'model-index.yml').read_text())['Import']:
        for model in yaml.load((ROOT / metafile).read_text(), yaml.BaseLoader)['Models']:
            path, name = PurePosixPath(model['Config']), model['Name']
            known[str(path.with_suffix('')).removeprefix('configs/')] = model
            size = f'{int(model["Metadata"]["Parameters"]) / 1e6:.1f}M'
            joining = 'lape' if 'lape' in re.split('[-_]', name) else 'default'
            facts = (TASKS[path.parts[1]], model['In Collection'], joining, name.rpartition('_')[2], size)
            rows.append((str(path), name, what(ROOT / path), *facts, paper_figures(model).replace('\\', '')))
    for file in sorted((ROOT / 'studies').glob('*.yml')):
        study = read_study(file)
        for arm in study.arms:
            base = arm.base.removeprefix('mmlape::')
            joining = _joining(arm.overrides) or ('lape' if 'lape' in re.split('[-_]', base) else 'default')
            figure = arm.figure and f'{arm.figure} {study.metric}{" vs " + arm.relative_to if arm.relative_to else ""}'
            quoted = f'{figure} ({study.paper.partition(" (")[0]})' if figure else ''
            facts = (TASKS[base.partition('/')[0]], known[base]['In Collection'], joining, base.rpartition('_')[2], '')
            rows.append(
                (f'studies/{file.name}', f'{file.name}:{arm.name}', f'{study.title}: {arm.title}', *facts, quoted)
            )
    head = ('config or arm', 'what it is', 'task', 'model', 'joining', 'data', 'parameters', 'figures of the papers')
    lines = ['```{raw} html', '<div class="table-wrapper"><table class="docutils" id="catalogue"><thead><tr>']
    lines += [*(f'<th>{title}</th>' for title in head), '</tr></thead><tbody>']
    for link, name, *cells in rows:
        named = f'<a href="../../{link}"><code>{escape(name)}</code></a>'
        lines.append(f'<tr><td>{named}</td>' + ''.join(f'<td>{escape(cell)}</td>' for cell in cells) + '</tr>')
    return '\n'.join([*lines, '</tbody></table></div>', '```'])


def _joining(overrides: dict) -> str | None:
    backbone = overrides.get('model.backbone')
    nested = backbone.get('pe_joining') if isinstance(backbone, dict) else None
    return overrides.get('model.backbone.pe_joining') or nested


def kinds() -> str:
    """Return a section with a figure for each kind of position encoding."""
    lines = []
    for name, contract, summary, alt, file in draw_kinds(ROOT / 'build' / 'docs' / 'figures'):
        lines += [f'\n## {name}\n', f'{text(summary)} It is {contract}.\n', f'![{alt}](/{file.relative_to(ROOT)})\n']
    return '\n'.join(lines)


GENERATED = dict(
    commands=commands,
    options=options,
    functions=api_functions,
    models=api_models,
    contracts=api_contracts,
    catalogue=catalogue,
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
    """Write the generated parts into a page; a link to a folder goes to its README, one to the list of configs here."""
    folder = (ROOT / page).parent

    def link(match: re.Match) -> str:
        path = (folder / match[1]).resolve()
        if path == ROOT / 'configs' / 'README.md':
            return '](/docs/reference/catalogue.md)'
        return f']({match[1].rstrip("/")}/README.md)' if (path / 'README.md').is_file() else match[0]

    words = re.sub(r'\]\(([^):#]+)\)', link, source[0])
    source[0] = re.sub(r'<!-- generated: (\w+) -->', lambda match: GENERATED[match[1]](), words)


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
    app.connect('build-finished', copy_configs)
    return dict(parallel_read_safe=True, parallel_write_safe=True)
