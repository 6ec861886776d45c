"""Configs: every one loads, builds, is what its name says, and is put together in a way that is short to read."""

import ast
import copy
import html
import re
import sys
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
import yaml
from config_helpers import (
    ADAPTER_PARAMS,
    BASES,
    CONFIGS,
    DATA,
    DEIT,
    DETR,
    FAMILIES,
    FOUNDATION,
    PARAMS,
    PUBLIC,
    RECIPES,
    ROOT,
    WIDTH,
    added_params,
    build,
    build_without_data,
    dpn_arm,
    find,
    folder_of,
    load,
    method_of,
    parts,
    short,
)
from each import each
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.optim import build_optim_wrapper
from mmengine.utils import get_installed_path
from torch import nn

from mmlape.lab.analysis.cost import input_shape, model_cost
from mmlape.lab.config.config_file import load_config
from mmlape.lab.config.known_keys import check_keys
from mmlape.lab.config.stored_config import prediction_parts
from mmlape.lab.datasets.checks import check_heads
from mmlape.lab.datasets.formats import iter_sources, iter_unwrapped
from mmlape.lab.evaluation.metric_names import KEYS
from mmlape.lab.experiments.report.arms import index_entry
from mmlape.lab.studies import packaged_studies
from mmlape.lab.training.optim import quiet_logger
from mmlape.models.layers.norm_placement import resolve_norm_placement
from mmlape.models.model_names import find_model, list_models
from mmlape.models.position import position_parameters

DETR_ARMS = {'none-product-k': 81 * 32, 'product-k-15x15': 225 * 32, 'clip-k': 81 * 32, 'bias-k': 81, 'none': 0}
"""Arms of studies/irpe-detr.yml, and the parameters of their tables in each layer."""
DEIT_MINI = dict(embed_dims=128, num_layers=4, num_heads=4, feedforward_channels=512)
BASE_FOLDER = ROOT / 'configs' / '_base_'
MIM = Path(get_installed_path('mmdet')) / '.mim' / 'configs'


# how configs are written


def bases_of(path: Path) -> list[Path]:
    """Our files that a config names in `_base_`."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], 'id', '') == '_base_':
            named = ast.literal_eval(node.value)
            names = [named] if isinstance(named, str) else named
            return [(path.parent / name).resolve() for name in names if '::' not in name]
    return []


def levels(path: Path) -> int:
    return 1 + max(map(levels, bases_of(path)), default=0)


def files(path: Path) -> set[Path]:
    """What one has to open to know a recipe."""
    return {path}.union(*map(files, bases_of(path)))


def test_recipes_are_short_to_read():
    """OpenMMLab's limit of three levels; a config names its model, data, schedule and runtime, and no other config."""
    assert 24 < len(CONFIGS) <= 210
    assert {path.name: levels(path) for path in CONFIGS if levels(path) > 3} == {}
    assert {path.name: len(files(path)) for path in CONFIGS if len(files(path)) > 9} == {}
    for path in CONFIGS:
        kinds = [base.relative_to(BASE_FOLDER).parts[0] for base in bases_of(path)]
        assert list(dict.fromkeys(kinds)) == ['models', 'datasets', 'schedules', 'default_runtime.py'], path
        more = kinds.count('models') - (
            'mini_vit-adapter' in path.read_text()
        )  # a part for the models of the mini data
        assert more == kinds.count('datasets') == kinds.count('schedules') == 1, path
    assert sorted(set().union(*map(files, CONFIGS)) & set(BASES)) == BASES  # none is orphaned
    for path in CONFIGS + BASES:
        text = path.read_text()
        assert not re.search(r'\]\.(update|pop)\(|\.insert\(|del \w+\[', text), f'{path}: edits a list by position'
        # of a model, stages of a list: MMEngine merges none
        tables = set(re.findall(r'_base_\.\w+(?:\.\w+|\[[\'"\w]+\])', text)) - {
            '_base_.model.roi_head',
            '_base_.model.train_cfg',
        }
        assert not tables, f'{path}: reads a table of another file: {tables}'


def test_a_recipe_changes_little():
    """Those of the mini data have a small model, which is many values."""
    for path in CONFIGS:
        if '_mini-' not in path.name:
            code = path.read_text().partition('\n]\n')[2].splitlines()
            assert len([line for line in code if line.strip()]) <= 15, path


