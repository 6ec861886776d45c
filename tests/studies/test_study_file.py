"""Study files: what they say, what they refuse, and their arms as configs."""

import os
from pathlib import Path

import pytest
import tiny
from config_helpers import load
from told import assert_calls_told

from mmlape.cli import main
from mmlape.errors import ConfigError
from mmlape.lab.config import config_file as config_module
from mmlape.lab.config.config_file import differing_values, load_config
from mmlape.lab.config.stored_config import prediction_parts
from mmlape.lab.evaluation.metric_names import KEYS
from mmlape.lab.experiments.planning import choose, read_arms
from mmlape.lab.experiments.report.arms import index_entry
from mmlape.lab.studies import Arm, find_arm, is_study, read_study

STUDIES = sorted((tiny.ROOT / 'studies').glob('*.yml'))
GRID = """
title: Parts of a norm
paper: DPN (TMLR 2023)
table: Table 6
metric: mIoU
relative_to: dual
seeds: [4, 5]
bases:
  deep: tiny.py
  flat: {title: Flat, base: tiny.py, overrides: {model.backbone.arch.num_layers: 1, train_cfg.max_iters: 4}}
arms:
  dual: {overrides: {model.backbone.patch_norm: dual}}
  rms:
    title: RMSNorm
    overrides: {model.backbone.patch_norm: rms, optim_wrapper.optimizer.lr: 1e-4, train_cfg.max_iters: 5}
    figure: {deep: '80.50', flat: '-0.1'}
  irpe:
    bases: [flat]
    overrides: {model.backbone.pe_type: [learnable, {type: irpe, on: k}]}
"""


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp('study file')
    return tiny.write_config(folder, tiny.write_data(folder / 'data'))


@pytest.fixture
def grid(config):
    path = config.with_name('grid.yml')
    path.write_text(GRID)
    return path


# what a file says


def test_a_grid_has_its_arms_on_every_base(grid):
    study = read_study(grid)
    assert [arm.name for arm in study.arms] == ['dual', 'dual-flat', 'rms', 'rms-flat', 'irpe-flat']
    assert (study.name, study.title, study.seeds, study.metric) == ('grid', 'Parts of a norm', (4, 5), 'mIoU')
    assert (study.paper, study.table, study.runs) == ('DPN (TMLR 2023)', 'Table 6', 'not stated')
    deep, flat = study.arm('rms'), study.arm('rms-flat')
    assert [arm.figure for arm in (deep, flat)] == ['80.50', '-0.1'], 'as they are printed'
    assert [arm.relative_to for arm in (deep, flat)] == ['dual', 'dual-flat']
    assert [arm.title for arm in (deep, flat)] == ['RMSNorm, deep', 'RMSNorm, Flat']
    assert study.arms[0].figure is study.arms[0].relative_to is None
    assert Path(deep.base) == grid.with_name('tiny.py'), 'relative to the study'
    assert deep.overrides['optim_wrapper.optimizer.lr'] == 1e-4
    assert flat.overrides['train_cfg.max_iters'] == 5, "an arm's override wins over its base's"
    assert study.arms[-1].overrides['model.backbone.pe_type'][1] == {'type': 'irpe', 'on': 'k'}, 'no boolean'


def test_an_arm_is_a_config(grid):
    cfg = load_config(f'{grid}:rms-flat', ['train_cfg.val_interval=2'])
    assert cfg.model.backbone.patch_norm == 'rms' and cfg.model.backbone.arch.num_layers == 1
    assert (cfg.train_cfg.max_iters, cfg.train_cfg.val_interval) == (5, 2)
    assert cfg.filename == str(grid.with_name('grid-rms-flat.py'))
    other = load_config(f'{grid}:rms')
    assert other.model.backbone.arch.num_layers == 2 and other.optim_wrapper.optimizer.lr == 1e-4
    assert load_config(grid.with_name('tiny.py')).get('patch_norm') is None, 'the base stays'
    for name in (f'{grid}:rms-flat', cfg.filename):
        arm = find_arm(name)
        assert (arm.study.title, arm.name) == ('Parts of a norm', 'rms-flat')
    assert find_arm(str(grid.with_name('tiny.py'))) is None and find_arm(f'{grid}:none') is None
    assert find_arm('/gone/dpn-table6-rms-s16.py').figure == '-0.1', "this package's studies are found anywhere"
    assert not is_study('a.py') and is_study('mmlape::studies/irpe.yml') and is_study('a.yaml:b')


