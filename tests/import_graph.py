"""Print the imports of `mmlape` in circles, upwards, between projects, and those that the core must not have.

`python tests/import_graph.py [PACKAGE_FOLDER]`. Imports inside functions count as well; so do, from the laboratory to
the papers, names of modules in strings, which registries and `import_module` import.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# of `checkpoint`, what reads any file; the rest knows the papers' layouts, which the laboratory must not
OF_FILES = tuple(
    f'checkpoint.{module}'
    for module in ('closed_world', 'exact_loading', 'fetching', 'gate', 'opening', 'plain_config', 'trained_alone')
)
# modules and folders from bottom to top; those of one line may import each other as long as there is no circle
LAYERS = (
    ('errors',),
    ('files', 'lazy'),
    ('bf16', 'console', 'openmmlab', 'param_rules', '__init__'),
    OF_FILES,
    ('lab',),  # the laboratory, which knows no paper
    ('admitted', 'kinds', 'registry'),  # and the papers
    ('checkpoint',),
    ('models',),
    ('backbones',),
    ('new',),
    ('commands', 'extension', 'projects'),
    ('cli', '__main__'),
    ('integrations',),  # nothing imports them
)


# the same inside a folder that is large enough to have an order of its own
INSIDE = {
    'lab': (
        ('decoding', 'extension'),
        ('registry',),
        ('recipe',),
        ('studies', 'environment'),
        ('evaluation', 'datasets'),
        ('runs',),
        ('config',),
        ('distributed', 'model_weights'),
        ('training',),
        ('export',),
        ('inference',),
        ('analysis',),
        ('experiments',),
        ('__init__',),
    ),
    'models': (
        ('grid', 'named_layers', 'weight_init'),
        ('removal',),
        ('position',),
        ('layers', 'param_groups'),
        ('base',),
        ('model_names', 'pos_embed'),
        ('vit', 'swin', 'classifiers'),
        ('adapter',),
        ('timm',),
        ('__init__',),
    ),
    'integrations': (('__init__',), ('transformers', 'smp', 'torchvision')),
}


DOTTED = re.compile(r'mmlape(\.\w+)+(:\w+)?')
"""A module, or what a module has, by its name."""


class Packages(NamedTuple):
    """What a module of the core imports beside the standard library and other modules of the core."""

    always: tuple[str, ...] = ()  # anywhere
    on_use: tuple[str, ...] = ()  # inside functions only


# the core works without OpenMMLab; folders and modules, of which the longest name counts, None for what is above it
CORE: dict[str, Packages | None] = {
    **dict.fromkeys(
        ('__init__', 'admitted', 'console.log', 'errors', 'kinds', 'lazy', 'openmmlab.mmcv_ops'), Packages()
    ),
    'files': Packages((), ('yaml',)),
    'openmmlab.mim': Packages((), ('yaml', 'mmengine')),
    'checkpoint': Packages(('torch', 'numpy'), ('safetensors',)),
    'checkpoint.fetching': Packages(('torch',), ('huggingface_hub',)),
    'checkpoint.gate': Packages(('torch',), ('mmengine',)),
    'checkpoint.opening': Packages(('torch', 'numpy'), ('safetensors', 'mmengine')),
    'bf16': Packages(('torch',)),
    'integrations': Packages(),
    'integrations.smp': Packages(('torch', 'segmentation_models_pytorch')),
    'integrations.torchvision': Packages(('torch', 'torchvision')),
    'integrations.transformers': Packages(('torch', 'transformers')),
    'models': Packages(('torch', 'numpy')),
    'models.adapter.deform_attn': Packages(('torch',), ('deformops', 'mmcv')),
    'models.base.checkpoint': Packages(('torch',), ('mmengine',)),
    'models.named_layers': Packages(('torch',), ('mmcv',)),
    'models.position.beit': Packages(('torch', 'numpy'), ('scipy',)),
    'models.timm': Packages(('torch',), ('timm',)),
    'param_rules': Packages(('torch',)),
    **dict.fromkeys(('models.classifiers', 'models.weight_init')),
    **dict.fromkeys(('projects.ceit', 'projects.compact', 'projects.t2t'), Packages(('torch', 'numpy'))),
    **dict.fromkeys(
        (f'projects.plain_detr.{module}' for module in ('layers', 'net')), Packages(('torch', 'torchvision'))
    ),
    'projects.plain_detr.losses': Packages(('torch', 'torchvision', 'scipy')),
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


def foreign(package: Path) -> list[tuple[str, str]]:
    """Return the imports of the core that it must not have: of other packages, and of this one's modules above it."""
    files = {_name(file, package): file for file in sorted(package.rglob('*.py')) if '.mim' not in file.parts}
    found = set()
    for name, file in files.items():
        allowed = _packages(name)
        if allowed is None:
            continue
        tree = ast.parse(file.read_text(encoding='utf-8'))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        on_use = {id(node) for function in functions for node in ast.walk(function)}
        for node in ast.walk(tree):
            known = {*allowed.always, *(allowed.on_use if id(node) in on_use else ())}
            found |= {(name, other) for other in _other_packages(node) if other not in known}
        found |= {(name, other) for other in _imports(name, file, set(files)) if _packages(other) is None}
    return sorted(found)