@cache
def metafile(folder: str) -> dict[str, dict]:
    """A folder's entries in its metafile by config."""
    entries = yaml.safe_load((ROOT / 'configs' / folder / 'metafile.yml').read_text())['Models']
    return {entry['Name']: entry for entry in entries}


# every config


FIRST = {(path.parent, path.stem.rpartition('_')[2]): path for path in reversed(CONFIGS)}
"""A config for each method and dataset; what others change of it is checked below, and by a release."""


@pytest.mark.parametrize(
    'path',
    [
        pytest.param(path, marks=[pytest.mark.release] * (path not in FIRST.values()), id=short(path))
        for path in CONFIGS
    ],
)
def test_a_config(path, monkeypatch):
    """Keys, paths, pipelines, the command in its first lines, decay; parameters as metafile and papers have them."""
    of_coco = SimpleNamespace(utils=SimpleNamespace(rgb2id=None))  # a package on no index
    monkeypatch.setitem(sys.modules, 'panopticapi', of_coco)
    insta_boost = SimpleNamespace(
        InstaBoostConfig=lambda *options: options, __spec__=ModuleSpec('instaboostfast', None)
    )
    monkeypatch.setitem(sys.modules, 'instaboostfast', insta_boost)  # a package that the stack has not
    cfg = load(path)
    check_keys(cfg)
    check_paths(cfg)
    check_command(path)
    if 'lit/' not in str(path):  # whose vocabulary is a file
        prediction_parts(cfg.to_dict())  # a model of it can be published
    model = build_without_data(cfg)
    for split in ('train', 'val', 'test'):
        for dataset in iter_unwrapped(cfg[f'{split}_dataloader'].dataset):
            assert Compose(dataset.pipeline).transforms
    sources = list(iter_sources(cfg))
    assert sources or 'panoptic' in path.stem, 'data of no known format is not checked'
    for source in sources:
        assert not list(check_heads(cfg, source))
    check_decay(path, cfg, model)
    count = sum(p.numel() for p in model.parameters())
    assert metafile(folder_of(path))[path.stem]['Metadata']['Parameters'] == count
    name, family = parts(path), method_of(path)
    size = name['arch'].removeprefix('deit-')
    assert path not in DEIT or model.backbone.embed_dims == WIDTH[size]
    if path in RECIPES:
        check_papers_count(family, size, count, added_params(name))
        if name['adapter']:
            backbone = sum(p.numel() for p in model.backbone.parameters())
            assert backbone == ADAPTER_PARAMS[size] + added_params(name)


@pytest.mark.parametrize('size', ['tiny', 'small'])
@pytest.mark.parametrize('family', FAMILIES)
def test_an_arm_with_dual_patchnorm_adds_what_its_name_adds(family, size):
    for joining in ('', '-lape'):
        cfg, plain = dpn_arm(family, size, f'{joining}-dpn'), load(find(family, size, joining))
        assert read_values(cfg) ^ read_values(plain) == {('model.backbone.patch_norm', "'dual'")}
        assert cfg.model.backbone.init_cfg.checkpoint == f'pretrained/deit_{size}{joining}_dpn.pth'.replace('-', '_')
    count = sum(p.numel() for p in build_without_data(cfg).parameters())
    check_papers_count(family, size, count, added_params(dict(arch=size, joining='lape', dpn=True)))


def check_papers_count(family: str, size: str, count: int, added: int) -> None:
    default, paper = PARAMS[family, size]
    assert count == default + added
    if family == 'segmenter':
        imagenet_head = (WIDTH[size] + 1) * 1000  # of the public code, which does not use it
        page = (ROOT / 'configs' / 'segmenter' / 'README.md').read_text()
        assert f'{default / 1e6:.2f}M' in page and f'{(default + imagenet_head) / 1e6:.2f}M' in page
    # Segmenter-S is 26.0M, 26.4M with that head: the one count that does not round to the paper's
    assert abs(count / 1e6 - paper) < (1 if (family, size) == ('segmenter', 'small') else 0.5)


TABLES = re.compile(
    r'.*\b(pos_embed\d*|absolute_pos_embed\d*|positional_emb|relative_position_bias_table|freqs|rpe_\w+|cpe)\b.*'
)
DECAYED = re.compile(
    r'(cct|cvt|vit-lite)-.*fashion-mnist(-10k)?|(cct|cvt|vit-lite)-.*_cifar100?|linear_vit-base-.*'
    r'|mask2former_(?!deit-mini).*|upernet_beit-.*|htc_.*'
)
"""The public recipes that decay the PE."""


