"""The code blocks of the documentation: found, checked without being run, and run as a newcomer would.

``bash``, ``python`` and ``yaml`` blocks are code; ``text`` is what a command prints, or a layout of folders. A code
block whose first line is ``# NAME.py`` is that file. The blocks of a tutorial run, in the build of the site, which
shows what they print; those of other pages are checked.
``<!-- run -->`` or ``<!-- check -->`` before a block says otherwise. ``<!-- run: A=1 -->`` sets variables behind it,
so that a page takes less time; ``<!-- check: model -->`` lists names and files that the reader has.
"""

import argparse
import ast
import functools
import importlib
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import tiny
import torch
from mmengine.config import Config

from mmlape.commands import COMMANDS, fill_parser, parse_arguments
from mmlape.lab.config.config_file import load_config
from mmlape.lab.config.known_keys import check_keys
from mmlape.lab.experiments.planning import choose, read_arms
from mmlape.lab.studies import is_study, read_study
from mmlape.registry import MODELS

ROOT = tiny.ROOT
LANGUAGES = {'bash': 'bash', 'python': 'python', '{code-cell} python': 'python', 'yaml': 'yaml', 'text': 'text'}
BLOCK = re.compile(
    r'^(?:<!-- (?P<mode>run|check)(?:: (?P<note>.*))? -->\n)?```(?P<language>.*)\n(?P<code>(?s:.*?))^```$', re.M
)
FILE = re.compile(r'# ([\w./-]+\.(?:py|yml))\n')
OWN = re.compile(r'[A-Z][A-Z_]*(\.\w+)?')
"""A file or name of the reader: CONFIG, CHECKPOINT, OUT.pth."""
FOREIGN = ('apt-get', 'cat', 'cp', 'curl', 'docker', 'dpkg', 'git', 'hf', 'ls', 'mkdir', 'pre-commit', 'tar', 'uv')
"""Programs whose arguments are not checked."""


@dataclass(frozen=True)
class Block:
    """A block of a page: where it is, its language and text, and what the comment before it says."""

    page: Path
    line: int
    language: str
    code: str
    mode: str
    note: str

    def __str__(self) -> str:
        return f'{os.path.relpath(self.page, ROOT)}:{self.line}'

    @property
    def runs(self) -> bool:
        """Whether the tests run it, rather than check it."""
        return self.mode == 'run' or (self.mode != 'check' and self.page.parent.name == 'tutorials')

    @property
    def file(self) -> str:
        """The file that the block is; '' if it is none."""
        named = FILE.match(self.code)
        return named[1] if named else ''


def blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page, in order."""
    text = page.read_text()
    found = []
    for match in BLOCK.finditer(text):
        line = text.count('\n', 0, match.start('language')) + 1
        language = LANGUAGES.get(match['language'], match['language'])
        found.append(Block(page, line, language, match['code'], match['mode'] or '', match['note'] or ''))
        known = language in LANGUAGES or re.match(r'\{[\w-]+\}', language)  # or a directive of the site
        assert known, f'{found[-1]}: {language!r} is none of {", ".join(LANGUAGES)}'
    assert text.count('```') == 2 * len(found), f'{page}: a block is indented, or has no end'
    return [block for block in found if block.language in ('bash', 'python', 'yaml')]


def check(block: Block, files: set[str], folder: Path) -> None:
    """Check a block without running it; the current folder is that of the repository.

    Args:
        block: The block.
        files: The files that blocks of the page are.
        folder: An empty folder to work in.

    Raises:
        AssertionError: There is no such command, option, file, module or name in a module.
        MMLaPEError: A config, a study's arm, or a change of it does not resolve.
    """
    if block.language == 'bash':
        own = ''.join(f'{name}={name}\n' for name in block.note.split() if name.isidentifier())
        calls = record(own + block.code, folder)
        assert calls or '=' in block.code, 'no command'
        for program, *words in calls:
            check_call(program, words, {*files, *block.note.split()})
    elif block.language == 'python':
        check_python(block, files, folder)
    else:
        (folder / 'study.yml').write_text(block.code)
        read_study(folder / 'study.yml')


# the commands of a pipe write at the same time: each in one piece
PRELUDE = """set -eu
cd() { :; }
command_not_found_handle() { local call; printf -v call '%s\\x1f' "$@"; printf '%s\\x1e' "$call" >> calls; }
"""


def record(code: str, folder: Path) -> list[list[str]]:
    """Return a block's commands as bash calls them, with loops, braces and variables resolved; none of them runs."""
    stub = folder / 'stub'
    stub.write_text(f'#!/bin/bash\n{PRELUDE}command_not_found_handle "$0" "$@"\n')
    stub.chmod(0o755)
    for name in re.findall(r'(?<![\w/.])(?:tools|tests|\.venv|\.ci)/[\w/.-]+', code):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith('/activate'):
            path.touch()
        elif not path.exists():
            path.symlink_to(stub)
    (folder / 'calls').touch()
    code = PRELUDE + re.sub(r'>+ *[~\w./$-]+', '', code)  # nothing is written
    done = subprocess.run(['/bin/bash', '-c', code], cwd=folder, env={'PATH': '/none'}, text=True, capture_output=True)
    assert not done.returncode, done.stderr
    return [words.split('\x1f')[:-1] for words in (folder / 'calls').read_text().split('\x1e')[:-1]]


