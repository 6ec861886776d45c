"""VTAB: the sets and the recipe, the choice of the rate, the means, the tool killed and continued."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from config_helpers import ROOT, build, load
from mmengine.config import Config
from mmengine.registry import PARAM_SCHEDULERS
from mmpretrain.structures import DataSample
from synthetic import write_run

from mmlape.checkpoint import load_model
from mmlape.console.tables import rows_of
from mmlape.errors import CheckpointError, DataError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data
from mmlape.lab.experiments.averages import average_values
from mmlape.lab.studies import read_study
from mmlape.projects.vtab import protocol as vtab
from mmlape.projects.vtab.protocol import METRIC, Options, SetResult, build_report, choose, evaluate, means
from mmlape.projects.vtab.sets import VtabSet, VtabSets

STUDY = read_study(ROOT / 'studies' / 'vtab.yml')
ARMS = {arm.name: arm for arm in STUDY.arms if arm.base_name == 'b32'}
GROUPS = {name: arm.variables['VTAB_GROUP'] for name, arm in ARMS.items()}
FIGURES = {name: float(arm.figure) for name, arm in ARMS.items()}
MINI_STUDY = ROOT / 'studies' / 'vtab-mini.yml'
MINI = {name: f'{MINI_STUDY}:{name}' for name in ('digits', 'textures', 'counts')}
PRETRAIN = ROOT / 'configs/deit/deit-mini_1xb32-5e_mini-digits.py'
# folder of the published lists: classes
PUBLISHED = {
    'natural': dict(cifar=100, caltech101=102, dtd=47, oxford_flowers102=102, oxford_iiit_pet=37, svhn=10, sun397=397),
    'specialized': dict(patch_camelyon=2, eurosat=10, resisc45=45, diabetic_retinopathy=5),
    'structured': dict(
        clevr_count=8, clevr_dist=6, dmlab=6, kitti=4, dsprites_loc=16, dsprites_ori=16, smallnorb_azi=18,
        smallnorb_ele=9,
    ),
}  # fmt: skip


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp('vtab') / 'mini'
    make_mini_data(root, MiniOptions(train=1, val=1, digits=0, vtab=40))
    return root / 'vtab'


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp('weights') / 'mini.pth'
    torch.save(dict(state_dict=build(load(PRETRAIN)).state_dict()), path)
    return path


# ---------------------------------------------------------------- the sets and the recipe


def test_the_sets_are_vtabs():
    found = {group: {} for group in PUBLISHED}
    for name, arm in ARMS.items():
        cfg = load_config(arm.config)
        found[cfg.vtab.group][Path(cfg.data_root).name] = cfg.model.head.num_classes
        assert (cfg.vtab.name, cfg.vtab.group) == (name, GROUPS[name])
        assert cfg.model.data_preprocessor.num_classes == cfg.model.head.num_classes
        lists = {split: cfg[f'{split}_dataloader'].dataset.ann_file for split in ('train', 'val', 'test')}
        assert lists == dict(train='train800.txt', val='val200.txt', test='test.txt')
        for split in lists:
            dataset = cfg[f'{split}_dataloader'].dataset
            assert (dataset.data_root, len(dataset.metainfo.classes)) == (cfg.data_root, cfg.model.head.num_classes)
            assert [step.type for step in dataset.pipeline] == ['LoadImageFromFile', 'Resize', 'PackInputs']
    assert found == PUBLISHED and len(GROUPS) == 19


def test_recipe():
    """2,500 steps of 512, of SGD without decay: the rate rises for 200 steps, then falls as half a cosine to 0."""
    cfg = load_config(ARMS['dtd'].config)
    assert (cfg.train_cfg.max_iters, cfg.train_dataloader.batch_size) == (2500, 512)
    assert cfg.optim_wrapper.clip_grad == dict(max_norm=1.0)
    chosen = dict(cfg.optim_wrapper.optimizer)
    assert (chosen.pop('type'), chosen) == ('SGD', dict(lr=3e-4, momentum=0.9, weight_decay=0.0))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedulers = [PARAM_SCHEDULERS.build(dict(one, optimizer=optimizer)) for one in [
        dict(cfg.param_scheduler[0]), dict(cfg.param_scheduler[1], end=cfg.train_cfg.max_iters)
    ]]  # fmt: skip
    rates = []
    for _ in range(2500):
        rates.append(optimizer.param_groups[0]['lr'])
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    steps = np.arange(200, 2500)
    cosine = (1 + np.cos(np.pi * (steps - 200) / 2300)) / 2
    np.testing.assert_allclose(rates[200:], cosine, atol=2e-3)
    np.testing.assert_allclose(rates[:200], (np.arange(200) + 1) / 200, atol=6e-3)


def test_loss_sums_over_classes_and_averages_over_images_and_the_head_starts_at_zero():
    model = build(load_config(MINI['textures']))
    model.head.init_weights()
    assert not any(parameter.any() for parameter in model.head.parameters())
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(size=parameter.shape)))
    samples = [DataSample().set_gt_label(label) for label in (1, 0, 1)]
    batch = model.data_preprocessor(dict(inputs=torch.zeros(3, 3, 64, 64, dtype=torch.uint8), data_samples=samples))
    features = torch.from_numpy(rng.normal(size=(3, 128))).float()
    loss = model.head.loss((features,), batch['data_samples'])['loss']
    scores, labels = model.head((features,)).detach().numpy().astype(float), np.eye(2)[[1, 0, 1]]
    chances = 1 / (1 + np.exp(-scores))
    crosses = -(labels * np.log(chances) + (1 - labels) * np.log(1 - chances))
    assert float(loss) == pytest.approx(crosses.sum(axis=1).mean(), rel=1e-5)


# ---------------------------------------------------------------- the choice and the means


def make_set(name='dtd', group='natural'):
    return VtabSet(name, group, f'{name}.py', (), Config(dict(data_root='nowhere/')), FIGURES[name])


def write_arm(work_dir, one, rate, values, **more):
    for seed, value in enumerate(values, 1):
        write_run(work_dir / one.arm(rate).name, seed, {METRIC: value}, key=METRIC, **more)


def test_the_rate_of_the_best_mean_validation_accuracy_is_chosen(tmp_path):
    one, options = make_set(), Options((0.1, 0.01, 0.003), (1, 2, 3), work_dir=tmp_path)
    assert (one.arm(0.1).config, one.arm(0.1).cfg_options) == ('dtd.py', ('optim_wrapper.optimizer.lr=0.1',))
    write_arm(tmp_path, one, 0.003, (50.0, 60.0, 40.0))
    write_arm(tmp_path, one, 0.01, (52.0, 52.0, 52.0))
    write_arm(tmp_path, one, 0.1, (70.0, 40.0, 46.0))  # the best run and the same mean as 0.01
    result = choose(one, options)
    assert (result.rate, result.reason) == (0.01, '')
    assert [result.validation[rate].mean for rate in (0.003, 0.01, 0.1)] == [50.0, 52.0, 52.0]
    write_run(tmp_path / one.arm(0.01).name, 2, None, state='failed', reason='loss is NaN', iter=7,
              failure=dict(kind='not-finite', reason='loss is NaN'))  # fmt: skip
    result = choose(one, options)
    assert (result.rate, result.reason) == (0.1, 'lr 0.01 diverged')
    write_run(tmp_path / one.arm(0.003).name, 3, None, state='failed', reason='out of memory', iter=7)
    result = choose(one, options)
    assert result.rate is None
    assert result.reason.startswith('lr 0.003: seed 3: failed at iteration 7 of 300: out of memory')


def test_the_final_checkpoint_is_tested_once_on_the_list_of_the_test_split(tmp_path, monkeypatch):
    """Another list is another test; the checkpoints of the other rates are deleted, if that is asked for."""
    one, options = make_set(), Options((0.01, 0.1), (1,), work_dir=tmp_path / 'work', prune=True)
    one.cfg.data_root = f'{tmp_path}/data/'
    (tmp_path / 'data').mkdir()
    (tmp_path / 'data' / 'test.txt').write_text('a.png 0\n')
    for rate, value in ((0.01, 60.0), (0.1, 50.0)):
        folder = write_run(options.work_dir / one.arm(rate).name, 1, {METRIC: value}, key=METRIC, max_iters=9, iter=9)
        for step in (3, 9):
            (folder / f'iter_{step}.pth').touch()
    tested = []

    def test(cfg, checkpoint, folder, show):
        tested.append(checkpoint)
        folder.mkdir(exist_ok=True)
        content = dict(metrics={METRIC: 70.0 + len(tested)})
        (folder / 'metrics.json').write_text(json.dumps(content))
        return content

    monkeypatch.setattr(vtab, 'test', test)
    study = SimpleNamespace(configs={one.arm(0.01).name: Config(dict(log_level='INFO'))})
    for expected in (71.0, 71.0):
        (result,) = evaluate([choose(one, options)], study, options, lambda line: None)
        assert (result.rate, result.test) == (0.01, {1: expected})
    chosen, other = (options.work_dir / one.arm(rate).name / 'seed_1' for rate in (0.01, 0.1))
    assert tested == [chosen / 'iter_9.pth']
    assert len(list(chosen.glob('*.pth'))) == 2 and not list(other.glob('*.pth'))
    (tmp_path / 'data' / 'test.txt').write_text('a.png 0\nb.png 1\n')
    assert evaluate([choose(one, options)], study, options, lambda line: None)[0].test == {1: 72.0}
    again = replace(options, images=1000)  # the chosen rate was trained once more
    study.configs[one.arm(0.01, 1000).name] = Config(dict(log_level='INFO'))
    folder = options.work_dir / one.arm(0.01, 1000).name
    run = write_run(folder, 1, {METRIC: 61.0}, key=METRIC, max_iters=9, iter=9)
    (run / 'iter_9.pth').touch()
    assert evaluate([choose(one, again)], study, again, lambda line: None)[0].test == {1: 73.0}
    assert tested[-1] == run / 'iter_9.pth'
    (chosen / 'iter_9.pth').unlink()
    (chosen / 'test' / 'list.sha256').unlink()
    with pytest.raises(DataError, match='has no checkpoint of iteration 9'):
        evaluate([choose(one, options)], study, options, lambda line: None)


def result_of(name, values, rate=0.01):
    one = make_set(name, GROUPS[name])
    entry = average_values({seed: {METRIC: value} for seed, value in enumerate(values, 1)})[METRIC]
    return SetResult(one, {rate: entry}, rate, dict(entry.values))


def test_means_by_group_say_which_sets_they_are_over(tmp_path):
    rng = np.random.default_rng(0)
    values = {name: rng.uniform(20, 90, 3) for name in GROUPS}
    results = [result_of(name, values[name]) for name in GROUPS if name not in ('svhn', 'dmlab', 'eurosat')]
    results.append(SetResult(make_set('svhn'), {}, reason='lr 0.1: seed 2: missing'))
    options = Options((0.01,), (1, 2, 3), work_dir=tmp_path)
    trained = [result.vtab_set for result in results]
    sets = VtabSets(trained, GROUPS, {'dmlab': 'no folder data/dmlab'}, 'B/32', 'DPN (TMLR 2023), Table 3')
    report = build_report(results, options, sets)
    averages = means(results, sets)
    assert [mean.title for mean in averages] == [
        'mean of natural, 6 of 7 sets', 'mean of specialized, 3 of 4 sets', 'mean of structured, 7 of 8 sets',
        'mean of all, 16 of 19 sets',
    ]  # fmt: skip
    (arm,) = report.results
    found = arm.summary.last.metrics
    for group, mean in zip([*PUBLISHED, 'all'], averages, strict=True):
        members = [name for name in GROUPS if group in (GROUPS[name], 'all')]
        over = [name for name in members if name not in ('svhn', 'dmlab', 'eurosat')]
        by_seed = np.mean([values[name] for name in over], axis=0)
        assert found[mean.title].mean == pytest.approx(by_seed.mean()) and found[mean.title].n == 3
        assert found[mean.title].std == pytest.approx(by_seed.std(ddof=1))
        assert mean.paper == pytest.approx(np.mean([FIGURES[name] for name in over]))
        assert arm.paper.results[mean.title] == f'{mean.paper:.1f} (DPN)'
    left_out = next(note for note in report.notes if note.startswith('In no mean'))
    assert 'svhn (lr 0.1: seed 2: missing)' in left_out and 'dmlab (no folder data/dmlab)' in left_out
    assert 'eurosat (not asked for)' in left_out
    assert any("The paper's figures are for B/32, not measured by us" in note for note in report.notes)
    changed = VtabSets([replace(one, figure=None) for one in trained], GROUPS, {}, 'B/32')
    without = build_report([replace(one, vtab_set=changed.sets[0]) for one in results[:1]], options, changed)
    assert not without.results[0].paper.results
    rows = {row[0]: row for row in rows_of(report.first[0].content)}
    mean = f'{np.mean(values["dtd"]):.2f}'
    assert rows['dtd'][1:4] == ('natural', '0.01', mean) and mean in rows['dtd'][4] and rows['dtd'][-1] == '56.0 (DPN)'
    assert rows['mean of natural, 6 of 7 sets'][1:4] == ('', '', '') and 'svhn' not in rows


# ---------------------------------------------------------------- the start


def test_all_but_the_head_is_loaded(checkpoint):
    torch.manual_seed(1)  # another head than the checkpoint's
    cfg = load_config(MINI['digits'])  # as many classes as the checkpoint has
    model = build(cfg)
    report = load_model(model, checkpoint, fresh=cfg.load_fresh)
    stored = torch.load(checkpoint)['state_dict']
    fresh = ['head.layers.head.weight', 'head.layers.head.bias']
    assert sorted(report.new) == sorted(report.dropped) == sorted(fresh) and not report.problems
    for name, value in model.state_dict().items():
        assert torch.equal(value, stored[name]) != (name in fresh), name
    with pytest.raises(CheckpointError, match='missing: backbone.norm'):
        load_model(model, _without(checkpoint, 'backbone.norm'), fresh=cfg.load_fresh)


def _without(checkpoint, start):
    path = checkpoint.with_name('less.pth')
    tensors = torch.load(checkpoint)['state_dict']
    torch.save(dict(state_dict={name: tensors[name] for name in tensors if not name.startswith(start)}), path)
    return path


# ---------------------------------------------------------------- the tool


@pytest.mark.release
def test_the_tool_continues_after_a_kill(data, checkpoint, tmp_path):
    """Two rates and two seeds of a few steps: what was finished is neither trained nor tested again."""
    command = [*tiny.MMLAPE, 'vtab', MINI['textures'], checkpoint, '--data', data, '--work-dir', 'work', '--prune']
    command += ['--rates', 0.03, 0.3, '--seeds', 1, 2, '--parallel', 1]
    command += ['--cfg-options', 'train_cfg.max_iters=2', 'train_cfg.val_interval=2', 'param_scheduler.0.end=1']
    command += ['param_scheduler.1.begin=1', 'train_dataloader.batch_size=8', 'auto_scale_lr.base_batch_size=8']
    for split in ('train', 'val', 'test'):
        command += [f'{split}_dataloader.num_workers=0', f'{split}_dataloader.persistent_workers=False']
    first = tiny.start(*command, cwd=tmp_path)
    line = ''
    while 'finished after' not in line:
        line = first.stdout.readline()
        assert line, 'it ended before'
    first.kill()
    first.communicate()
    said = tiny.run(*command, cwd=tmp_path)
    assert said.count('finished before, skipped') >= 1 and said.count(': test ') == 2
    logs = sorted((tmp_path / 'work').glob('*/logs/*.log'))
    assert len(logs) == 4
    (stored,) = json.loads((tmp_path / 'work/results/report.json').read_text())['arms'].values()
    stored = stored['last']['metrics']
    of_rates = {}
    for rate in ('0.03', '0.3'):
        runs = [tiny.record(tmp_path / f'work/mini-textures-lr{rate}/seed_{seed}') for seed in (1, 2)]
        assert all(run['state'] == 'finished' and run['iter'] == 2 for run in runs)
        of_rates[float(rate)] = np.mean([run['last']['metrics'][METRIC] for run in runs])
        assert stored[f'mini-textures, validation at {rate}']['mean'] == pytest.approx(of_rates[float(rate)])
    chosen = max(of_rates, key=lambda rate: (of_rates[rate], -rate))
    assert f'Chosen rates: mini-textures {chosen:g}.' in said
    other = next(rate for rate in of_rates if rate != chosen)
    folders = {rate: tmp_path / f'work/mini-textures-lr{rate}' for rate in of_rates}
    scores = [
        json.loads((folders[chosen] / f'seed_{seed}/test/metrics.json').read_text())['metrics'][METRIC]
        for seed in (1, 2)
    ]
    assert list(stored['mini-textures']['values'].values()) == scores
    assert not list(folders[other].glob('seed_*/test')) and not list(folders[other].glob('seed_*/*.pth'))
    assert len(list(folders[chosen].glob('seed_*/iter_2.pth'))) == 2