def check_decay(path: Path, cfg: Config, model: nn.Module) -> None:
    """Position encodings do not decay but in the configs that say so; by the names that checkpoints have."""
    wrapper = {key: value for key, value in cfg.optim_wrapper.items() if key not in ('dtype', 'loss_scale')}
    with quiet_logger():
        groups = build_optim_wrapper(model, dict(wrapper, type='OptimWrapper')).optimizer.param_groups
    by_id = {id(p): group['weight_decay'] for group in groups for p in group['params']}
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    tables = {name for name in trained if TABLES.fullmatch(name) and 'pe_norm' not in name}
    assert tables == position_parameters(model) & set(trained)
    decays = {bool(by_id[id(trained[name])]) for name in tables}
    assert not decays or decays == {bool(DECAYED.fullmatch(path.stem))}


def check_paths(cfg: Config) -> None:
    """Every path of the data derives from data_root."""
    roots = ('data/', '/usr/share/datasets/')  # Debian's packages of datasets
    assert cfg.data_root.startswith(roots)
    used = [cfg.get(f'{split}_{part}') for split in ('train', 'val', 'test') for part in ('dataloader', 'evaluator')]
    quoted = [value[1:-1] for _, value in flat(used) if value.startswith("'")]
    paths = [value for value in quoted if value.startswith(roots)]
    assert paths and all(value.startswith(cfg.data_root) for value in paths)


def check_command(path: Path) -> None:
    command = ast.get_docstring(ast.parse(path.read_text())).splitlines()[-1]
    gpus, name = int(parts(path)['gpus']), f'configs/{folder_of(path)}/{path.name}'
    assert command == (f'tools/dist_train.sh {name} {gpus}' if gpus > 1 else f'mmlape train {name}')


def flat(value, prefix: str = '') -> set[tuple[str, str]]:
    """(dotted key, value as text) of everything in a config."""
    if isinstance(value, (dict, Config)):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        return {(prefix, repr(value))}
    return {leaf for key, item in items for leaf in flat(item, f'{prefix}.{key}' if prefix else str(key))}


def test_name_says_what_the_config_is():
    for path in each(CONFIGS):
        cfg, name = load(path), parts(path)
        backbone = cfg.model if path in DETR else cfg.model.backbone
        assert (backbone.type in ('mmlape.ViTAdapter', 'mmlape.TimmViTAdapter')) == bool(name['adapter'])
        assert backbone.get('pe_joining', 'default') == (name['joining'] or 'default')
        pe_type = backbone.get('pe_type', 'learnable')
        kinds = [
            one if isinstance(one, str) else one['type']
            for one in (pe_type if isinstance(pe_type, list) else [pe_type])
        ]
        assert ('rpe' in kinds) == bool(name['rpe'])
        assert ('irpe' in kinds) == bool(name['irpe'])
        assert not {'rope', 'rope-mixed', 'cpe', 'shaw', 'alibi2d'} & set(kinds)
        placement = name['norms'] or 'pre'
        if placement.startswith('ln-'):
            placement = dict(zip(('attn', 'ffn'), placement.split('-')[1:], strict=True))
        assert resolve_norm_placement(backbone.get('norm_placement', 'pre')) == resolve_norm_placement(placement)
        if path in DETR:
            assert 'sine' in kinds
        assert backbone.get('patch_norm', 'none') == (name['part'] or ('dual' if name['dpn'] else 'none'))
        if path in DEIT:
            width = WIDTH[name['arch'].removeprefix('deit-')]
            assert backbone.arch == (name['arch'] if width > 128 else DEIT_MINI)
        assert cfg.train_dataloader.batch_size == int(name['batch'])
        total = int(name['gpus']) * int(name['batch']) * cfg.optim_wrapper.get('accumulative_counts', 1)
        assert cfg.auto_scale_lr == dict(enable=False, base_batch_size=total)
        loop, schedule = cfg.train_cfg, re.sub('-(mmseg|official|ft384|aug)$', '', name['schedule'])
        if schedule.endswith(('i', 'k')):
            assert loop.max_iters == int(schedule[:-1]) * (1000 if schedule.endswith('k') else 1)
        else:
            assert loop.max_epochs == (36 if schedule == '3x' else int(re.match(r'(\d+)e', schedule)[1]))
        assert cfg.data_root == DATA.get(name['data'], cfg.data_root)