@pytest.mark.parametrize('suffix', ['.yml', '.yaml'])
def test_an_arm_is_found_by_what_a_run_records(config, suffix, tmp_path, monkeypatch):
    """By its reference and by its config's name, whatever the file ends with; the package's is none of the cwd."""
    file = tmp_path / 'studies' / f'dpn-table6{suffix}'
    file.parent.mkdir()
    file.write_text(GRID.replace('tiny.py', str(config)))
    study = read_study(file)
    for arm in study.arms:
        for name in (arm.config, arm.config_file):
            assert find_arm(name) == arm
    with pytest.raises(ConfigError, match=f'did you mean .*dpn-table6{suffix}'):
        read_study(file.with_name('dpn-tabel6.yml'))
    monkeypatch.chdir(tmp_path)
    packaged = read_study('mmlape::studies/dpn-table6.yml')
    first = packaged.arms[0]
    assert find_arm(first.config).study.title == packaged.title != study.title
    assert find_arm(f'studies/dpn-table6{suffix}:dual').study.title == study.title


def test_values_and_names_are_read_as_they_are_written(config):
    path = config.with_name('plain.yml')
    path.write_text(
        'title: true positives only\npaper: P\n'
        'bases: {16: tiny.py, "1e-3": {base: tiny.py, title: 1e-3 with warm-up}}\n'
        'arms: {8: {overrides: {a: False, b: TRUE, c: on, d: 1e-3}, figure: {16: 3, "1e-3": "4.10"}},\n'
        '  "2e1": {bases: [16]}}'
    )
    study = read_study(path)
    assert study.title == 'true positives only'
    assert [(arm.name, arm.base_title, arm.figure) for arm in study.arms] == [
        ('8', '16', '3'), ('8-1e-3', '1e-3 with warm-up', '4.10'), ('2e1', '16', None),
    ]  # fmt: skip
    assert study.arms[0].overrides == {'a': False, 'b': True, 'c': 'on', 'd': 0.001}
    path.write_text(
        'base: tiny.py\npaper: P\nrelative_to: "1e-3"\n'
        'arms: {"1e-3": {overrides: {model.x: {bases: [4]}}}, "2e-3": {figure: 3}}'
    )
    first, second = read_study(path).arms
    assert second.relative_to == '1e-3' and first.overrides == {'model.x': {'bases': [4]}}


def test_variables_are_those_of_the_base_and_of_nothing_else(config, monkeypatch):
    monkeypatch.delenv('SIDE', raising=False)
    base = config.with_name('variable.py')
    base.write_text("_base_ = 'tiny.py'\nside = int('{{$SIDE:32}}')\nmodel = dict(backbone=dict(img_size=side))\n")
    path = config.with_name('sides.yml')
    path.write_text('base: variable.py\nseeds: [7, 3]\narms: {small: {variables: {SIDE: 16}}, usual: {}, us: {}}\n')
    assert [load_config(f'{path}:{arm}').model.backbone.img_size for arm in ('small', 'usual')] == [16, 32]
    assert 'SIDE' not in os.environ
    assert find_arm(f'{path}:us').name == 'us' and read_study(path).seeds == (7, 3)
    monkeypatch.setenv('SIDE', '8')
    assert load_config(f'{path}:small').model.backbone.img_size == 16 and os.environ['SIDE'] == '8'


