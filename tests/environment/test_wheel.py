"""The wheel: it carries configs, studies, tools and model index, and `mmlape::` finds them elsewhere."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from mmengine import registry
from mmengine.config import Config

from mmlape.lab.recipe import Recipe
from mmlape.lab.runs.identity import settings
from mmlape.openmmlab.mim import config_path

ROOT = Path(__file__).resolve().parents[2]
LEAVE_OUT = ('.git', '.venv', 'build', 'dist', 'data', 'work_dirs', '*.egg-info', '.mim', '__pycache__', '.*_cache')


def run(*command: str | Path, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess:
    """Run a program; the variables replace those of the environment."""
    merged = {**os.environ, **env}
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd, env=merged)


@pytest.fixture(scope='session')
def wheel(once) -> Path:
    """The wheel, built from a copy so that nothing is written here."""

    def build(folder: Path) -> None:
        source = folder / 'source'
        shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*LEAVE_OUT))
        done = run(sys.executable, '-m', 'build', '-q', '--wheel', '--no-isolation', '-o', folder, source, cwd=folder)
        assert done.returncode == 0, done.stderr

    return next(once('wheel', build).glob('mmlape-*.whl'))


@pytest.mark.release
def test_wheel_carries_configs_and_tools_and_asks_for_what_the_core_needs(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    patterns = ('configs/**/*.py', 'configs/**/*.yml', 'studies/*', 'tools/*')
    for source in (path for pattern in patterns for path in ROOT.glob(pattern)):
        if source.is_file():
            assert f'mmlape/.mim/{source.relative_to(ROOT)}' in names
    assert {'mmlape/.mim/model-index.yml', 'mmlape/requirements.txt', 'mmlape/py.typed'} <= names
    assert 'mmlape/console/page.html' in names
    assert not [name for name in names if name.startswith(('tests/', 'bootstrap/')) or name.endswith(('.pyc', '.pth'))]
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith('METADATA'))
        lines = archive.read(name).decode().splitlines()
    base = [line for line in lines if line.startswith('Requires-Dist') and 'extra ==' not in line]
    assert base == [f'Requires-Dist: {line}' for line in ('numpy', 'packaging', 'safetensors', 'torch>=2.6')]
    extras = ' '.join(line for line in lines if "extra == 'stack'" in line.replace('"', "'"))
    assert all(f'Requires-Dist: {name}' in extras for name in ('torch', 'onedl-mmcv==', 'onedl-mmdetection==', 'timm'))
    assert {'License-Expression: Apache-2.0', 'License-File: LICENSE', 'Classifier: Typing :: Typed'} <= set(lines)


# one of each folder, the scopes of three packages
CONFIGS = (
    'mask_rcnn/mask-rcnn_deit-tiny-adapter-lape_4xb2-3x_coco',
    'upernet/upernet_deit-tiny-adapter-lape_4xb2-160k_ade20k',
    'deit/deit-tiny-distilled-lape_4xb256-300e_in1k',
)


def types(node) -> set[str]:
    """Every `type` of a config."""
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list | tuple) else ()
    mine = {node['type']} if isinstance(node, dict) and isinstance(node.get('type'), str) else set()
    return mine.union(*map(types, children))


@pytest.mark.parametrize(
    'name', [*CONFIGS[:1], *(pytest.param(name, marks=pytest.mark.release) for name in CONFIGS[1:])]
)
def test_types_mean_the_same_in_the_scope_of_the_prefix(name: str):
    """Of every type of a config, in every registry: the class in its own scope, and in `mmlape` on top of that."""
    cfg = Config.fromfile(config_path(name))
    registries = [one for one in vars(registry).values() if isinstance(one, registry.Registry)]

    def classes(name: str) -> list:
        found = []
        for one in registries:
            with one.switch_scope_and_registry(None) as current:
                found.append(current.get(name))
        return found

    with registry.DefaultScope.overwrite_default_scope(cfg.default_scope):
        with registry.DefaultScope.overwrite_default_scope('mmlape'):
            prefixed = {name: classes(name) for name in types(cfg.to_dict())}
        plain = {name: classes(name) for name in prefixed}
    assert prefixed == plain
    assert sum(any(found) for found in plain.values()) > 10


def test_a_base_by_prefix_stands_for_the_settings_of_its_path(tmp_path: Path):
    name, mine = SEGMENTER.removeprefix('mmlape::'), tmp_path / 'mine.py'
    mine.write_text(f"_base_ = 'mmlape::{name}.py'\nseed_of_mine = 7\n")
    cfg = Config.fromfile(mine)
    assert cfg.seed_of_mine == 7 and cfg.model._scope_ == 'mmlape'
    assert settings(Recipe.of(cfg)) == settings(Recipe.of(Config.fromfile(config_path(name))))


@pytest.fixture(scope='module')
def stack(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and its declared dependencies alone, beside mini data."""
    venv = tmp_path_factory.mktemp('empty') / 'venv'
    uv = Path(sys.prefix, 'uv', 'bin', 'uv')
    for command in (
        (uv, 'venv', '-q', '--no-project', '--python', sys.executable, venv),
        (uv, 'pip', 'install', '-q', '--no-config', '--python', venv, f'mmlape[stack] @ {wheel.as_uri()}'),
        (venv / 'bin' / 'mmlape', 'make-mini-data', 'data/mini', '--train', '40', '--val', '4', '--digits', '0'),
    ):
        done = run(*command, cwd=venv.parent, PYTHONPATH='')
        assert done.returncode == 0, done.stderr
    assert not list(venv.glob('lib/python*/site-packages/mmcv/_ext*'))
    lend_bytecode(Path(torch.__file__).parents[1], next(venv.glob('lib/python*/site-packages')))
    return venv


