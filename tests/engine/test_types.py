"""A type is a class, whether a config has the class, its name or its name with a scope."""

import copy
import importlib
import sys
from types import SimpleNamespace

import pytest
import tiny
import torch
from config_helpers import ROOT
from each import each
from mmdet.engine.hooks import PipelineSwitchHook
from mmengine import registry as root
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.optim.scheduler.param_scheduler import _ParamScheduler
from mmengine.registry import init_default_scope

from mmlape.cli import main
from mmlape.errors import ConfigError, MMLaPEError
from mmlape.lab.config.config_file import load_config, name_types
from mmlape.lab.config.schedule import check_schedule, check_units, counting, shorten, stretch
from mmlape.lab.config.watched_metrics import check_watched
from mmlape.lab.datasets.formats import iter_sources
from mmlape.lab.datasets.transforms import guard_loading
from mmlape.lab.inference.evaluator import augment
from mmlape.lab.recipe import Part, Recipe
from mmlape.lab.registry import resolve_class
from mmlape.lab.runs.identity import differences, named_differences, settings
from mmlape.lab.training import hooks
from mmlape.lab.training.optim import check_optimizer, set_amp
from mmlape.lab.training.seeding import SeededDataset
from mmlape.lab.training.trainer import train

PLACES = {
    'model': 'MODELS', 'train_dataloader': 'DATASETS', 'val_dataloader': 'DATASETS', 'test_dataloader': 'DATASETS',
    'sampler': 'DATA_SAMPLERS', 'pipeline': 'TRANSFORMS', 'train_cfg': 'LOOPS', 'val_cfg': 'LOOPS',
    'test_cfg': 'LOOPS', 'val_evaluator': 'METRICS', 'test_evaluator': 'METRICS', 'optim_wrapper': 'OPTIM_WRAPPERS',
    'optimizer': 'OPTIMIZERS', 'param_scheduler': 'PARAM_SCHEDULERS', 'default_hooks': 'HOOKS',
    'custom_hooks': 'HOOKS', 'init_cfg': 'WEIGHT_INITIALIZERS',
}  # fmt: skip
"""The registry of the types below a key."""


def typed(node, registry=None):
    """Every part of a config with a type that a registry of `PLACES` has, and that registry."""
    if isinstance(node, dict):
        if registry and node.get('type'):
            yield node, registry
        for key, child in node.items():
            yield from typed(child, PLACES.get(key, registry))
    elif isinstance(node, list | tuple):
        for child in node:
            yield from typed(child, registry)


def spelt(cfg, form):
    """A config with every type as a class, a name, or a name with its scope."""
    cfg = copy.deepcopy(cfg)
    for node, registry in typed(cfg._cfg_dict):
        cls = resolve_class(node['type'], cfg.default_scope, registry, node.get('_scope_'))
        if cls is not None:
            node['type'] = {'class': cls, 'name': node['type'], 'scoped': scoped(cls, registry)}[form]
    return cfg


def scoped(cls, registry):
    """The name of a class with the scope of the registry that has it."""
    parent = getattr(root, registry)
    for one in (parent, *parent.children.values()):
        for name, found in one.module_dict.items():
            if found is cls:
                return f'{one.scope}.{name}'
    raise AssertionError(cls)


def classes(cfg):
    """A config with the class in place of each type, in whatever form that is."""
    cfg = copy.deepcopy(cfg)
    for node, registry in typed(cfg._cfg_dict):
        node['type'] = resolve_class(node['type'], cfg.default_scope, registry, node.get('_scope_')) or node['type']
        node.pop('_scope_', None)
    return cfg._cfg_dict.to_dict()


