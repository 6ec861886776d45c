"""Configs: every one loads, builds and is what its name and its README say."""

import ast
import copy
import re
from functools import cache
from pathlib import Path

import pytest
import yaml
from config_helpers import (
    ADAPTER_PARAMS,
    ALTERNATIVES,
    BASES,
    CONFIGS,
    DATA,
    DEIT,
    DETR,
    DPN,
    FAMILIES,
    FOUNDATION,
    MINI,
    PAPER,
    PARAMS,
    RECIPES,
    ROOT,
    WIDTH,
    added_params,
    build,
    build_without_data,
    find,
    folder_of,
    load,
    method_of,
    parts,
    short,
)
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.utils import get_installed_path

from mmlape.analysis.cost import input_shape, model_cost
from mmlape.datasets.sources import iter_unwrapped
from mmlape.engine.keys import check_keys
from mmlape.experiments.report.paper import index_entry
from mmlape.models.layers.norm_placement import resolve_norm_placement

MIM = Path(get_installed_path('mmdet')) / '.mim' / 'configs'


def test_no_base_is_orphaned():
    used = set()

    def follow(path: Path) -> None:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], 'id', '') == '_base_':
                named = ast.literal_eval(node.value)
                for name in [named] if isinstance(named, str) else named:
                    if '::' not in name:
                        base = (path.parent / name).resolve()
                        used.add(base)
                        follow(base)

    for path in CONFIGS:
        follow(path)
    assert len(CONFIGS) > 24
    assert sorted(used & set(BASES)) == BASES


@cache
def metafile(folder: str) -> dict[str, dict]:
    """A folder's entries in its metafile by config."""
    entries = yaml.safe_load((ROOT / 'configs' / folder / 'metafile.yml').read_text())['Models']
    return {entry['Name']: entry for entry in entries}


@pytest.mark.parametrize('path', CONFIGS, ids=short)
def test_every_config_builds(path):
    """Model and pipelines; the number of parameters is what the metafile says and, for the recipes, the papers'."""
    cfg = load(path)
    model = build_without_data(cfg) if path in FOUNDATION + DPN else build(cfg)
    for split in ('train', 'val', 'test'):
        for dataset in iter_unwrapped(cfg[f'{split}_dataloader'].dataset):
            assert Compose(dataset.pipeline).transforms
    name, family = parts(path), method_of(path)
    count = sum(p.numel() for p in model.parameters())
    assert metafile(folder_of(path))[path.stem]['Metadata']['Parameters'] == count
    size = name['arch'].removeprefix('deit-')
    if path in DEIT:
        assert model.backbone.embed_dims == WIDTH[size]
    if path not in RECIPES + ALTERNATIVES:
        return
    default, paper = PARAMS[family, size]
    added = added_params(name)
    assert count == default + added
    if family == 'segmenter':
        imagenet_head = (WIDTH[size] + 1) * 1000  # of the public code, which does not use it
        readme = (ROOT / 'configs' / 'segmentation' / 'segmenter.md').read_text()
        assert f'{default / 1e6:.2f}M' in readme and f'{(default + imagenet_head) / 1e6:.2f}M' in readme
    # Segmenter-S is 26.0M, 26.4M with that head: the one count that does not round to the paper's
    assert abs(count / 1e6 - paper) < (1 if (family, size) == ('segmenter', 'small') else 0.5)
    if name['adapter']:
        assert sum(p.numel() for p in model.backbone.parameters()) == ADAPTER_PARAMS[size] + added


@pytest.mark.parametrize('path', CONFIGS, ids=short)
def test_every_key_is_known(path):
    check_keys(load(path))