# what a variant changes

READ = 'model|train|val|test|optim|param|default_hooks|custom_hooks|auto|data_fraction|load_'


def read_values(cfg: Config) -> set[tuple[str, str]]:
    """What a run reads of a config, without variables and the file that it starts from."""
    start = r'model\.backbone\.init_cfg\.checkpoint|load_from'
    return {(key, value) for key, value in flat(cfg) if re.match(READ, key) and not re.fullmatch(start, key)}


def test_a_variant_adds_what_its_name_adds():
    """LaPE and Dual PatchNorm change one value, whatever the model, the data and the schedule."""
    pairs = 0
    for path in CONFIGS:
        for word, (key, value) in (('-lape', ('pe_joining', 'lape')), ('-dpn', ('patch_norm', 'dual'))):
            plain = path.with_name(path.name.replace(word, '', 1))
            if word not in path.name or plain not in CONFIGS or '-lape-rpe' in path.name:  # -rpe alone has no PE
                continue
            changed = read_values(load(path)) ^ read_values(load(plain))
            where = 'model' if path in DETR else 'model.backbone'
            gone = {(f'{where}.pe_joining', "'default'")} if word == '-lape' else set()
            assert changed - gone == {(f'{where}.{key}', repr(value))}, path.name
            pairs += 1
    assert pairs > 40


def test_a_size_changes_what_depends_on_it():
    """Widths, heads and drop path; the schedule, the data and everything else stay."""
    allowed = (
        r'model\.backbone\.(arch|drop_path_rate)|model\.(neck|head|decode_head|auxiliary_head)\.'
        r'(in_channels|num_heads|embed_dims|channels)(\.\d+)?'
    )
    for path in CONFIGS:
        tiny = path.with_name(re.sub('-(small|base)', '-tiny', path.name, count=1))
        if tiny in CONFIGS and tiny != path and not path.stem.startswith('vit-'):
            changed = {key for key, _ in read_values(load(path)) ^ read_values(load(tiny))}
            assert changed and all(re.fullmatch(allowed, key) for key in changed), path.name


# the recipes


@pytest.mark.parametrize('name', [path.stem for path in DETR if '_mini-' not in path.name] + list(DETR_ARMS))
def test_detr_recipe_is_mmdetections(name):
    """But for the length, iRPE's tables, which are not decayed, and two values of DETR's code that mmdetection lacks.

    They are the neck's first values, and the limit of 1333 pixels before the crop. Parameters are DETR's and what a PE
    adds.
    """
    cfg = load_config(f'mmlape::studies/irpe-detr.yml:{name}' if name in DETR_ARMS else f'mmlape::detr/{name}')
    plain = Config.fromfile(MIM / 'detr' / 'detr_r50_8xb2-150e_coco.py')
    own, theirs = dict(flat(cfg.model)), dict(flat(plain.model))
    ours = ('type', 'pe_', 'encoder.with_cp', 'neck.init_cfg')
    assert {key: value for key, value in own.items() if not key.startswith(ours)} == {
        key: value for key, value in theirs.items() if key != 'type'
    }
    pipeline, other = (copy.deepcopy(one.train_dataloader.dataset.pipeline) for one in (cfg, plain))
    assert cfg.model.neck.init_cfg == dict(type='mmlape.TorchInit', layer='Conv2d')
    before_crop, after = (other[3].transforms[1][place].scales for place in (0, 2))
    assert all(scale[1] == 1333 for scale in after)
    before_crop[:] = [(side, 10**6) for side, _ in before_crop]
    assert [dict(step, backend_args=None) for step in pipeline] == [dict(step, backend_args=None) for step in other]
    wrapper, keys = cfg.optim_wrapper, cfg.optim_wrapper.paramwise_cfg.custom_keys
    assert (wrapper.optimizer, wrapper.clip_grad) == (plain.optim_wrapper.optimizer, plain.optim_wrapper.clip_grad)
    assert keys == dict(backbone=dict(lr_mult=0.1))
    long = '-300e_' in name
    assert (cfg.train_cfg.max_epochs, cfg.param_scheduler[0].milestones) == ((300, [200]) if long else (150, [100]))
    count = sum(p.numel() for p in build_without_data(cfg).parameters())
    entries = {**DETR_ARMS, 'product-k-9x9': 81 * 32, 'lape': 2 * 256}
    assert count == 41_575_061 + 6 * next((more for part, more in entries.items() if part in name), 0)


