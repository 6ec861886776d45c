"""Let the wheel carry configs, studies, tools and model index under `mmlape/.mim`, where OpenMMLab looks.

All else about the package stands in pyproject.toml.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
MIM = ('configs', 'studies', 'tools', 'model-index.yml')


class BuildWithMim(build_py):
    """Copy configs, studies, tools and model index into a wheel; link them for an editable installation."""

    def run(self):
        super().run()
        if getattr(self, 'editable_mode', False):
            self._link(ROOT / 'mmlape' / '.mim')
        else:
            self._copy(Path(self.build_lib, 'mmlape', '.mim'))

    def _copy(self, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for name in MIM:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, target / name, ignore=shutil.ignore_patterns('__pycache__', '*.pyc'))
            elif source.exists():
                shutil.copy(source, target / name)

    def _link(self, target: Path) -> None:
        target.mkdir(exist_ok=True)
        for name in MIM:
            link = target / name
            if link.is_symlink() or link.exists():
                link.unlink() if link.is_symlink() or link.is_file() else shutil.rmtree(link)
            link.symlink_to(Path('..', '..', name))


setup(cmdclass={'build_py': BuildWithMim})
