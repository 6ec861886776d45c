"""The configs of the repository, by what their names say; used by the tests of configs, recipes and cost."""

import hashlib
import os
import pickle
import re
from functools import cache, partial
from pathlib import Path
from unittest import mock

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.utils import import_modules_from_strings
from model_helpers import meta_device
from torch import nn

from mmlape.lab.config.config_file import load_config

ROOT = Path(__file__).resolve().parents[1]
BASES = sorted((ROOT / 'configs' / '_base_').rglob('*.py'))
CONFIGS = sorted(path for path in (ROOT / 'configs').rglob('*.py') if '_base_' not in path.parts)


CLASSIFIERS = ('ceit', 'compact', 'deit', 'swin', 't2t_vit', 'vit', 'vtab')
METHODS = (
    'faster-rcnn|mask-rcnn|segmenter|upernet|linear|detr|mask2former|cascade-mask-rcnn|htc|atss|gfl|sparse-rcnn|lit'
    '|pmt|plain-detr'
)


def method_of(path: Path) -> str:
    """The downstream method of a folder, such as 'mask_rcnn'; '' for a classifier."""
    return '' if path.parent.name in CLASSIFIERS else path.parent.name


FAMILIES = ('mask_rcnn', 'segmenter', 'upernet')
# ViT-Adapter's public code is the source of their figures
PUBLIC = ('mask2former', 'cascade_mask_rcnn', 'htc', 'atss', 'gfl', 'sparse_rcnn')
DEIT = [path for path in CONFIGS if 'deit-' in path.name]
RECIPES = [path for path in DEIT if method_of(path) in FAMILIES and '_mini-' not in path.name]
DETR = [path for path in CONFIGS if method_of(path) == 'detr']
FOUNDATION = [
    path
    for path in CONFIGS
    if re.search('_(augreg|dinov2|dinov3|eva02|mae|timm)-', path.stem) and method_of(path) not in PUBLIC
]
# the ViTs of Dual PatchNorm's own recipes, without the study of placements
DPN = [
    path
    for path in CONFIGS
    if re.search('^vit-.+_(in1k|in21k|sun397)$', path.stem) and not re.search('-ln-|normformer|sub-ln', path.stem)
]
MINI = [path for path in DEIT if '_mini-' in path.name]
NAME = re.compile(
    rf'((?P<method>{METHODS})_)?(?P<arch>[a-z][a-z0-9-]*?)(?P<adapter>-adapter)?'
    r'(-distilled)?(-(?P<joining>lape))?'
    r'(-(?P<norms>ln-(?:pre|post|both)-(?:pre|post|both)|normformer|sub-ln))?'
    r'(-(?P<rpe>rpe))?(?P<irpe>-irpe[a-z0-9-]*)?'
    r'(?P<dpn>-dpn)?(-(?P<part>pre|post-posemb|post|learnable-only|rms|no-learnable))?'
    r'_(?P<gpus>\d+)xb(?P<batch>\d+)-(?P<schedule>[^_]+)_(?P<data>.+)'
)
DATA = {
    'coco': 'data/coco/',
    'coco-panoptic': 'data/coco/',
    'ade20k': 'data/ade/ADEChallengeData2016/',
    'mini-coco': 'data/mini/coco/',
    'mini-ade': 'data/mini/ade/',
    'mini-digits': 'data/mini/digits/',
    'mini-objects-ade': 'data/objects/ade/',
    'mini-objects-coco': 'data/objects/coco/',
    'mini-captions': 'data/mini/',
    'coco-captions': 'data/',
    'in1k': 'data/imagenet/',
    'in21k': 'data/',
    'sun397': 'data/SUN397/',
    'cifar10': 'data/cifar10/',
    'cifar100': 'data/cifar100/',
    'fashion-mnist': '/usr/share/datasets/fashion-mnist/',
    'fashion-mnist-10k': '/usr/share/datasets/fashion-mnist/',
}
# (ours with the default PE, the papers' in millions)
PARAMS = {
    ('mask_rcnn', 'tiny'): (28_068_512, 28),
    ('mask_rcnn', 'small'): (47_802_368, 48),
    ('upernet', 'tiny'): (36_062_428, 36),
    ('upernet', 'small'): (57_614_908, 58),
    ('segmenter', 'tiny'): (6_713_388, 7),
    ('segmenter', 'small'): (26_033_964, 27),
}
ADAPTER_PARAMS = {'tiny': 7_966_640, 'small': 27_503_888}
WIDTH = {'mini': 128, 'tiny': 192, 'small': 384, 'base': 768}