@pytest.mark.parametrize(
    ('arm', 'millions', 'more'),
    [
        ('coco.yml:mask-rcnn-vit-tiny', 26, 0),
        ('coco.yml:mask-rcnn-vit-tiny-lape', 26, 0),
        ('coco.yml:mask-rcnn-uniperceiver', 120, 0),
        ('coco.yml:upgraded-25e', 122, -2),  # the README counts the extractors that its config has not
        ('coco.yml:htc-beitv2-o365', 401, 0),
        ('segmentation.yml:upernet-beit-plain-lape', 440, 1),  # not in the README
        ('segmentation.yml:upernet-light', 126, 0),  # not in the README
        ('segmentation.yml:upernet-pascal', 451, 0),
        ('segmentation.yml:stuff10k-base', 120, 0),
        ('segmentation.yml:m2f-dinov3-7b', 7643, 0),  # 6716 of them the ViT's; not in the README
    ],
)
def test_an_arm_builds_and_has_the_readmes_parameters(arm, millions, more):
    """One of each kind that ViT-Adapter's README has and no config is of."""
    cfg = load_config(f'mmlape::studies/vit-adapter-{arm}')
    count = sum(p.numel() for p in build_without_data(cfg).parameters())
    assert round(count / 1e6 - more) == millions
    for split in ('train', 'val', 'test'):
        for dataset in iter_unwrapped(cfg[f'{split}_dataloader'].dataset):
            assert Compose(dataset.pipeline).transforms


# the index


def test_models_index_and_catalogue_agree(monkeypatch):
    """Each has every config once, without results; a model of `list-models` is that of the configs with its name."""
    monkeypatch.syspath_prepend(ROOT / 'docs')
    from catalogue import metafiles, read, table

    assert sorted(metafiles()) == sorted((ROOT / 'configs').rglob('metafile.yml'))
    models = [model for file in metafiles() for model in read(file, 'Models')]
    assert all(Path(model['Config']).stem == model['Name'] for model in models)
    assert not any({'Results', 'Weights'} & set(model) for model in models)  # nothing was run by us
    collections = [collection for file in metafiles() for collection in read(file, 'Collections')]
    assert {model['In Collection'] for model in models} == {collection['Name'] for collection in collections}
    assert all((ROOT / collection['README']).is_file() for collection in collections)
    listed = [model['Config'] for model in models]
    assert sorted(listed) == sorted(str(path.relative_to(ROOT)) for path in CONFIGS)
    assert re.findall(r'<tr><td><a href="\.\./\.\./(configs/[^"]+\.py)', table()) == listed
    names = {path: path.stem.split('_')[-3] for path in CONFIGS if path not in FOUNDATION}  # those are timm's models
    backbones = {path: load(path).model.backbone for path, name in names.items() if name in set(list_models())}
    for path, backbone in backbones.items():
        model_class, arguments = find_model(names[path])
        assert backbone.type == f'mmlape.{model_class.__name__}', path.name
        for key in ('arch', 'pe_joining', 'patch_norm', 'patch_size'):
            assert key not in arguments or backbone.get(key) == arguments[key], (path.name, key)
    assert len(backbones) > 80


def test_the_tables_of_configs_are_those_of_the_metafiles():
    sys.path.insert(0, str(ROOT / 'docs'))
    from catalogue import TABLE, pages

    assert len(pages()) == 1 + len({path.parent for path in CONFIGS})
    for page, text in pages().items():
        assert page.read_text() == text, f'{page}: run python docs/catalogue.py'
        assert page.parent.name == 'configs' or len(TABLE.findall(text)) == 1, f'{page} has no place for its table'