@pytest.mark.parametrize('path', CONFIGS, ids=short)
def test_name_says_what_the_config_is(path):
    cfg, name = load(path), parts(path)
    backbone = cfg.model if path in DETR else cfg.model.backbone
    assert (backbone.type in ('mmlape.ViTAdapter', 'mmlape.TimmViTAdapter')) == bool(name['adapter'])
    assert backbone.get('pe_joining', 'default') == (name['joining'] or 'default')
    pe_type = backbone.get('pe_type', 'learnable')
    kinds = [
        one if isinstance(one, str) else one['type'] for one in (pe_type if isinstance(pe_type, list) else [pe_type])
    ]
    alone = [kind for kind in kinds if kind in ('rpe', 'rope-mixed', 'rope', 'cpe', 'shaw', 'alibi2d')]
    assert alone == [name['rpe']] * bool(name['rpe'])
    assert ('irpe' in kinds) == bool(name['irpe'])
    if name['pe'] and path not in DETR:
        assert name['pe'] == f'-{pe_type}'
    placement = name['norms'] or 'pre'
    if placement.startswith('ln-'):
        placement = dict(zip(('attn', 'ffn'), placement.split('-')[1:], strict=True))
    assert resolve_norm_placement(backbone.get('norm_placement', 'pre')) == resolve_norm_placement(placement)
    if path in DETR:
        assert ('sine' in kinds) == (name['pe'] != '-none')
    assert backbone.get('patch_norm', 'none') == (name['part'] or ('dual' if name['dpn'] else 'none'))
    if path in DEIT:
        width = WIDTH[name['arch'].removeprefix('deit-')]
        assert backbone.arch == (name['arch'] if width > 128 else load(MINI[0]).deit_mini)
    assert cfg.train_dataloader.batch_size == int(name['batch'])
    total = int(name['gpus']) * int(name['batch']) * cfg.optim_wrapper.get('accumulative_counts', 1)
    assert cfg.auto_scale_lr == dict(enable=False, base_batch_size=total)
    loop, schedule = cfg.train_cfg, re.sub('-(mmseg|official|ft384|aug)$', '', name['schedule'])
    if schedule.endswith(('i', 'k')):
        assert loop.max_iters == int(schedule[:-1]) * (1000 if schedule.endswith('k') else 1)
    else:
        assert loop.max_epochs == (36 if schedule == '3x' else int(re.match(r'(\d+)e', schedule)[1]))
    assert cfg.data_root == DATA.get(name['data'], cfg.data_root)


@pytest.mark.parametrize('path', CONFIGS, ids=short)
def test_every_path_derives_from_data_root(path):
    cfg = load(path)
    roots = ('data/', '/usr/share/datasets/')  # Debian's packages of datasets
    assert cfg.data_root.startswith(roots)
    found = []

    def walk(value) -> None:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, (list, tuple)):
            for item in value:
                walk(item)
        elif isinstance(value, str) and value.startswith(roots):
            found.append(value)

    for split in ('train', 'val', 'test'):
        walk(cfg[f'{split}_dataloader'])
        walk(cfg.get(f'{split}_evaluator'))
    assert found
    assert all(value.startswith(cfg.data_root) for value in found)


# how configs are written


@pytest.mark.parametrize('path', CONFIGS, ids=short)
def test_config_opens_with_its_command(path):
    doc = ast.get_docstring(ast.parse(path.read_text()))
    command = doc.splitlines()[-1]
    gpus, name = int(parts(path)['gpus']), f'configs/{folder_of(path)}/{path.name}'
    assert command == (f'tools/dist_train.sh {name} {gpus}' if gpus > 1 else f'tools/train.py {name}')


@pytest.mark.parametrize('path', RECIPES, ids=short)
def test_expected_score_is_the_papers(path):
    first = path.read_text().splitlines()[0]
    name = parts(path)
    figure = PAPER.get((method_of(path), name['arch'].removeprefix('deit-'), name['joining']))
    assert 'not run by us' in first
    if name['dpn']:
        assert 'give no figure' in first
    else:
        assert f'Expect {figure} (the paper' in first


@pytest.mark.parametrize('path', RECIPES, ids=short)
def test_variant_changes_what_its_name_says(path):
    """At most 15 lines of code, and only the keys that the name accounts for differ from the config it inherits."""
    tree = ast.parse(path.read_text())
    base = next(ast.literal_eval(node.value) for node in tree.body if getattr(node, 'targets', [None])[0] is not None)
    lines = path.read_text().rstrip().splitlines()
    if not isinstance(base, str):
        assert 'deit-tiny' in path.name and 'lape' not in path.name
        return
    code = [line for line in lines[len(ast.get_docstring(tree).splitlines()) :] if line.strip()]
    assert len(code) <= 15
    changed = {key for key, _ in flat(load(path)) ^ flat(load(path.parent / base))}
    name = parts(path)
    if name['dpn']:
        allowed = r'model\.backbone\.patch_norm'
    elif name['joining'] == 'lape':
        allowed = r'model\.backbone\.pe_joining'
    else:
        allowed = (
            r'embed_dims|model\.backbone\.(arch|drop_path_rate)|model\..*\.(in_channels|num_heads|embed_dims)(\.\d+)?'
            r'|model\.decode_head\.channels'
        )
    unexpected = [k for k in changed if not re.fullmatch(rf'{allowed}|model\.backbone\.init_cfg\.checkpoint', k)]
    assert not unexpected
    assert changed - {'model.backbone.init_cfg.checkpoint'}


