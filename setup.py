"""Package mmlape; the wheel carries configs, tools and model index under `mmlape/.mim`, where OpenMMLab looks."""

import re
import runpy
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
MIM = ('configs', 'tools', 'model-index.yml')


class BuildWithMim(build_py):
    """Copy configs, tools and model index into a wheel; link them for an editable installation."""

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


def version() -> str:
    """Read the version without importing the package."""
    return re.search(r"^__version__ = '(.+)'", (ROOT / 'mmlape' / '__init__.py').read_text(), re.M)[1]


PINS = runpy.run_path(str(ROOT / 'mmlape' / 'environment' / 'pins.py'))['read_pins']()

setup(
    name='mmlape',
    version=version(),
    description='LaPE and Dual PatchNorm backbones, and a ViT-Adapter that carries both, for OpenMMLab',
    long_description=(ROOT / 'README.md').read_text(encoding='utf-8') if (ROOT / 'README.md').exists() else '',
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    python_requires='>=3.10',
    packages=find_packages(include=['mmlape', 'mmlape.*']),
    package_data={
        'mmlape': ['requirements.txt'],
        'mmlape.analysis': ['dataset_page.html'],
        'mmlape.experiments.report': ['page.html'],
    },
    # Light packages only: the MM packages come as the maintained forks or the original distributions, torch as the
    # machine needs it. `mmlape doctor` lists what is missing.
    install_requires=[
        'jinja2',
        'matplotlib',
        'numpy',
        'packaging',
        'pandas',
        'pillow',
        'pyyaml',
        'rich',
        'scikit-learn',
        'scipy',
        'statsmodels',
    ],
    extras_require={
        'stack': PINS['torch'] + PINS['mmcv'] + PINS['mm'] + PINS['runtime'],
        'dev': PINS['dev'],
    },
    entry_points={'console_scripts': ['mmlape = mmlape.cli:main']},
    cmdclass={'build_py': BuildWithMim},
)