def test_paper_table_study_arm_and_config_lead_to_each_other(monkeypatch):
    """Each link sets the filter of the catalogue; it finds what it names, and the way back."""
    monkeypatch.syspath_prepend(ROOT / 'docs')
    from catalogue import papers, table

    rows = [html.unescape(re.sub('<[^>]+>', ' ', row)) for row in re.findall('<tr>.*', table())[1:]]
    links = {unquote(words).replace('+', ' ') for words in re.findall('#words=([^"]+)', table() + papers())}
    for words in links:
        assert any(words.lower() in row.lower() for row in rows), words
    for study in packaged_studies():
        file = f'{study.name}.yml'
        assert f'{file}:' in links and (not study.paper or file in links)
        for arm in study.arms:
            base = Path(arm.base).name
            found = [row for row in rows if f' {file}:{arm.name} ' in row]
            own = [row for row in found if row.split()[0] == f'{file}:{arm.name}']
            assert len(own) == 1 and base in own[0] and study.source in (own[0] if study.paper else 'ours')
            is_config = not arm.overrides and not arm.variables
            assert any(row.split()[0] == base for row in found) == is_config, arm.name


def test_metafiles_quote_what_configs_expect():
    """The scores of a config's first line are those of its entry, each of the right paper, but for MPVG's runs."""
    papers = {'-irpe-': 'iRPE (ICCV 2021)', 'detr_': 'iRPE (ICCV 2021)', '14-dinov2': 'DINOv2 (TMLR 2024)'}
    for path in CONFIGS:
        expected = re.search(r'Expect (.+); not run by us', path.read_text().splitlines()[0])
        numbers = [float(number) for number in re.findall(r'\d+\.\d+', expected[1])] if expected else []
        results = metafile(folder_of(path))[path.stem].get('Paper Results', [])
        quoted = [one for one in results if 'Epoch' not in one and not one['Paper'].startswith('MPVG')]
        assert [value for one in quoted for value in one['Metrics'].values()] == numbers, path.name
        assert all(one['Epoch'] == 100 for one in results if 'Epoch' in one)
        of_dpn = bool(re.match('(linear_)?vit-', path.stem)) and not re.match('vit-(lite|mini)', path.stem)
        paper = next((paper for part, paper in papers.items() if part in path.stem), 'LaPE (ICCV 2023)')
        if method_of(path) in PUBLIC or '_beit-' in path.stem:
            paper = 'ViT-Adapter (ICLR 2023)'
            assert all('README' in one['Source'] for one in quoted)
        both = [] if of_dpn or '-dpn' in path.stem else [paper] * bool(numbers)
        dpn = ['DPN (TMLR 2023)'] * (bool(numbers) and (of_dpn or 'DPN' in expected[1]))
        assert [one['Paper'] for one in quoted] == both + dpn, path.name
        runs = 'not stated' if path.stem.endswith('_in1k') else 'mean of five seeds'
        assert {one['Runs'] for one in quoted if 'LaPE' in one['Paper']} <= {runs}


@pytest.mark.release
def test_a_papers_figure_has_one_home():
    """No two configs or arms that are the same model, data and recipe have a figure of the same paper."""
    homes = {}
    parts_read = ('model', 'train_dataloader', 'val_dataloader', 'optim_wrapper', 'param_scheduler', 'train_cfg')

    def note(name: str, paper: str, metric: str) -> None:
        cfg = load_config(name).to_dict()
        key = (paper, metric, str([cfg.get(part) for part in (*parts_read, 'load_from', 'data_fraction')]))
        assert key not in homes, f'{name} and {homes[key]} have a figure of {paper}'
        homes[key] = name

    for path in CONFIGS:
        for quotation in index_entry(path.stem).quotations:
            for metric in quotation.figures:
                note(str(path), quotation.paper, metric)
    for study in packaged_studies():
        for arm in study.arms:
            if arm.figure is not None:
                note(arm.config, study.paper, KEYS.get(study.metric, study.metric))
    assert len(homes) > 300


COUNTED = [path for path in CONFIGS if re.match('cct-.*-lape_|lit_vit-mini', path.stem)]
FEW = COUNTED[-2:]  # a CCT and LiT
REST = {*COUNTED, *(find(family, size, '-lape') for family in FAMILIES for size in ('tiny', 'small'))} - set(FEW)


@pytest.mark.parametrize(
    'path', FEW + [pytest.param(path, marks=pytest.mark.release) for path in sorted(REST)], ids=short
)
def test_metafile_has_the_counted_flops(path):
    cfg = load(path)
    flops = sum(part.flops for part in model_cost(build(cfg), input_shape(cfg)))
    assert metafile(folder_of(path))[path.stem]['Metadata']['FLOPs'] == flops