def flat(value, prefix: str = '') -> set[tuple[str, str]]:
    """(dotted key, value as text) of everything in a config."""
    if isinstance(value, (dict, Config)):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        return {(prefix, repr(value))}
    return {leaf for key, item in items for leaf in flat(item, f'{prefix}.{key}' if prefix else str(key))}


def values(path: Path) -> dict[str, str]:
    return dict(flat(load(path)))


@pytest.mark.parametrize('path', ALTERNATIVES, ids=short)
def test_alternative_has_the_other_codes_values_and_nothing_else(path):
    """Settings of an alternative beside those of the recipe of its name; the values are read in the public configs."""
    tag = re.search('160k-([a-z]+)', path.stem)[1]
    other, own = values(path.with_name(path.name.replace(f'-{tag}', ''))), values(path)
    changed = {
        key: (other.get(key), own.get(key)) for key in other.keys() | own.keys() if other.get(key) != own.get(key)
    }
    if tag == 'mmseg':
        head = 'model.decode_head.'
        assert changed == {
            f'{head}drop_rate': ('0.1', '0.0'),
            f'{head}attn_drop_rate': ('0.1', '0.0'),
            f'{head}drop_path_rate': ('0.0', '0.1'),
            f'{head}loss_decode.avg_non_ignore': ('True', 'False'),
            'param_scheduler.0.eta_min': ('1e-05', '0.0001'),
            'model.test_cfg.stride.0': ('512', '480'),
            'model.test_cfg.stride.1': ('512', '480'),
        }
        return
    wrapper = 'optim_wrapper.'
    assert changed == {
        f'{wrapper}optimizer.lr': ('2e-05', '0.00012' if 'tiny' in path.name else '6e-05'),
        f'{wrapper}optimizer.weight_decay': ('0.05', '0.01'),
        f'{wrapper}paramwise_cfg.layer_decay_rate': (None, '0.95'),
        f'{wrapper}paramwise_cfg.flat_decay_mult': (None, '0.0'),
    }


# the recipes


@pytest.mark.parametrize('path', RECIPES, ids=short)
def test_recipe(path):
    cfg, family = load(path), method_of(path)
    backbone, pre = cfg.model.backbone, cfg.model.data_preprocessor
    assert (pre.mean, pre.std, pre.bgr_to_rgb) == ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375], True)
    wide = 'small' in path.name and family != 'segmenter'
    assert backbone.drop_path_rate == (0.2 if wide else 0.1)
    assert cfg.crop_size == ((1024, 1024) if family == 'mask_rcnn' else (512, 512))
    wrapper = cfg.optim_wrapper
    kind, lr, decay = {
        'mask_rcnn': ('AdamW', 1e-4, 0.05),
        'upernet': ('AdamW', 2e-5, 0.05),
        'segmenter': ('SGD', 1e-3, 0.0),
    }[family]
    assert (wrapper.optimizer.type, wrapper.optimizer.lr, wrapper.optimizer.weight_decay) == (kind, lr, decay)
    if family == 'mask_rcnn':
        assert (pre.pad_size_divisor, pre.pad_mask) == (32, True)
        assert backbone.vit_feature_source == 'last'
        return
    assert pre.size == cfg.crop_size
    test = cfg.model.test_cfg
    stride = (512, 512) if family == 'segmenter' else (341, 341)
    assert (test.mode, test.crop_size, test.stride) == ('slide', cfg.crop_size, stride)
    head = cfg.model.decode_head
    if family == 'segmenter':
        assert wrapper.optimizer.momentum == 0.9
        assert (head.num_layers, head.drop_rate, head.attn_drop_rate, head.num_classes) == (2, 0.1, 0.1, 150)
        assert head.num_heads == head.embed_dims // 64
        assert backbone.img_size == cfg.crop_size
    else:
        auxiliary = cfg.model.auxiliary_head
        assert (auxiliary.in_index, auxiliary.loss_decode.loss_weight) == (2, 0.4)
        assert backbone.vit_feature_source == 'interaction'


