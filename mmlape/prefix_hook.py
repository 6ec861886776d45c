"""Waits for mmengine's config module and teaches it the prefix `mmlape::`; run by `import mmlape` and, in an
environment where mmlape is installed, at the start of every interpreter. So it imports nothing but what Python has
loaded already, and never mmengine or mmlape itself."""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

_MODULE = 'mmengine.config.config'


class _WaitForMMEngine:
    """Import hook for one module: leaves `sys.meta_path` when its turn has come."""

    def find_spec(self, name: str, path=None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run_module = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run_module(module)
            _teach(module)

        spec.loader.exec_module = exec_module
        return spec


def _teach(module: ModuleType) -> None:
    from mmlape.mim import teach_mmengine

    teach_mmengine(module.Config)


def install() -> None:
    """Teach mmengine the prefix now, or as soon as it is imported."""
    if _MODULE in sys.modules:
        _teach(sys.modules[_MODULE])
    elif not any(type(finder).__name__ == _WaitForMMEngine.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, _WaitForMMEngine())