def check_call(program: str, words: list[str], files: set[str]) -> None:
    """Check one command: there is such a program, its parser takes the arguments, and what they name resolves."""
    program = program.rpartition('/bin/')[2]
    if program == 'python' and words[:2] == ['-m', 'mmlape']:
        program, *words = words[1:]
    for word in words:
        check_name(word, files)
    if program == 'mmlape':
        return check_mmlape(words[0], words[1:])
    if program.startswith('tools/'):
        return check_tool(ROOT / program, words)
    if program == 'python':
        return check_script(words)
    if program == 'make':
        targets = re.findall(r'^([a-z-]+):', (ROOT / 'Makefile').read_text(), re.M)
        unknown = [word for word in words if word not in targets and not re.fullmatch(r'[A-Z]+=.*', word)]
    elif program == 'pip':
        extras = re.findall(r'^(\w+) = \[', (ROOT / 'pyproject.toml').read_text(), re.M)
        unknown = [extra for word in words for extra in re.findall(r'\[(\w+)\]', word) if extra not in extras]
    else:
        unknown = [program] if program not in FOREIGN and not (ROOT / program).is_file() else []
    assert not unknown, f'{program}: unknown {unknown}'


def check_name(word: str, files: set[str]) -> None:
    """Check that a config, script, study or arm exists and resolves."""
    name = (word.partition('=')[2] or word).partition('@')[0]
    own = name.partition(':')[0] in files
    if name.endswith('.yml') and name.startswith('mmlape::'):
        read_arms([name], [])
    elif name.startswith(('mmlape::', 'configs/')) or (is_study(name) and ':' in name and not own):
        load(name)
    elif name.endswith(('.py', '.yml')):
        assert name in files or (ROOT / name).is_file() or OWN.fullmatch(name), f'there is no file {name}'


@functools.cache
def load(name: str, *options: str) -> Config:
    """Return a config of the package, or an arm of a study."""
    return load_config(name, [option for option in options if not option.startswith('data_root=')])


def check_tool(script: Path, words: list[str]) -> None:
    """Check a call of a script in tools/: those of shells take processes or a partition and a job besides."""
    assert script.is_file(), f'there is no {script}'
    name = script.stem.replace('_', '-')
    launcher, _, launched = name.partition('-')
    if script.suffix == '.sh':
        words, name = words[2 if launcher == 'slurm' else 0 :], launched
        number = next((place for place, word in enumerate(words) if word.isdigit()), None)
        words = [word for place, word in enumerate(words) if place != number]
    check_mmlape(name, words)