def lend_bytecode(source: Path, target: Path) -> None:
    """Copy what Python has compiled, which saves half a minute; it checks each file against its source."""
    for compiled in source.rglob('__pycache__'):
        place = target / compiled.relative_to(source)
        if place.parent.is_dir():
            shutil.copytree(compiled, place, dirs_exist_ok=True)


MASK_RCNN = 'mmlape::mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco'
SEGMENTER = 'mmlape::segmenter/segmenter_deit-mini-lape_1xb16-250i_mini-ade'
DEIT = 'mmlape::deit/deit-mini-lape_1xb32-5e_mini-digits'


def short(iters: int) -> tuple[str, ...]:
    lengths = (
        f'train_cfg.max_iters={iters}',
        f'train_cfg.val_interval={iters}',
        f'param_scheduler.1.begin={iters // 2}',
        f'default_hooks.logger.interval={iters}',
    )
    return '--cfg-options', *lengths, 'model.backbone.init_cfg=None'


@pytest.mark.release
@pytest.mark.parametrize('name', [MASK_RCNN, SEGMENTER], ids=['detection', 'segmentation'])
def test_an_empty_environment_trains_with_what_the_wheel_asks_for(stack: Path, name: str):
    """From an empty folder, by the name of a config, on mmcv without compiled ops."""
    done = run(stack / 'bin' / 'mmlape', 'train', name, *short(4), cwd=stack.parent, PYTHONPATH='')
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert 'Iter(train) [4/4]' in done.stdout + done.stderr


# MMPretrain's does not set the scope of its registries, as the others do: it goes first
INFERENCE = (
    (DEIT, 'None', 'mmpretrain', 'ImageClassificationInferencer', 'out[0]["pred_score"] > 0'),
    (MASK_RCNN, '"own/iter_2.pth"', 'mmdet.apis', 'DetInferencer', 'len(out["predictions"][0]["bboxes"]) == 20'),
    (SEGMENTER, 'None', 'mmseg.apis', 'MMSegInferencer', 'out["predictions"].shape == (256, 256)'),
)


@pytest.mark.release
def test_tools_that_import_mmdet_first_run_after_install_ops(stack: Path):
    """MMDetection's own training script, and the inferencers of the three packages."""
    python, folder = stack / 'bin' / 'python', stack.parent
    assert run(stack / 'bin' / 'mmlape', 'install-ops', PYTHONPATH='').returncode == 0
    where = next(stack.glob('lib/python*/site-packages/mmlape/.mim/configs'))
    script = next(stack.glob('lib/python*/site-packages/mmdet/.mim/tools/train.py'))
    config = where / f'{MASK_RCNN.removeprefix("mmlape::")}.py'
    done = run(python, script, config, '--work-dir', 'own', *short(2), cwd=folder, PYTHONPATH='')
    assert done.returncode == 0 and 'coco/bbox_mAP: ' in done.stdout + done.stderr, done.stderr[-3000:]
    code = ''.join(f'from {module} import {tool}\n' for _, _, module, tool, _ in INFERENCE)
    code += 'import glob, mmlape\nimage = sorted(glob.glob("data/mini/coco/val2017/*"))[0]\n'
    for name, weights, _, tool, result in INFERENCE:
        code += f'out = {tool}(mmlape.config_path("{name}"), {weights}, device="cpu")(image)\nassert {result}\n'
    done = run(python, '-c', code, cwd=folder, PYTHONPATH='')
    assert done.returncode == 0, done.stderr[-3000:]