@pytest.mark.parametrize('path', [path for path in DETR if '_mini-' not in path.name], ids=short)
def test_detr_recipe_is_mmdetections(path):
    """But for the length, iRPE's tables, which are not decayed, and two values of DETR's code that mmdetection lacks.

    They are the neck's first values, and the limit of 1333 pixels before the crop. Parameters are DETR's and what a PE
    adds.
    """
    cfg, plain = load(path), Config.fromfile(MIM / 'detr' / 'detr_r50_8xb2-150e_coco.py')
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
    long = '-300e_' in path.name
    assert (cfg.train_cfg.max_epochs, cfg.param_scheduler[0].milestones) == ((300, [200]) if long else (150, [100]))
    count = metafile('detection')[path.stem]['Metadata']['Parameters']
    entries = {'15x15': 225 * 32, 'product-k-9x9': 81 * 32, 'clip-k-9x9': 81 * 32, 'bias-k-9x9': 81, 'lape': 2 * 256}
    assert count == 41_575_061 + 6 * next((more for part, more in entries.items() if part in path.name), 0)


@pytest.mark.parametrize('family', ['mask_rcnn', 'upernet'])
def test_windows(family):
    blocks = build(load(find(family, 'tiny'))).backbone.blocks
    windowed = [14, 14, None] * 4 if family == 'mask_rcnn' else [None] * 12
    assert [block.attn.window_size for block in blocks] == windowed


# READMEs and metafiles


def test_model_index_lists_every_config_once():
    imported = yaml.safe_load((ROOT / 'model-index.yml').read_text())['Import']
    assert sorted(imported) == sorted(str(p.relative_to(ROOT)) for p in (ROOT / 'configs').rglob('metafile.yml'))
    listed = []
    for file in imported:
        meta = yaml.safe_load((ROOT / file).read_text())
        names = {collection['Name'] for collection in meta['Collections']}
        assert all((ROOT / collection['README']).is_file() for collection in meta['Collections'])
        for model in meta['Models']:
            assert model['In Collection'] in names
            assert Path(model['Config']).stem == model['Name']
            # nothing was run by us: no results of ours, no weights
            assert not {'Results', 'Weights'} & set(model)
            listed.append(model['Config'])
    assert sorted(listed) == sorted(str(path.relative_to(ROOT)) for path in CONFIGS)


def test_pages_agree_with_metafiles_and_configs():
    """Parameters are those that the models are held to above, scores those that the configs expect."""
    pages = [*(ROOT / 'configs').rglob('*.md'), ROOT / 'docs' / 'foundation-configs.md']
    row = r'^\| \[(.+?)\]\((.+?)\) \|.*?\| ([\d.]+)M \| ([\d.]+) \|(?: ([\d.]+|none) \|)? (.+?) \| (.+?) \|$'
    rows = [(page, *found) for page in pages for found in re.findall(row, page.read_text(), re.M)]
    configs = {path.stem: path for path in CONFIGS}
    assert sorted(name for _, name, *_ in rows) == sorted(name for name in configs if '_mini-' not in name)
    for page, name, link, millions, gflops, early, score, ours in rows:
        folder = folder_of(configs[name])
        model = metafile(folder)[name]
        assert (page.parent / link).resolve() == configs[name]
        assert millions == f'{model["Metadata"]["Parameters"] / 1e6:.3f}'
        assert gflops == f'{model["Metadata"]["FLOPs"] / 1e9:.1f}'
        expected = re.search(r'Expect (.+); not run by us', configs[name].read_text().splitlines()[0])
        numbers = re.findall(r'\d+\.\d+', expected[1]) if expected else []
        assert re.findall(r'\d+\.\d+', score) == numbers
        quoted = [one for one in model.get('Paper Results', []) if 'Epoch' not in one]
        after = [one for one in model.get('Paper Results', []) if 'Epoch' in one]
        assert [(one['Epoch'], one['Metrics']) for one in after] == (
            [(100, {'top-1': float(early)})] if early not in ('', 'none') else []
        )
        assert [value for one in quoted for value in one['Metrics'].values()] == [float(number) for number in numbers]
        papers = {'-irpe-': 'iRPE (ICCV 2021)', 'detr_': 'iRPE (ICCV 2021)', '-cpe_': 'CPVT (ICLR 2023)'}
        paper = next((paper for part, paper in papers.items() if part in name), 'LaPE (ICCV 2023)')
        dpns = configs[name] in DPN or re.search('linear_vit', name)
        of_dpn = ['DPN (TMLR 2023)'] * bool((numbers and dpns) or 'DPN' in score)
        others = len(numbers) > 0 and '-dpn' not in name and not dpns
        assert [one['Paper'] for one in quoted] == [paper] * others + of_dpn
        assert {one['Runs'] for one in quoted if 'LaPE' in one['Paper']} <= {
            'not stated' if folder.endswith('imagenet') else 'mean of five seeds'
        }
        run = folder.endswith('fashion_mnist') and 'mini' in name
        assert ours == 'not run by us' or (
            run and re.search(r'\.\./docs/results/(fashion-mnist|dpn|position)\.md', ours)
        )