def _packages(name: str) -> Packages | None:
    """Return what a module may import if it is of the core, else None."""
    parts = name.split('.')[1:] or ['__init__']
    starts = ('.'.join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((CORE[start] for start in starts if start in CORE), None)


def _other_packages(node: ast.AST) -> set[str]:
    """Return the packages that an import names, but for this one and the standard library."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom) and not node.level:
        names = [str(node.module)]
    return {name.partition('.')[0] for name in names} - {'mmlape', *sys.stdlib_module_names}


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


def across(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the imports of one project by another: each can be left out."""
    project = {name: name.split('.')[2] for name in graph if name.startswith('mmlape.projects.')}
    pairs = ((name, other) for name in project for other in graph[name] if other in project)
    return sorted((name, other) for name, other in pairs if project[name] != project[other])


def upward(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the imports of a higher folder by a lower one."""
    return sorted((name, other) for name in graph for other in graph[name] if _level(other) > _level(name))


def by_string(package: Path) -> list[tuple[str, str]]:
    """Return what the laboratory and modules below it name in a string although it is above: it imports that later."""
    files = {_name(file, package): file for file in sorted(package.rglob('*.py')) if '.mim' not in file.parts}
    top, found = _find('lab', LAYERS, 'LAYERS', 'lab'), set()
    for name, file in files.items():
        if (level := _level(name)[0]) > top:
            continue
        tree = ast.parse(file.read_text(encoding='utf-8'))
        texts = (
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        for text in filter(DOTTED.fullmatch, texts):
            parts = text.partition(':')[0].split('.')
            starts = ('.'.join(parts[:count]) for count in range(len(parts), 1, -1))
            other = next((start for start in starts if start in files), None)
            found |= {(name, other)} if other and _level(other)[0] > level else set()
    return sorted(found)


def _level(name: str) -> tuple[int, int]:
    """Return the level of a module's folder, and inside a folder with an order of its own that of the folder there."""
    folder, inner = (*name.split('.')[1:], '__init__', '__init__')[:2]
    own = f'{folder}.{inner}'
    place = own if any(own in layer for layer in LAYERS) else folder
    return _find(place, LAYERS, 'LAYERS', name), _find(inner, INSIDE.get(folder, ((inner,),)), 'INSIDE', name)


def _find(part: str, layers: tuple[tuple[str, ...], ...], table: str, name: str) -> int:
    for level, layer in enumerate(layers):
        if part in layer:
            return level
    raise ValueError(f'{name}: {part} has no place in {table} of {Path(__file__).name}')


def problems(package: Path) -> list[str]:
    """Return a line per circle, per upward import, and per import that the core must not have."""
    graph = read(package)
    lines = [f'circle: {" <-> ".join(group)}' for group in circles(graph)]
    lines += [f'upwards: {name} -> {other}' for name, other in upward(graph)]
    lines += [f'upwards, by a string: {name} -> {other}' for name, other in by_string(package)]
    lines += [f'from project to project: {name} -> {other}' for name, other in across(graph)]
    return lines + [f'not for the core: {name} -> {other}' for name, other in foreign(package)]


if __name__ == '__main__':
    found = problems(Path(sys.argv[1]) if sys.argv[1:] else ROOT / 'mmlape')
    print('\n'.join(found) or 'no circle, no import upwards, between projects, or that the core must not have')
    sys.exit(bool(found))
