"""Print the circles of imports of `mmlape`, and the imports that point upwards in the order of its folders.

`python tests/import_graph.py [PACKAGE_FOLDER]`. Imports inside functions count as well.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# modules and folders from bottom to top; those of one line may import each other as long as there is no circle
LAYERS = (
    ('errors',),
    ('files',),
    ('console', 'figures', 'quiet', 'tables'),
    ('mmcv_ext',),
    ('mmcv_ops', 'mim', '__init__'),
    ('registry',),
    ('environment',),
    ('checkpoint',),
    ('models',),
    ('evaluation', 'datasets'),
    ('runs',),
    ('engine',),
    ('analysis',),
    ('experiments',),
    ('commands',),
    ('cli', '__main__'),
)


# the same inside a folder that is large enough to have an order of its own
INSIDE = {
    'models': (
        ('grid', 'initial', 'names'),
        ('position',),
        ('layers',),
        ('base',),
        ('vit', 'swin', 't2t', 'ceit', 'compact', 'detr', 'dinov2', 'classifiers', 'lit'),
        ('adapter',),
        ('timm', 'htc', 'mask2former', 'necks'),
        ('__init__',),
    ),
}


def read(package: Path) -> dict[str, set[str]]:
    """Return, by the dotted name of each module of a package, the modules of the package that it imports."""
    files = {_name(file, package): file for file in sorted(package.rglob('*.py')) if '.mim' not in file.parts}
    return {name: set(_imports(name, file, set(files))) - {name} for name, file in files.items()}


def _name(file: Path, package: Path) -> str:
    parts = file.relative_to(package.parent).with_suffix('').parts
    return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


def _imports(name: str, file: Path, modules: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            parts = name.split('.')
            parts = parts[: len(parts) - node.level + (file.name == '__init__.py')] if node.level else []
            source = '.'.join([*parts, *filter(None, [node.module])])
            targets = (f'{source}.{alias.name}' for alias in node.names)
            yield from {target if target in modules else source for target in targets} & modules


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others."""
    reached = {name: _reached(name, graph) for name in graph}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return sorted(sorted(group) for group in groups if group)


def _reached(name: str, graph: dict[str, set[str]]) -> set[str]:
    found, todo = set(), [name]
    while todo:
        new = graph[todo.pop()] - found
        found |= new
        todo.extend(new)
    return found


def upward(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the imports of a higher folder by a lower one."""
    return sorted((name, other) for name in graph for other in graph[name] if _level(other) > _level(name))


def _level(name: str) -> tuple[int, int]:
    """Return the level of a module's folder, and inside a folder with an order of its own that of the folder there."""
    folder, inner = (*name.split('.')[1:], '__init__', '__init__')[:2]
    return _find(folder, LAYERS, 'LAYERS', name), _find(inner, INSIDE.get(folder, ((inner,),)), 'INSIDE', name)


def _find(part: str, layers: tuple[tuple[str, ...], ...], table: str, name: str) -> int:
    for level, layer in enumerate(layers):
        if part in layer:
            return level
    raise ValueError(f'{name}: {part} has no place in {table} of {Path(__file__).name}')


def problems(package: Path) -> list[str]:
    """Return a line per circle and per upward import."""
    graph = read(package)
    lines = [f'circle: {" <-> ".join(group)}' for group in circles(graph)]
    return lines + [f'upwards: {name} -> {other}' for name, other in upward(graph)]


if __name__ == '__main__':
    found = problems(Path(sys.argv[1]) if sys.argv[1:] else ROOT / 'mmlape')
    print('\n'.join(found) or 'no circle, no upward import')
    sys.exit(bool(found))
