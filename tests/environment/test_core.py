"""The core beside PyTorch and timm alone: models, files, compilers and processes, as they are under OpenMMLab."""

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import core_script
import numpy as np
import pytest
import torch
from checkpoint_helpers import to_flax
from each import each
from golden_models import MODEL_CLASSES, cases, sources, state_dict
from mmengine.logging import HistoryBuffer
from mmengine.registry import MODELS
from test_wheel import ROOT, lend_bytecode, run
from test_wheel import wheel as wheel  # the fixture

import mmlape
from benchmarks.bundle import _closure
from mmlape import models, projects
from mmlape.checkpoint.converting import convert
from mmlape.lab.environment import OF_OPENMMLAB
from mmlape.models.base.backbone import BaseBackbone

ARCH, SIDE = core_script.ARCH, core_script.SIDE
VIT = dict(arch=ARCH, img_size=SIDE, patch_size=16)
SWIN = dict(arch=dict(embed_dims=12, depths=[2, 2], num_heads=[2, 4]))
TIMM = dict(model_args=dict(embed_dim=24, depth=4, num_heads=2), img_size=SIDE)
MODELS_BY_NAME = {
    'vit': ('VisionTransformer', dict(VIT, pe_joining='lape', patch_norm='dual', drop_path_rate=0.2)),
    'distilled': ('DistilledVisionTransformer', VIT),
    'adapter': ('ViTAdapter', dict(arch=ARCH, img_size=SIDE, conv_inplane=8, pe_joining='lape', drop_path_rate=0.2)),
    'beit': ('VisionTransformer', dict(VIT, pe_type='beit', qkv_bias='qv', layer_scale_init_value=0.1)),
    'pyramid': ('ViTPyramid', dict(VIT, arch=dict(ARCH, embed_dims=32, num_heads=2))),
    'swin': ('SwinTransformer', dict(SWIN, img_size=32, window_size=4)),
    'ceit': ('CeiT', dict(arch=dict(ARCH, stem_channels=8), img_size=SIDE)),
    't2t': ('T2TViT', dict(arch=dict(ARCH, token_dims=8), img_size=SIDE)),
    'compact': ('CompactTransformer', dict(arch='vit-lite-7/4')),
    'timm': ('TimmViT', dict(TIMM, model_name='vit_small_patch16_224', pe_joining='lape', patch_norm='dual')),
    'timm-adapter': ('TimmViTAdapter', dict(vit=dict(TIMM, model_name='vit_small_patch16_dinov3'), conv_inplane=8)),
}  # fmt: skip
LAYOUTS = {
    'beit', 'beit-adapter', 'CeiT', 'compact', 'compact-transformers', 'deit', 'jax', 'mmlape-timm', 'mmpretrain',
    'swin', 'T2TViT', 'timm', 'timm-adapter', 'transformers-beit', 'transformers-swin', 'transformers-vit',
    'vit-adapter', 'vit-baseline',
}  # fmt: skip
"""Those that this package writes, of the golden models, and AugReg's."""
UNDER_OPENMMLAB = ('DETR', 'linear segmentor', 'distilled classifier', 'segmenter', 'DETR transformer')


def under_openmmlab(kind: str, options: dict):
    """Build a model as a config does."""
    torch.manual_seed(core_script.SEED)
    return MODELS.build(dict(type=f'mmlape.{kind}', **options))


def write_files(folder: Path) -> dict[str, tuple[str, dict, str]]:
    """Write a file of every layout that a backbone is written in, the golden models' files, and one of a run.

    Returns:
        Class and arguments of the model that takes it, and the path, by a name.
    """
    files = {}
    for name, (kind, options) in MODELS_BY_NAME.items():
        plain = {key: value for key, value in options.items() if key not in ('pe_joining', 'patch_norm')}
        for to in MODEL_CLASSES[kind].checkpoint_adapter.targets():
            own = folder / f'{name}.pth'
            chosen = options if to == 'mmlape' else plain
            model = under_openmmlab(kind, chosen)
            torch.save(dict(state_dict=model.state_dict(), meta=dict(record(model))), own)
            target = folder / f'{name}-{to}.pth'
            try:
                convert(own, target, to)
            except mmlape.errors.CheckpointError:
                continue  # such a model has no place there
            files[target.stem] = (kind, chosen, str(target))
    for source in sources():
        for name, case in cases(source).items():
            if case['model'] in UNDER_OPENMMLAB:
                continue
            file = folder / f'golden-{source}-{name}.pth'
            model = MODEL_CLASSES[case['model']](**case['kwargs'])
            torch.save(dict(state_dict=state_dict(source, case), meta=record(model)), file)
            files[file.stem] = (MODEL_CLASSES[case['model']].__name__, case['kwargs'], str(file))
            break  # the others of a source have the same names
    options = dict(arch=ARCH, img_size=32, patch_size=8)
    np.savez(folder / 'augreg.npz', **to_flax(under_openmmlab('VisionTransformer', options)))
    files['augreg'] = ('VisionTransformer', options, str(folder / 'augreg.npz'))
    kind, options = MODELS_BY_NAME['vit']
    history = HistoryBuffer([1.0, 2.0], [1, 1])
    model = under_openmmlab(kind, options)
    content = dict(state_dict=model.state_dict(), meta=record(model), message_hub=dict(log_scalars=dict(loss=history)))
    torch.save(content, folder / 'run.pth')
    files['run'] = (kind, options, str(folder / 'run.pth'))
    return files


def record(model: BaseBackbone) -> dict:
    from mmlape.checkpoint.metadata import KEY, metadata_of

    return {KEY: metadata_of(model).plain()}