def short(path: Path) -> str:
    return path.stem


def folder_of(path: Path) -> str:
    return path.parent.relative_to(ROOT / 'configs').as_posix()


FROMFILE = Config.fromfile


def load(path: Path) -> Config:
    """A config of its own for each caller, who may change it; what it imports is imported."""
    cfg = pickle.loads(_read(path))
    import_modules_from_strings(**cfg.get('custom_imports', dict(imports=[])))
    return cfg


def fromfile(filename: str | Path, *args: object, **kwargs: object) -> Config:
    """`Config.fromfile` in the process of the tests, see conftest.py: the package's configs are read once.

    Those of VTAB are read each time: an arm's variables say which set they are of.
    """
    path = Path(filename).absolute()
    ours = ROOT / 'configs' in path.parents or ROOT / 'mmlape' / '.mim' in path.parents
    ours = ours and 'vtab' not in path.parts
    return load(path) if ours and path.is_file() and not args and not kwargs else FROMFILE(filename, *args, **kwargs)


@cache
def _read(path: Path) -> bytes:
    """A config as it was read by the first process that asked: reading takes 30 times as long as unpickling."""
    folder = os.environ.get('READ_CONFIGS')  # of this call of pytest
    if folder is None:
        return pickle.dumps(FROMFILE(path))
    file = Path(folder, hashlib.sha256(str(path).encode()).hexdigest())
    if not file.exists():
        part = file.with_suffix(f'.{os.getpid()}')
        part.write_bytes(pickle.dumps(FROMFILE(path)))
        part.replace(file)
    return file.read_bytes()


def build(cfg: Config) -> nn.Module:
    init_default_scope(cfg.default_scope)
    return MODELS.build(cfg.model)


def build_without_data(cfg: Config) -> nn.Module:
    """The model on the meta device, for counting; rates of drop path are values of a tensor, so that has some."""
    with mock.patch('torch.linspace', partial(torch.linspace, device='cpu')), meta_device():
        return build(cfg)


def parts(path: Path) -> dict:
    found = NAME.fullmatch(path.stem)
    assert found, f'{path.stem} does not follow the naming scheme'
    return found.groupdict()


def find(family: str, arch: str, variant: str = '') -> Path:
    """The recipe of a family: ``arch`` is 'tiny' or 'small', ``variant`` '' or '-lape'."""
    fitting = [
        p for p in RECIPES if method_of(p) == family and re.search(rf'deit-{arch}(-adapter)?{variant}_', p.stem)
    ]
    assert len(fitting) == 1
    return fitting[0]


def dpn_arm(family: str, arch: str, variant: str = '-lape-dpn') -> Config:
    """A family's recipe with Dual PatchNorm: ``variant`` is '-dpn' or '-lape-dpn'."""
    return load_config(f'mmlape::studies/lape-dpn.yml:{family.replace("_", "-")}-{arch}{variant}')


def added_params(name: dict) -> int:
    """What LaPE's norms (two vectors a layer) and DPN's (over pixels and over channels) add."""
    dims = WIDTH[name['arch'].removeprefix('deit-')]
    return 2 * 12 * dims * (name['joining'] == 'lape') + 2 * (768 + dims) * bool(name['dpn'])
