"""What the rows of single papers need.

A folder each, which no other folder imports, so that any can be left out. A folder says in its
``__init__.py`` what it offers: dicts from a name to the module, inside the folder, that has it.

    BACKBONES     backbones, which ``mmlape.get_model``, checkpoints and configs find by name
    MODELS        other models: detectors, heads and necks, which derive from classes of OpenMMLab
    REGISTERED    datasets, transforms, metrics and hooks, which register themselves
    COMMANDS      sub-commands with a line of help; the module is ``command``, as `mmlape.commands` describes it

Each is imported on first use.
"""

from importlib import import_module
from pkgutil import iter_modules

from mmlape.lazy import attributes

_FOLDERS = {found.name: import_module(f'{__name__}.{found.name}') for found in iter_modules(__path__)}


def _offered(table: str) -> dict[str, str]:
    """Return the names in a table of all folders, with the module of each below this package."""
    return {
        name: f'{folder}.{module}'
        for folder, offers in _FOLDERS.items()
        for name, module in getattr(offers, table, {}).items()
    }


BACKBONES = _offered('BACKBONES')
MODELS = _offered('MODELS')
REGISTERED = _offered('REGISTERED')
COMMANDS = {
    name: (f'{folder.__name__}.command', text)
    for folder in _FOLDERS.values()
    for name, text in getattr(folder, 'COMMANDS', {}).items()
}
_MODULES = BACKBONES | MODELS | REGISTERED

__all__ = list(_MODULES)
__getattr__, __dir__ = attributes(__name__, _MODULES)