PIPELINE = [dict(type='LoadImageFromFile')]
CHANGED = {
    'as it is': {},
    'a misspelt best metric': {'default_hooks.checkpoint.save_best': 'mAPP'},
    'a misspelt monitor': {'custom_hooks': [dict(type='EarlyStoppingHook', monitor='mAPP')]},
    'a stop in points': {'custom_hooks': [dict(type='EarlyStoppingHook', monitor='coco/bbox_mAP')]},
    'a plateau of nothing': {'param_scheduler': [dict(type='ReduceOnPlateauLR', by_epoch=False, monitor='nothing')]},
    'an average': {'custom_hooks': [dict(type='EMAHook', begin_iter=20)]},
    'a scheduler in epochs': {'param_scheduler': [dict(type='MultiStepLR', milestones=[8])]},
    'a cosine': {'param_scheduler': [dict(type='CosineAnnealingLR', T_max=100, by_epoch=False)]},
    'a scheduler behind the run': {'param_scheduler': [dict(type='LinearLR', begin=9000, by_epoch=False)]},
    'a pipeline of an epoch': {
        'custom_hooks': [dict(type='PipelineSwitchHook', switch_epoch=280, switch_pipeline=PIPELINE)]
    },
    'in epochs': {
        'train_cfg': dict(type='EpochBasedTrainLoop', max_epochs=300, val_interval=10, dynamic_intervals=[(280, 1)]),
        'param_scheduler': [dict(type='CosineAnnealingLR', begin=150, T_max=150)],
        'custom_hooks': [
            dict(type='PipelineSwitchHook', switch_epoch=280, switch_pipeline=PIPELINE),
            dict(type='YOLOXModeSwitchHook'),
        ],
    },
    'mixed precision': {'optim_wrapper.type': 'AmpOptimWrapper'},
}  # fmt: skip
CHECKS = (check_units, check_watched, check_schedule, check_optimizer)
CHANGES = {
    'accumulation': lambda cfg: stretch(Recipe.of(cfg), 4),
    'a tenth': lambda cfg: shorten(Recipe.of(cfg), 0.1),
    'our hooks': lambda cfg: hooks.install(Recipe.of(cfg), *hooks.ALWAYS),
    'guarded data': guard_loading,
    'precision': lambda cfg: set_amp(Recipe.of(cfg), 'bf16'),
    'names': name_types,
}
LENGTHS = ('accumulation', 'a tenth')
PLAIN = ('as it is', 'mixed precision')
"""Configs whose data, precision and hooks are changed; of the others the length is."""


def outcome(call, cfg):
    try:
        return call(cfg)
    except MMLaPEError as error:
        return f'{type(error).__name__}: {error}'


def test_every_check_and_every_change_is_the_same_for_each_spelling():
    path = ROOT / 'configs/mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py'
    seen = set()
    for name, changes in each(CHANGED.items()):
        plain = load_config(path, {'model.backbone.init_cfg': None})
        plain.merge_from_dict(changes)
        found = []
        for form in ('name', 'class', 'scoped'):
            cfg = spelt(plain, form)
            recipe = Recipe.of(cfg)
            results = {check.__name__: outcome(check, recipe) for check in CHECKS}
            results['precision'] = recipe.precision
            if name in PLAIN:
                results['settings'] = classes(Config(dict(settings_of(named(cfg)), default_scope='mmdet')))
                sources = [(one.split, type(one), [cls for cls, _ in one.metrics]) for one in iter_sources(cfg)]
                results['sources'] = sources
            for title in CHANGES if name in PLAIN else LENGTHS:
                one = copy.deepcopy(cfg)
                error = outcome(CHANGES[title], one)
                results[title] = error or classes(one)
            found.append(results)
        seen |= {value.partition(':')[0] + name for value in map(str, found[0].values()) if 'Error' in value[:12]}
        assert found[0] == found[1] == found[2], name
    assert len(seen) >= 6, 'as many of the changes are refused'


def settings_of(cfg):
    return settings(Recipe.of(cfg))


def named(cfg):
    """As the plan of a run has it."""
    cfg = copy.deepcopy(cfg)
    name_types(cfg)
    return cfg