def environment(folder: Path, built: Path, *more: str) -> Path:
    """Make an environment with the wheel, what it asks for, timm, and more; return its Python."""
    venv, uv = folder / 'venv', Path(sys.prefix, 'uv', 'bin', 'uv')
    pinned = [f'{name}=={version(name)}' for name in ('torch', 'torchvision', 'timm', 'numpy')]
    for command in (
        (uv, 'venv', '-q', '--no-project', '--python', sys.executable, venv),
        (uv, 'pip', 'install', '-q', '--no-config', '--python', venv, f'mmlape @ {built.as_uri()}', *pinned, *more),
    ):
        done = run(*command, cwd=folder, PYTHONPATH='')
        assert done.returncode == 0, done.stderr
    lend_bytecode(Path(torch.__file__).parents[1], next(venv.glob('lib/python*/site-packages')))
    assert not [name for name in OF_OPENMMLAB if list(venv.glob(f'lib/python*/site-packages/{name}'))]
    return venv / 'bin' / 'python'


def links(folder: Path) -> None:
    """Make an environment of links to the installed packages that torch and timm need, and a Python with this code."""
    (site := folder / 'site').mkdir()
    for found in _closure(('torch', 'torchvision', 'timm', 'numpy')).values():
        for top in {file.parts[0] for file in found.files} - {'..', '__pycache__'}:
            if not (site / top).exists():
                (site / top).symlink_to(found.locate_file(top))
    assert not [name for name in OF_OPENMMLAB if (site / name).exists()]
    python = folder / 'python'
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site}:{ROOT} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)


@pytest.fixture(scope='session', params=['links', pytest.param('installed', marks=pytest.mark.release)])
def plain(request: pytest.FixtureRequest, once) -> Path:
    """The Python of an environment with torch and timm alone: beside this code, or, for a release, with the wheel."""
    if request.param == 'links':
        return once('links', links) / 'python'
    wheel = request.getfixturevalue('wheel')
    return once('installed-wheel', lambda folder: environment(folder, wheel)) / 'venv' / 'bin' / 'python'


@pytest.fixture(scope='session')
def beside_transformers(once, wheel: Path) -> Path:
    """The same with transformers 5 and segmentation-models-pytorch, by our extras, and what tests and pages take."""

    def make(folder: Path) -> None:
        extras = f'mmlape[transformers,smp] @ {wheel.as_uri()}'
        graphs = ('onnx', 'onnxruntime', 'onnxscript')
        environment(folder, wheel, extras, *graphs, 'lightning', 'pip', 'pycocotools', 'pytest', 'scikit-learn')

    return once('transformers', make) / 'venv' / 'bin' / 'python'


def inside(python: Path, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess:
    return run(python, *arguments, cwd=cwd, PYTHONPATH='', OMP_NUM_THREADS='1')


@pytest.fixture(scope='session')
def results(once, plain: Path) -> dict:
    """What `core_script.py` found in the plain environment, with the files that it was given."""

    def make(folder: Path) -> None:
        given = dict(models=MODELS_BY_NAME, files=write_files(folder))
        (folder / 'given.json').write_text(json.dumps(given))
        done = inside(
            plain, ROOT / 'tests' / 'core_script.py', folder / 'given.json', folder / 'found.json', cwd=folder
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]

    folder = once(f'core-{plain.parent.name}', make)
    return {name: json.loads((folder / f'{name}.json').read_text()) for name in ('given', 'found')}


of_a_release = pytest.mark.parametrize(
    'plain', [pytest.param('installed', marks=pytest.mark.release)], indirect=True, scope='session'
)


def test_public_names_import_torch_alone(plain: Path, tmp_path: Path):
    code = 'import core_script; print(*core_script.imported())'
    done = inside(plain, '-c', f'import sys; sys.path.append({str(ROOT / "tests")!r}); {code}', cwd=tmp_path)
    assert done.returncode == 0 and set(done.stdout.split()) <= {'mmlape', 'numpy'}, done.stdout + done.stderr


def test_every_backbone_is_built_and_trained():
    assert {kind for kind, _ in MODELS_BY_NAME.values()} == set(models.BACKBONES | projects.BACKBONES)


@of_a_release
def test_initial_values_are_those_under_openmmlab(results):
    assert results['found']['openmmlab'] == []
    for name in each(MODELS_BY_NAME):
        kind, options = MODELS_BY_NAME[name]
        found = results['found']['models'][name]
        assert found['values'] == core_script.digests(under_openmmlab(kind, options))
        assert not found['without_gradient']


@of_a_release
def test_files_of_every_layout_load_as_under_openmmlab(results):
    found = results['found']['files']
    for name, (kind, options, file) in results['given']['files'].items():
        model = under_openmmlab(kind, options)
        report = mmlape.load_weights(model, file)
        assert found[name]['values'] == core_script.digests(model), name
        assert (found[name]['layout'], found[name]['new']) == (report.layout, report.new), name
    assert {entry['layout'] for entry in found.values()} == LAYOUTS


@of_a_release
def test_a_compiler_takes_the_complete_adapter(results):
    assert results['found']['compiled'] < 1e-5


@of_a_release
def test_two_processes_have_the_gradients_of_the_complete_batch(results):
    for rank in results['found']['distributed']:
        assert rank['apart'] < 1e-5 and rank['count'] > 50


def test_commands_say_which_extra_they_lack(plain: Path, tmp_path: Path):
    (tmp_path / 'config.py').touch()
    calls = [['report', 'runs'], ['train', 'config.py']]
    code = f'from mmlape.cli import main\nassert [main(words) for words in {calls}] == [1, 1]'
    done = inside(plain, '-c', code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for line, extra in zip(done.stderr.splitlines(), ('experiments', 'stack'), strict=True):
        assert re.search(rf"needs .* is not installed: .*pip install 'mmlape\[{extra}\]'", line), line