IMAGENET = ROOT / 'configs' / 'classification' / 'imagenet'
SHARED = ('product-bias-k', 'product-clip-bias-k')


@pytest.mark.parametrize('path', sorted(IMAGENET.glob('deit-small-irpe-*.py')), ids=short)
def test_irpes_heads_are_those_of_the_quoted_figures(path):
    """Of the biases, 80.05 and those of g against h are of shared tables, all others of a table a head."""
    kind = load(path).model.backbone.pe_type[1]
    method = re.search('-irpe-(.+?)_', path.stem)[1]
    per_head = method not in SHARED if kind.get('mode') == 'bias' else method.endswith('per-head')
    assert kind.get('share_heads', True) == (not per_head)


def test_the_figures_of_irpes_released_weights_stand_beside_the_papers():
    readme = (IMAGENET / 'irpe.md').read_text()
    released = {'tiny_k': 73.7, 'small_k': 80.9, 'small_qk': 81.0, 'small_qkv': 81.2, 'base_k': 82.3, 'base_qkv': 82.8}
    found = {}
    for name, entry in metafile('classification/imagenet').items():
        for one in entry.get('Released Results', []):
            size, sides = re.match(r'deit-(\w+)-irpe-product-(\w+)_', name).groups()
            found[f'{size}_{sides}'] = one['Metrics']['top-1']
            paper = [quoted['Metrics']['top-1'] for quoted in entry.get('Paper Results', [])]
            row = f'| {paper[0] if paper else "none"} | {one["Metrics"]["top-1"]} |'
            assert re.search(rf'\| `deit_{size}_\w+_shared_{sides}.pth` \| .+ {re.escape(row)}', readme)
    assert found == released


def test_dpns_figures_for_deit_are_quoted():
    """DPN's Table 1, without and with Dual PatchNorm."""
    for size, figures in (('small', ['80.1', '80.4']), ('base', ['81.8', '82.0'])):
        for name, figure in zip(('', '-dpn'), figures, strict=True):
            name = f'deit-{size}{name}_4xb256-300e_in1k'
            assert f'{figure} (DPN)' in index_entry(name).results['accuracy/top1']
            assert (
                figure in (ROOT / 'configs' / 'classification' / 'imagenet' / f'{name}.py').read_text().splitlines()[0]
            )


def test_figures_that_five_seeds_cannot_give_have_a_note():
    """A mean of five scores of two decimals is a multiple of 0.002."""
    noted = []
    for path in RECIPES:
        for one in metafile(folder_of(path))[path.stem].get('Paper Results', []):
            odd = [value for value in one['Metrics'].values() if round(value * 1000) % 2]
            assert bool(odd) == ('Note' in one)
            noted += odd
    assert noted == [45.073]
    for readme in (ROOT / 'README.md', ROOT / 'configs' / 'segmentation' / 'README.md'):
        assert re.search(r'45\.073.{0,80}(cannot|\*)', readme.read_text()), readme


@pytest.mark.parametrize(
    'path',
    [find(family, size, '-lape-dpn') for family in FAMILIES for size in ('tiny', 'small')]
    + [path for path in CONFIGS if path.stem.startswith('cct-') and '-lape_' in path.stem],
    ids=short,
)
def test_metafile_has_the_counted_flops(path):
    cfg = load(path)
    flops = sum(part.flops for part in model_cost(build(cfg), input_shape(cfg)))
    assert metafile(folder_of(path))[path.stem]['Metadata']['FLOPs'] == flops