def test_the_settings_of_classes_are_those_of_names(tmp_path):
    data = tiny.write_data(tmp_path / 'data', train=2, val=1)
    plain = load_config(tiny.write_config(tmp_path, data))
    assert settings_of(named(spelt(plain, 'class'))) == settings_of(plain)
    for form in each(('scoped', 'class')):  # a path is what runs of earlier versions have for a class
        assert settings_of(spelt(plain, form)) != settings_of(plain)
        assert not named_differences(settings_of(plain), settings_of(spelt(plain, form)))
    other = copy.deepcopy(plain)
    other.train_dataloader.dataset.type = 'mmdet.CocoDataset'
    assert len(named_differences(settings_of(plain), settings_of(other))) == 1


def test_a_class_that_is_an_argument_stays_and_one_of_a_user_is_named_by_its_path():
    cfg = Config(dict(model=dict(type=Switch, norm_layer=torch.nn.LayerNorm, norm_cfg=dict(type=torch.nn.LayerNorm))))
    name_types(cfg)
    assert cfg.model == dict(type=f'{__name__}.Switch', norm_layer=torch.nn.LayerNorm, norm_cfg=dict(type='LN'))
    assert resolve_class(cfg.model.type, None, 'MODELS') is Switch


def test_the_views_of_a_test_are_found_by_the_class_of_the_resize(tmp_path):
    data = tiny.write_data(tmp_path / 'data', train=2, val=1)
    plain = load_config(tiny.write_config(tmp_path, data))
    plain.test_dataloader.dataset.pipeline.insert(1, dict(type='Resize', scale=(64, 32), keep_ratio=True))
    found = []
    for form in ('name', 'class', 'scoped'):
        cfg = spelt(plain, form)
        augment(cfg, [1.0])
        found.append(classes(cfg)['test_dataloader']['dataset']['pipeline'])
    assert found[0] == found[1] == found[2] and len(found[0]) == 2


IMPORTS = """
from mmengine.config import read_base

with read_base():
    from .base import *
"""


def write_with_classes(cfg, folder):
    """Write a config as OpenMMLab's newer ones are written: its types are classes, its base is imported."""
    imports, lines = set(), []

    def text(value):
        if isinstance(value, dict):
            return f'dict({", ".join(f"{key}={text(child)}" for key, child in value.items())})'
        if isinstance(value, list | tuple):
            return f'{type(value).__name__}([{", ".join(map(text, value))}])'
        if isinstance(value, type):
            imports.add(f'from {value.__module__} import {value.__name__} as {value.__name__}Type')
            return f'{value.__name__}Type'
        return repr(value)

    for key, value in classes(cfg).items():
        if key not in ('default_scope', 'custom_imports', 'norm_cfg', 'dataset', 'classes'):
            lines.append(f'{key} = {text(value)}')
    (folder / 'base.py').write_text('\n'.join([*sorted(imports), 'default_scope = None', *lines]) + '\n')
    path = folder / 'newer.py'
    path.write_text(IMPORTS + 'train_cfg.update(max_iters=6)\n')
    return path


def test_a_config_of_classes_trains_the_run_of_its_names_and_tests(tmp_path):
    data = tiny.write_data(tmp_path / 'data')
    plain = tiny.write_config(tmp_path, data)
    newer = write_with_classes(spelt(load_config(plain), 'class'), tmp_path)
    shown = tiny.run(sys.executable, '-m', 'mmlape', 'print-config', newer, cwd=tmp_path, **tiny.REAL)
    assert "type='mmlape.VisionTransformer'" in shown, 'also where nothing else has imported our registries'
    whole = train(load_config(plain), tmp_path / 'whole', seed=1)
    run = train(load_config(newer), tmp_path / 'run', seed=1)
    assert tiny.difference(tmp_path / 'run' / 'iter_6.pth', tmp_path / 'whole' / 'iter_6.pth') == 0
    assert differences(whole.identity, run.identity, for_resume=True) == []
    assert main(['test', str(newer), str(tmp_path / 'run' / 'iter_6.pth'), '--work-dir', str(tmp_path / 'test')]) == 0


# what counts what


