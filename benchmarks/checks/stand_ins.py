"""Stand-ins for compiled packages that OpenMMLab imports and a bare machine lacks: they import, and cannot be used.

A bundle (`benchmarks.bundle`) has no compiled packages of size. Models are built and trained without them; what calls
one all the same gets a ModuleNotFoundError with its name, as if it were not installed.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGES = (
    'contourpy', 'cv2', 'imaug', 'kiwisolver', 'matplotlib', 'pandas', 'pycocotools', 'regex', 'scipy', 'shapely',
    'skimage', 'sklearn', 'statsmodels',
)  # fmt: skip


class _Absent(ModuleType):
    """A module whose every name is a class that cannot be instantiated, and has every attribute itself."""

    __path__: list[str] = []
    __version__ = '0.0'

    def __getattr__(self, name: str):
        if name.startswith('__'):
            raise AttributeError(name)
        return _absent(self.__name__.partition('.')[0])


class _AbsentType(type):
    def __getattr__(cls, name: str):
        if name.startswith('__'):
            raise AttributeError(name)
        return cls

    def __call__(cls, *args, **kwargs):
        raise ModuleNotFoundError(f'{cls.__name__} is not installed', name=cls.__name__)


def _absent(package: str) -> type:
    return _AbsentType(package, (), {})


class _Finder:
    """The last of Python's finders, for what nothing else finds."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, inside = name.partition('.')
        wanted = package in PACKAGES and (not inside or isinstance(sys.modules.get(package), _Absent))
        return ModuleSpec(name, _Finder, is_package=True) if wanted else None

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        return None


def lend_stand_ins() -> None:
    """Let this process import the packages that it lacks."""
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)
