"""The code that counts for a run: the modules that it has imported, without comments, docstrings and formatting."""

import ast
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mmlape.errors import listed
from mmlape.lab.extension import extensions
from mmlape.lab.runs.schema import Code

COUNTED = (
    'mmlape.lab.config',
    'mmlape.lab.datasets',
    'mmlape.lab.distributed',
    'mmlape.lab.evaluation',
    'mmlape.lab.inference.evaluator',
    'mmlape.lab.inference.tiled_loops',
    'mmlape.lab.inference.tiling',
    'mmlape.lab.model_weights',
    'mmlape.lab.recipe',
    'mmlape.lab.registry',
    'mmlape.lab.runs.resume',
    'mmlape.lab.training',
    'mmlape.openmmlab.mmcv_ext',
    'mmlape.param_rules',
)
"""The laboratory's modules that can change a result, with those below them."""
GONE = 'gone'
"""Instead of the hash of a module that is not there any more."""


def imported(cfg: dict) -> dict[str, str]:
    """Return the hash of each module that counts and that this process has imported, by name.

    They are the laboratory's, those that extensions count, and a user's that the configuration
    imports. Packages with a version of their own count by that. A package of which nothing else is
    imported only offers names, and does not count.
    """
    given = (cfg.get('custom_imports') or {}).get('imports') or ()
    named = [given] if isinstance(given, str) else given
    packages = {name: name.partition('.')[0] for name in named}
    theirs = [name for name, package in packages.items() if package != 'mmlape' and not _is_installed(package)]
    ours = [*COUNTED, *(start for one in extensions() for start in one.counted)]
    parents = {name.rpartition('.')[0] for name in sys.modules}
    chosen = [name for name in _below(ours) if name in parents or not _has_modules(name)]
    chosen += _below(theirs)
    return {name: found for name in sorted(chosen) if (found := source_hash(name)) != GONE}


def used_by(things: Iterable[Any]) -> dict[str, str]:
    """Return the code that computes objects and functions, by name.

    It is the hash of each module that their classes are of, and of those that these import at their top, further and
    further; of an installed package with a version it is that.
    """
    waiting = {name for thing in things for name in _defining(thing)}
    found: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        top = name.partition('.')[0]
        version = getattr(sys.modules.get(top), '__version__', None)
        if version is not None and _is_installed(top):
            found[top] = str(version)
        else:
            found[name] = source_hash(name)
            waiting.update(used for used in _imports(name) if used not in found)
    return found


def _defining(thing: Any) -> Iterator[str]:
    """Yield the modules of a function, or of an object's class and its bases."""
    for one in [thing] if inspect.isfunction(thing) else type(thing).__mro__:
        if one.__module__.partition('.')[0] not in sys.stdlib_module_names:
            yield one.__module__


@cache
def _imports(name: str) -> list[str]:
    """Return the modules that a module has imported at its top, as its source says: others add to its namespace."""
    file = _file_of(name)
    waiting: list[ast.AST] = [ast.parse(file.read_bytes())] if file is not None and file.suffix == '.py' else []
    found = []
    for node in waiting:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name(f'{"." * node.level}{node.module or ""}', sys.modules[name].__package__)
            found += [base, *(f'{base}.{alias.name}' for alias in node.names)]
        elif isinstance(node, ast.Module | ast.Try | ast.ExceptHandler):
            waiting += ast.iter_child_nodes(node)
    return [one for one in found if one in sys.modules and one.partition('.')[0] not in sys.stdlib_module_names]


def _below(starts: Sequence[str]) -> list[str]:
    """Return the imported modules of these names, and those below them."""
    prefixes = tuple(f'{one}.' for one in starts)
    return [name for name in sys.modules if f'{name}.'.startswith(prefixes)]


def _has_modules(name: str) -> bool:
    """Return whether a module is a package of modules; of a project that is not used it is all that is imported."""
    folders = getattr(sys.modules[name], '__path__', ())
    return len([file for folder in folders for file in Path(folder).rglob('*.py')]) > 1


def code_differences(mine: Code, other: Code) -> list[str]:
    """Return what keeps the code of two runs apart, as one line, such as 'code: mmlape.lab.training.seeding changed'.

    Modules that both have imported are compared. One that only one of them has imported is left
    out: where code imports another module than before, the importing module has changed, and else
    the machine or the moment decides (a GPU, a resume), which is no difference in code. Records of
    older versions name no modules: of these and newer ones only the version is compared.
    """
    before, after = mine.commit, other.commit
    where = f' (commit {before[:9]} -> {after[:9]})' if before and after and before != after else ''
    if mine.version != other.version:
        return [f'code: mmlape {mine.version} -> {other.version}{where}']
    if mine.source and other.source and mine.source != other.source:
        return [f'code: mmlape other modules{where}']
    common = [name for name in mine.modules if name in other.modules]
    changed = [name for name in common if mine.modules[name] != other.modules[name]]
    return [f'code: {listed(changed)} changed{where}'] if changed else []


def _is_installed(package: str) -> bool:
    file = _file_of(package)
    return file is not None and 'site-packages' in file.parts


def _file_of(module: str) -> Path | None:
    """Return the source of a module, which need not be imported; None if there is none."""
    known = getattr(sys.modules.get(module), '__file__', None)
    if known is not None:
        return Path(known)
    top, *below = module.split('.')
    try:
        spec = importlib.util.find_spec(top)  # which imports nothing
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not below:
        return Path(spec.origin) if spec.origin else None
    for folder in spec.submodule_search_locations or ():
        place = Path(folder, *below)
        for file in (place.with_name(f'{place.name}.py'), place / '__init__.py'):
            if file.is_file():
                return file
    return None


@cache
def source_hash(module: str) -> str:
    """Return a hash of what a module's source computes; `GONE` if it has none."""
    file = _file_of(module)
    if file is None or file.suffix != '.py' or not file.is_file():
        return GONE
    return fingerprint(file.read_bytes())


def fingerprint(source: bytes) -> str:
    """Return a hash of a source that comments, docstrings and formatting leave as it is.

    It is of the syntax tree without its empty fields, which the versions of Python add to, and without statements
    that are a text alone, and ``pass``.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return _digest(source)
    for node in ast.walk(tree):
        for name, value in [*ast.iter_fields(node)]:
            kept = [child for child in value if not _is_without_effect(child)] if isinstance(value, list) else value
            if kept == [] or name == 'ctx':
                delattr(node, name)
            else:
                setattr(node, name, kept)
    return _digest(ast.dump(tree).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _is_without_effect(node: Any) -> bool:
    text = node.value if isinstance(node, ast.Expr) else None
    is_text = isinstance(text, ast.Constant) and isinstance(text.value, str)
    return is_text or isinstance(node, ast.Pass)