def test_every_hook_and_scheduler_of_openmmlab_is_in_the_table():
    for scope in ('mmdet', 'mmseg', 'mmpretrain', 'mmlape'):
        importlib.import_module(f'{scope}.registry')
    checked = 0
    for name, base in (('HOOKS', Hook), ('PARAM_SCHEDULERS', _ParamScheduler)):
        parent = getattr(root, name)
        for registry in (parent, *(parent.children[scope] for scope in ('mmdet', 'mmseg', 'mmpretrain', 'mmlape'))):
            getattr(registry, 'import_all', registry.import_from_location)()
            for cls in registry.module_dict.values():
                package, *inner = cls.__module__.split('.')
                if package not in ('mmengine', 'mmdet', 'mmseg', 'mmpretrain', 'mmlape') or 'testing' in inner:
                    continue  # of another test
                assert issubclass(cls, base)
                found = counting(Part('part', {}, cls), 'epochs')
                is_plateau = 'Plateau' in cls.__name__  # which counts validations: refused
                assert is_plateau or not found.unknown, cls
                assert found.is_known != is_plateau or cls.__module__.startswith('mmlape'), cls
                checked += 1
    assert checked > 60


def test_a_pipeline_that_a_hook_sets_reaches_every_dataset_inside_wrappers(tmp_path):
    data = tiny.write_data(tmp_path / 'data', train=2, val=1)
    init_default_scope('mmseg')
    part = load_config(tiny.write_config(tmp_path, data)).train_dataloader.dataset
    wrappers = (
        dict(type='RepeatDataset', dataset=part, times=2),
        dict(type='ConcatDataset', datasets=[part, part]),
        dict(type='mmlape.WindowDataset', dataset=part, side=32),
        dict(type='RepeatDataset', dataset=dict(type='ConcatDataset', datasets=[part, part]), times=2),
        part,
    )
    for wrapper in each(wrappers):
        dataset = SeededDataset(wrapper)
        hook = PipelineSwitchHook(1, [lambda results: 'switched'])
        loader = SimpleNamespace(dataset=dataset)
        hook.before_train_epoch(SimpleNamespace(epoch=1, train_dataloader=loader, logger=SimpleNamespace(info=str)))
        assert len(dataset) >= 2 and {dataset[index] for index in range(len(dataset))} == {'switched'}


class Switch(Hook):
    """A hook of a user's."""

    def __init__(self, at: int = 100, share: float = 0.5, quiet: bool = False) -> None:
        self.at = at


class Told(Switch):
    """One that says what it counts."""

    counts = {'at': 'epochs'}


class Silent(Hook):
    """One without a number."""

    def __init__(self, share: float = 0.5, quiet: bool = True) -> None:
        self.share = share


def run_of(hook, **loop):
    saving = dict(checkpoint=dict(type='CheckpointHook', by_epoch=not loop))
    return Config(dict(train_cfg=loop or dict(max_epochs=300), default_hooks=saving, custom_hooks=[hook]))


def test_a_hook_that_nothing_is_known_of_is_refused_where_it_has_a_number():
    for option, scale, by in (('--shorten', shorten, 0.1), ('--accumulate', stretch, 2)):
        for hook in (dict(type=Switch), dict(type=Switch, at=7), dict(type=Silent, steps=[3])):
            with pytest.raises(MMLaPEError, match=rf'{option} does not know what custom_hooks\.0 .* counts by'):
                scale(Recipe.of(run_of(hook)), by)
        scale(Recipe.of(run_of(dict(type=Silent, share=0.1, priority=40))), by)
    cfg = run_of(dict(type=Told, at=280))
    shorten(Recipe.of(cfg), 0.1)
    assert cfg.custom_hooks[0].at == 28
    for counts, message in (({'at': 'epoch'}, "say 'epoch'"), ({'att': 'epochs'}, 'name att')):
        with pytest.raises(ConfigError, match=f'its counts {message}'):
            shorten(Recipe.of(run_of(dict(type=type('Wrong', (Switch,), dict(counts=counts))))), 0.1)
    cfg.param_scheduler = [dict(type='ReduceOnPlateauLR', by_epoch=False)]
    with pytest.raises(ConfigError, match='param_scheduler.0 .ReduceOnPlateauLR.'):
        stretch(Recipe.of(cfg), 2)
    with pytest.raises(MMLaPEError, match=r'custom_hooks\.0 \(Told\) counts epochs, but train_cfg counts iterations'):
        check_units(Recipe.of(run_of(dict(type=Told, at=280), max_iters=100)))