def test_bad_input_is_one_line_that_names_file_and_key(config, capsys):
    path = config.with_name('bad.yml')

    def refused(text):
        path.write_text(text.replace('\\n', '\n') + '\n')
        assert main(['print-config', f'{path}:a']) == 1
        said = capsys.readouterr().err.strip()
        assert str(path) in said and '\n' not in said
        return [said]

    assert_calls_told('refused-studies', refused, folder=config.parent)


# arms of a comparison


def test_arms_of_studies_and_configs(grid, config):
    arms, seeds, work_dir = read_arms([str(grid)], ['train_cfg.max_iters=2'])
    assert (seeds, work_dir) == ((4, 5), 'work_dirs/grid')
    assert [arm.name for arm in arms] == ['dual', 'dual-flat', 'rms', 'rms-flat', 'irpe-flat']
    assert (arms[2].config, arms[2].cfg_options) == (f'{grid}:rms', ('train_cfg.max_iters=2',))
    assert [arm.name for arm in choose(arms, ['rms*', 'dual'])] == ['dual', 'rms', 'rms-flat']
    with pytest.raises(ConfigError, match="--arms: no arm 'rm'; there are: dual"):
        choose(arms, ['rm'])
    assert Arm.of('mmlape::segmenter/some.py').name == 'some'
    arms, seeds, work_dir = read_arms([f'{grid}:rms', str(config)])
    assert [arm.name for arm in arms] == ['rms', 'tiny'] and work_dir == 'work_dirs'
    other = grid.with_name('other.yml')
    other.write_text('base: tiny.py\nseeds: [9]\narms: {a: }\n')
    with pytest.raises(ConfigError, match=r'--seeds: .*grid\.yml and .*other\.yml have different ones'):
        read_arms([str(grid), str(other)])


# print-config


def test_an_exported_arm_is_the_arm(grid, tmp_path, capsys):
    assert main(['print-config', f'{grid}:rms-flat']) == 0
    exported = tmp_path / 'exported.py'
    exported.write_text(capsys.readouterr().out)
    assert differing_values(load_config(exported), load_config(f'{grid}:rms-flat')) == []
    assert main(['print-config', str(exported), '--diff', str(grid.with_name('tiny.py'))]) == 0
    assert capsys.readouterr().out.splitlines() == [
        'model.backbone.arch.num_layers: 1 -> 2',
        "model.backbone.patch_norm: 'rms' -> (absent)",
        'optim_wrapper.optimizer.lr: 0.0001 -> 0.001',
        'train_cfg.max_iters: 5 -> 6',
    ]


# the studies of this package


@pytest.mark.parametrize(
    'path',
    # VTAB's arms read their bases anew, each
    [pytest.param(path, marks=pytest.mark.release) if path.stem == 'vtab' else path for path in STUDIES],
    ids=lambda path: path.stem,
)
def test_every_arm_resolves_and_a_figure_has_one_home(path, monkeypatch):
    """Arms differ from each other; one without changes has its figure in the metafile, the others in the study."""
    study = read_study(path)
    if not any(arm.variables for arm in study.arms):  # a base is read once
        monkeypatch.setattr(config_module, '_read', load)
    seen = {}
    for arm in study.arms:
        cfg = load_config(arm.config)
        if 'tokenizer' not in cfg.model:  # whose vocabulary is a file
            prediction_parts(cfg.to_dict())  # a model of it can be published
        text = str({key: value for key, value in cfg.to_dict().items() if key not in ('vtab', 'data_root')})
        assert text not in seen.values() or arm.variables, f'{arm.name} is another arm once more'
        seen[arm.name] = text
        known = index_entry(Path(arm.base).name + '.py')
        assert known is not None, f'{arm.base} is in no metafile'
        if not arm.overrides and not arm.variables:
            assert arm.figure is None and not arm.also
    assert study.metric in KEYS or study.name == 'vtab'
