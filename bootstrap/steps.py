"""The steps of the set-up. Each checks what is already there, so an interrupted set-up continues where it stopped."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from live import StepFailed, run

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mmlape.environment.pins import MMCV_BUILD_ENV, PINS_FILE, read_pins  # noqa: E402

# Prints whether the ops are compiled for 'cuda' or 'cpu'; fails without ops, and with ops built for another torch.
_OPS = (
    'import torch, mmcv._ext as ext; print("cpu" if ext.get_compiling_cuda_version() == "not available" else "cuda")'
)
_IMPORTS = 'import torch, torchvision, timm, mmcv.ops, mmengine, mmdet.apis, mmseg.apis, mmpretrain.apis, mmlape'


class Setup:
    """The environment that is being made.

    Args:
        venv: Its folder.
    """

    def __init__(self, venv: Path):
        self.venv = venv
        self.python = venv / 'bin' / 'python'
        self.logs = venv / 'log'
        self.pins = read_pins()

    def answers(self, code: str) -> str | None:
        """Run a line of code in the environment and return what it prints, or None if it fails."""
        if not self.python.exists():
            return None
        done = subprocess.run([self.python, '-c', code], capture_output=True, text=True, cwd=self.venv)
        return done.stdout.strip() if done.returncode == 0 else None

    def pip(self, title: str, *args: str, env: dict[str, str] | None = None) -> None:
        """Run `pip install` as one step."""
        log = self.logs / (title.split(' ')[0] + '.log')
        run(
            title,
            [self.python, '-m', 'pip', 'install', '--disable-pip-version-check', '-c', PINS_FILE, *args],
            log,
            env,
        )

    def make_venv(self) -> None:
        """Make the environment, unless a working one of the same Python version is there."""
        version = self.answers('import pip, sys; print(sys.version_info[:2])')
        if version == str(sys.version_info[:2]):
            return
        base = getattr(sys, '_base_executable', sys.executable) if sys.prefix != sys.base_prefix else sys.executable
        run(
            'venv',
            [base, '-m', 'venv', '--clear', self.venv],
            Path(tempfile.gettempdir(), f'mmlape-venv-{os.getuid()}.log'),
        )

    def install_pins(self) -> None:
        """Install everything but mmcv, the slow download first."""
        self.pip('build-tools', *self.pins['build'])
        self.pip('torch (0.6 GB, 4.7 GB with its libraries)', *self.pins['torch'])
        mm_only = ['--no-deps', '--no-build-isolation', *self.pins['mm']]
        self.pip('mm-packages', *mm_only)
        rest = [line for name in ('cv2', 'runtime', 'dev', 'indirect') for line in self.pins[name]]
        self.pip('libraries', *rest)

    def install_mmcv(self) -> None:
        """Compile mmcv with its ops, or take the wheel that pip kept from an earlier compilation.

        pip's cache does not know what a wheel was compiled for, so the ops are tried, and a wheel without them (or for
        another torch) is discarded and compiled again.

        Raises:
            StepFailed: The compilation failed, or its ops do not load.
        """
        wanted = self._wanted_ops()
        if self._has_ops(wanted):
            return
        line = self.pins['mmcv'][0]
        name, _, version = line.partition('==')
        env = {**MMCV_BUILD_ENV, 'MAX_JOBS': os.environ.get('MAX_JOBS', str(jobs()))}
        if wanted == 'cpu':
            env['CUDA_VISIBLE_DEVICES'] = ''  # or mmcv asks for nvcc as soon as it sees a GPU
        command = ['-v', '--no-deps', '--no-build-isolation', '--force-reinstall', line]
        self.pip('mmcv', *command, env=env)
        if not self._has_ops(wanted):
            print("mmcv: the wheel in pip's cache has no ops for this torch; it is compiled again", flush=True)
            pattern = f'{name.replace("-", "_")}-{version}-*'
            subprocess.run([self.python, '-m', 'pip', 'cache', 'remove', pattern], capture_output=True)
            self.pip('mmcv', *command, env=env)
        if not self._has_ops(wanted):
            log = self.logs / 'mmcv-import.log'
            done = subprocess.run([self.python, '-c', _OPS], capture_output=True, text=True, cwd=self.venv)
            log.write_text(done.stdout + done.stderr)
            raise StepFailed('mmcv: its compiled ops do not load', log)

    def _wanted_ops(self) -> str:
        """Return 'cuda' on a machine with a GPU and its compiler, else 'cpu'."""
        if self.answers('import torch; print(torch.cuda.is_available())') != 'True':
            return 'cpu'
        home = os.environ.get('CUDA_HOME', '/usr/local/cuda')
        if shutil.which('nvcc') or Path(home, 'bin', 'nvcc').exists():
            return 'cuda'
        print(
            'mmcv: a GPU is here but no nvcc: the ops are compiled for the CPU only (see `mmlape doctor`)', flush=True
        )
        return 'cpu'

    def _has_ops(self, wanted: str) -> bool:
        """Return whether the pinned mmcv is installed, with ops that load, on CUDA too where that is wanted."""
        version = self.pins['mmcv'][0].partition('==')[2]
        name = self.pins['mmcv'][0].partition('==')[0]
        found = self.answers(f'from importlib.metadata import version; print(version("{name}"))')
        return found == version and self.answers(_OPS) in (('cuda',) if wanted == 'cuda' else ('cpu', 'cuda'))

    def install_package(self) -> None:
        """Install mmlape itself, editable, and import everything once."""
        self.pip('mmlape', '--no-deps', '--no-build-isolation', '-e', str(ROOT))
        run('import', [self.python, '-c', _IMPORTS], self.logs / 'import.log')


def jobs() -> int:
    """Return how many compilers to run: one a core, and 2 GB of memory for each."""
    memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9
    return max(1, min(len(os.sched_getaffinity(0)), int(memory / 2)))