class Either(Hook):
    """One that counts iterations, unless it is told otherwise."""

    counts = {'at': 'in_epochs'}

    def __init__(self, at: int, in_epochs: bool = False) -> None:
        self.at = at


SCALED = [  # a hook, and its argument at a tenth of 300 epochs, and when four iterations replace one
    (dict(type='mmdet.PipelineSwitchHook', switch_epoch=280, switch_pipeline=[]), 'switch_epoch', 28, 280),
    (dict(type='mmdet.YOLOXModeSwitchHook', num_last_epochs=20), 'num_last_epochs', 2, 20),
    (dict(type='mmdet.YOLOXModeSwitchHook'), 'num_last_epochs', 2, None),
    (dict(type=Either, at=200), 'at', 20, 800),
    (dict(type=Either, at=200, in_epochs=True), 'at', 20, 200),
    (dict(type='mmdet.MeanTeacherHook'), 'interval', None, 4),
    (dict(type='EMAHook', begin_epoch=200), 'begin_epoch', 20, 200),
    (dict(type='EMAHook', begin_iter=200), 'begin_iter', 20, 800),
    (dict(type='EMAHook'), 'interval', None, 4),
    (dict(type='mmpretrain.DenseCLHook'), 'start_iters', 100, 4000),
    (dict(type='mmpretrain.WarmupParamHook', warmup_epochs=30), 'warmup_epochs', 3, 30),
    (dict(type='mmpretrain.PreciseBNHook', interval=10), 'interval', 1, 10),
    (dict(type='LoggerHook', interval=50), 'interval', 5, 50),
    (dict(type='mmdet.DetVisualizationHook', interval=50), 'interval', 50, 50),
]  # fmt: skip


def test_hooks_are_scaled_by_what_they_count():
    for hook, argument, tenth, four in each(SCALED):
        for scale, by, expected in ((shorten, 0.1, tenth), (stretch, 4, four)):
            cfg = run_of(dict(hook))
            scale(Recipe.of(cfg), by)
            assert cfg.custom_hooks[0].get(argument) == expected
    switch = dict(type='mmpretrain.SwitchRecipeHook', schedule=[dict(action_epoch=50), dict(action_epoch=200)])
    cfg = run_of(switch)
    shorten(Recipe.of(cfg), 0.1)
    assert [part.action_epoch for part in cfg.custom_hooks[0].schedule] == [5, 20]


def test_a_hook_of_epochs_is_told_in_a_loop_of_iterations():
    for hook in each(
        [
            dict(type='mmdet.PipelineSwitchHook', switch_epoch=2, switch_pipeline=[]),
            dict(type='mmdet.YOLOXModeSwitchHook'),
            dict(type='mmdet.SetEpochInfoHook'),
            dict(type='EMAHook', begin_epoch=2),
            dict(type='mmpretrain.SimSiamHook', fix_pred_lr=True, lr=0.1),
            dict(type='mmpretrain.SwitchRecipeHook', schedule=[dict(action_epoch=5)]),
        ]
    ):
        check_units(Recipe.of(run_of(hook)))
        cfg = run_of(hook, max_iters=100)
        with pytest.raises(MMLaPEError, match=r'custom_hooks\.0 .* counts epochs.*, but train_cfg counts iterations'):
            check_units(Recipe.of(cfg))
    cfg.custom_hooks = [dict(type='EMAHook', begin_iter=2), dict(type='mmdet.SyncNormHook')]
    check_units(Recipe.of(cfg))