@functools.cache
def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of a sub-command."""
    assert name in COMMANDS, f'there is no command {name!r}'
    return fill_parser(argparse.ArgumentParser(f'mmlape {name}', allow_abbrev=False), name)


def parse(name: str, words: list[str]) -> argparse.Namespace:
    """Return the arguments of a sub-command."""
    try:
        return parse_arguments(parser_of(name), words)
    except SystemExit:
        raise AssertionError(f'mmlape {name} does not take {words}') from None


def check_mmlape(name: str, words: list[str]) -> None:
    """Check a sub-command: its parser takes the arguments, its config the changes; studies have the arms."""
    if words == ['--help']:
        return
    args = parse(name, words)
    if getattr(args, 'extra', None):
        parse('train', ['CONFIG', *args.extra])
    config = getattr(args, 'config', None)
    if isinstance(config, str) and not OWN.fullmatch(config) and (ROOT / config.partition(':')[0]).is_file():
        load(config, *(getattr(args, 'cfg_options', None) or ()))
    if name == 'multi-seed' and not args.slurm and not any(OWN.fullmatch(word) for word in words):
        arms, *_ = read_arms(args.config, args.cfg_options, args.arm)
        assert choose(arms, args.arms or ['*'])


def check_script(words: list[str]) -> None:
    """Check a call of Python: the script or module exists, and its help knows the options."""
    script = words[: 2 if words[0] == '-m' else 1]
    options = [word for word in words[len(script) :] if word.startswith('--')]
    if options:
        known = help_of(*script)
        unknown = [option for option in options if not re.search(rf'(?<![\w-]){option}\b', known)]
        assert not unknown, f'{script} does not know {unknown}'


@functools.cache
def help_of(*script: str) -> str:
    """Return the help of a script of the repository."""
    return tiny.run(sys.executable, *script, '--help', cwd=ROOT)


def check_python(block: Block, files: set[str], folder: Path) -> None:
    """Check Python: its names are defined, its imports and their attributes exist, and as a config it resolves."""
    code = block.code
    tree = ast.parse(code)
    (folder / 'block.py').write_text(''.join(f'{name} = 0\n' for name in block.note.split()) + code)
    command = [sys.executable, '-m', 'ruff', 'check', '-q', '--isolated', '--select', 'F821', 'block.py']
    linted = subprocess.run(command, cwd=folder, text=True, capture_output=True)
    assert not linted.returncode, linted.stdout + linted.stderr
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.partition('.')[0]] = importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and f'{node.module}.py' not in files:
            module = importlib.import_module(node.module)
            known |= {alias.asname or alias.name: getattr(module, alias.name) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            attribute(node, known)
    if all(isinstance(node, ast.Assign | ast.Expr) for node in tree.body) and 'type' in code:
        check_config(code, folder)


def attribute(node: ast.expr, known: dict) -> object:
    """Return what ``module.name`` is; None if it is not of an import."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    value = attribute(node.value, known) if isinstance(node, ast.Attribute) else None
    if value is None or not isinstance(value, type | type(sys)):
        return None
    return getattr(value, node.attr)


class Assignments(dict):
    """The variables of a module that remembers every value that they had."""

    def __init__(self):
        super().__init__()
        self.all = []

    def __setitem__(self, name, value):
        super().__setitem__(name, value)
        self.all.append((name, value))


def check_config(code: str, folder: Path) -> None:
    """Check the parts of a config: the types exist and take the arguments; backbones are built, without memory."""
    if '_base_' in code:
        return
    values = Assignments()
    exec(code, {}, values)
    for name, value in values.all:
        if name == 'pe_type':
            name, value = 'backbone', dict(type='mmlape.VisionTransformer', pe_type=value)
        model = value if name == 'model' else dict(backbone=value) if name == 'backbone' else None
        if model:
            check_keys(Config(dict(model=model), filename=str(folder / 'block.py')))
        if model and 'backbone' in model:
            with torch.device('meta'):
                MODELS.build({**model['backbone']})


def write_programs(folder: Path) -> None:
    """Write `mmlape` and `python` into a folder, as programs whose calls are forks."""
    for name, call in (('python', ''), ('mmlape', ' -m mmlape')):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {tiny.environment()["PYTHON"]}{call} "$@"\n')
        program.chmod(0o755)


def script(blocks: list[Block], printed: Path | None = None) -> str:
    """Return the blocks as one script of bash, which writes their files and names the block that fails.

    With `printed`, what the block of number N prints goes into the file N of that folder.
    """
    lines = ['set -euo pipefail', 'exec 3>&2', 'trap \'echo "failed: $block" >&3\' ERR']
    python = ''.join(block.code for block in blocks if block.language == 'python' and not block.file)
    for number, block in enumerate(blocks):
        lines.append(f'block={shlex.quote(str(block))}')
        if printed:
            lines.append(f'exec >{shlex.quote(str(printed / str(number)))} 2>&1')
        if block.language == 'bash':
            lines += [block.code, block.note]
        elif block.file:
            lines.append(f"cat > {block.file} <<'END OF FILE'\n{block.code}END OF FILE")
    if python:  # one program, as the cells of a notebook are
        lines.append(f"cat > cells.py <<'END OF FILE'\n{python}END OF FILE\npython cells.py")
    return '\n'.join(lines)
