"""The report in all its formats, from run folders with known numbers; and the commands that make it."""

import itertools
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from synthetic import settings, write_log, write_run, write_study
from told import assert_calls_told, keep_figures

from mmlape.cli import main
from mmlape.console.figures import look, wrapped
from mmlape.errors import ConfigError
from mmlape.files import write_json
from mmlape.lab.config.config_file import load_config
from mmlape.lab.experiments.report import average, build, document, write_report
from mmlape.lab.experiments.report.arms import index_entry
from mmlape.lab.experiments.report.tables import _seeds
from mmlape.lab.recipe import Recipe
from mmlape.lab.runs.curves import MOST_POINTS, band_of, read_curves
from mmlape.lab.runs.identity import collect, paper_model
from mmlape.lab.runs.run import read_arms

DEFAULT = 'segmenter_deit-tiny_4xb2-160k_ade20k'
LAPE = 'segmenter_deit-tiny-lape_4xb2-160k_ade20k'
VOID = {'meta', 'img', 'br', 'link', 'input', 'hr'}


def _arms(work_dir):
    return [average(name, runs) for name, runs in read_arms(work_dir).items()]


@pytest.fixture(scope='module')
def work_dir(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp('study'))


@pytest.fixture(scope='module')
def report(work_dir):
    return build(_arms(work_dir), 'A <title> & $more$', introduction='Words | words.', notes=('a_note_',))


@pytest.fixture(scope='module')
def folder(report, tmp_path_factory):
    folder = tmp_path_factory.mktemp('report')
    with pytest.MonkeyPatch.context() as patched:
        keep_figures(patched)
        write_report(report, folder)
    return folder


def test_last_and_best_evaluations_are_compared_apart(tmp_path):
    """By other evaluations the other arm is ahead; a run that does not count says nothing about the arm."""
    for name, joining, last, best in (('plain', 'default', 40.0, 50.0), ('new', 'lape', 43.0, 48.0)):
        for seed, shift in ((1, 0.0), (2, 0.5), (3, -0.5)):
            values = last + shift * (name == 'new'), best + shift
            write_run(tmp_path / name, seed, *values, chosen=settings(joining), cost=dict(gpu_hours=seed))
    write_run(tmp_path / 'new', 4, 99.0, state='failed', identity=synthetic.identity(4, total_batch=99))
    made = build(_arms(tmp_path), 'x')
    found = {one.which: one for one in made.comparisons}
    assert found['last'].welch.mean == found['last'].paired.mean == 3.0
    assert found['best'].welch.mean == found['best'].paired.mean == -2.0 and found['best'].welch.n == (3, 3)
    assert made.result('new').identity.total_batch == 8
    details = [part.content for part in document._differences(made, tmp_path) if isinstance(part.content, list)]
    told = [about.content for _, about in details]
    # pairs at the best evaluation differ by the same, and have no p
    assert ['1 of 1 by Welch, 1 by pairs' in told[0], '1 of 1 by Welch, 0 by pairs' in told[1]] == [True, True]


@examples(max_examples=100)
@given(st.lists(st.integers(0, 8), unique=True))
def test_a_row_of_seeds_is_read_back(seeds):
    """Three and more without a gap are named by the first and the last of them, in whatever order they are given."""
    first, *last = _seeds(seeds).split(' to ')
    found = range(int(first), int(*last) + 1) if last else [int(seed) for seed in filter(None, first.split(', '))]
    assert sorted(found) == sorted(seeds) and (last or list(found) == seeds)
    assert bool(last) == (len(seeds) > 2 and max(seeds) - min(seeds) == len(seeds) - 1)


def test_whom_an_arm_is_compared_with(tmp_path):
    for arm, more in (
        ('ti lape', {'joining': 'lape'}),
        ('ti dpn', {'joining': 'default', 'patch_norm': 'dual'}),
        ('ti', {'joining': 'default'}),
        ('s', {'joining': 'default', 'arch': 'deit-small'}),
        ('s lape', {'joining': 'lape', 'arch': 'deit-small'}),
    ):
        write_run(tmp_path / arm, 1, 40.0, chosen=settings(**more))
    pairs = lambda made: {(one.arm, one.baseline) for one in made.comparisons}  # noqa: E731
    assert pairs(build(_arms(tmp_path), 'x')) == {('ti lape', 'ti'), ('ti dpn', 'ti'), ('s lape', 's')}
    others = {(arm, 's') for arm in ('ti lape', 'ti dpn', 'ti', 's lape')}
    assert pairs(build(_arms(tmp_path), 'x', baseline='s')) == others
    with pytest.raises(ConfigError, match='--baseline z: no such arm; there are: s, s lape, ti'):
        build(_arms(tmp_path), 'x', baseline='z')
    arms = _arms(tmp_path)
    with pytest.raises(ConfigError, match='two arms of one name'):
        build([arms[0], arms[0]], 'x')


def test_neighbours_are_told_apart_and_labels_fit():
    """No two of 88 arms share colour and marker, nor ten a marker, nor neighbours a style."""
    looks = [look(place) for place in range(88)]
    assert len({(one['color'], one['marker']) for one in looks}) == 88
    assert len({one['marker'] for one in looks[:10]}) == len({(one['color'], one['ls']) for one in looks[:10]}) == 10
    assert all(one['ls'] != other['ls'] for one, other in itertools.pairwise(looks))
    assert look(0, baseline=True)['lw'] > look(0)['lw']
    name = 'mask-rcnn_vit-base-p16-adapter-lape-shared_4xb2-3x_coco, $chest of drawers$ or commode'
    for width in (20, 40, 56):
        lines = wrapped(name, width).replace(r'\$', '$').split('\n')
        assert max(map(len, lines)) <= width and ''.join(lines).replace(' ', '') == name.replace(' ', '')


def test_arms_that_differ_in_more_than_their_settings_are_pointed_out(tmp_path):
    write_run(tmp_path / 'plain', 1, 40.0, chosen=settings('default'))
    other = synthetic.identity(1, settings(), total_batch=16, batch_policy='allow-batch-mismatch')
    write_run(tmp_path / 'wide', 1, 41.0, identity=other)
    write_run(tmp_path / 'old', 1, 41.0, chosen=False)
    warnings = build(_arms(tmp_path), 'x').warnings
    assert any(line.startswith('wide and plain differ') and 'total_batch: 8 -> 16' in line for line in warnings)
    assert any(line.startswith("wide: its total batch is not the recipe's") for line in warnings)
    assert any(line.startswith('old: an older version') for line in warnings)
    write_run(tmp_path / 'wide', 1, 41.0)
    write_run(tmp_path / 'wide', 2, 99.0, state='failed', identity=synthetic.identity(2, total_batch=99))
    assert build(_arms(tmp_path)[1:], 'x').warnings == []


def test_the_page_is_whole_needs_nothing_else_and_escapes_names(folder):
    source = (folder / 'index.html').read_text()
    tags = re.findall(r'<(/?)(\w+)', re.sub(r'base64,[\w+/=]+', '', source).partition('<html')[2])
    counts = {tag: [end for end, name in tags if name == tag] for tag in {name for _, name in tags} - VOID}
    assert all(2 * ends.count('/') == len(ends) for tag, ends in counts.items() if tag != 'html')
    assert not re.search(r'https?:|url\(|@import|<(script|iframe|object|embed)', source)
    assert all(value.startswith(('data:', '#')) for value in re.findall(r'(?:src|href|action)="(.*?)"', source))
    assert 'Mask R-CNN &lt;b&gt;&amp;' in source and '<b>' not in source and 'viewport' in source
    links = re.findall(r'<a href="#(.*?)"', source)
    assert len({*links}) == len(links) and {*links} <= {*re.findall(r' id="(.*?)"', source)}
    # differences, one pair of curves, and three comparisons of classes
    images = re.findall(r'<img [^>]*>', source)
    assert len(images) == 5 and all('src="data:image/svg+xml;base64,' in one and 'alt="' in one for one in images)


@pytest.mark.skipif(not shutil.which('pdflatex'), reason='no pdflatex on this machine')
def test_latex_compiles(folder):
    command = ['pdflatex', '-interaction=nonstopmode', '-halt-on-error', 'report.tex']
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors='replace')
    assert done.returncode == 0, done.stdout[-3000:]
    assert 'Overfull' not in done.stdout


def test_the_papers_figures_stand_beside_the_same_model_only(report, folder, tmp_path):
    assert [report.result(name).paper.results['mIoU'] for name in (DEFAULT, LAPE)] == ['36.534', '37.908']
    assert (
        f'% note: {LAPE} was not trained as published: 300 iterations instead of 160000.\n'
        in (folder / 'tables.tex').read_text()
    )
    for parameters, figure in ((6_717_996, '37.908'), (6_713_388, None), (None, '37.908')):
        config = f'configs/segmenter/{LAPE}.py'
        write_run(tmp_path / 'a', 1, 40.0, config=config, cost={'parameters': parameters})
        found = build(_arms(tmp_path), 'x').results[0].paper
        assert (found and found.results['mIoU']) == figure


def test_an_arm_of_a_study_has_the_studys_figure():
    rms, plain = (index_entry(f'studies/dpn-table6.yml:{arm}') for arm in ('rms', 'dual'))
    assert rms.results == {'accuracy/top1': '0.0 relative to dual (DPN)'}
    assert plain.results == {'accuracy/top1': '81.1 (DPN)'}, 'its base'
    assert (rms.length, rms.batch) == (plain.length, plain.batch) == (('Iterations', 93000), 4096)
    assert index_entry('work_dirs/lape-table7-sincos1d.py').results == {'accuracy/top1': '67.70'}
    assert index_entry('lape-table7.yml:learnable') == index_entry('deit-tiny_4xb256-300e_in1k')
    (quotation,) = index_entry('lape-table7.yml:rpe').quotations
    assert (quotation.paper, quotation.short) == ('LaPE (ICCV 2023), Table 7', 'LaPE')
    assert index_entry('lape-table7.yml:nothing') is None


TRUNCATED = dict(type='TruncNormal', layer='Linear', std=0.02)
LOADED = dict(type='Pretrained', checkpoint='some/deit.pth')


@pytest.mark.parametrize(
    ('init_cfg', 'more', 'words'),
    [
        (None, {}, 'none'),
        (TRUNCATED, {}, 'none'),
        ([TRUNCATED, dict(type='Constant', layer='LayerNorm')], {}, 'none'),
        (dict(LOADED, checkpoint=None), {}, 'none'),
        (LOADED, {}, 'DeiT-Ti*'),
        ([TRUNCATED, LOADED], {}, 'DeiT-Ti*'),
        ([TRUNCATED, dict(LOADED, allow_joining_mismatch=True)], {}, 'DeiT-Ti?'),
        (TRUNCATED, dict(load_from='another.pth'), 'DeiT-Ti*'),
    ],
)
def test_only_what_is_loaded_from_a_file_is_a_pretrained_model(init_cfg, more, words):
    backbone = dict(type='mmlape.VisionTransformer', arch='deit-tiny', pe_joining='lape', init_cfg=init_cfg)
    teacher = dict(teacher=dict(type='TimmClassifier'), teacher_checkpoint='regnety_160.pth')
    for model in (dict(backbone=backbone), dict(backbone=backbone, **teacher)):
        cfg = dict(more, model=dict(type='ImageClassifier', **model))
        assert paper_model('x', collect(Recipe.of(cfg), 1, 1, 8, 'recipe')).pretrained == words


def test_names_are_those_that_the_run_recorded(tmp_path):
    recorded = dict(name='', pretrained='none', method='Fourier', plain=False)
    for seed, paper in ((1, recorded), (2, None)):
        write_run(tmp_path / f'arm{seed}', seed, 40.0, identity=synthetic.identity(seed, paper=paper), config='c.py')
    first, second = build(_arms(tmp_path), 'x').results
    assert (first.model.name, first.model.method) == ('c', 'Fourier')
    assert (second.model.name, second.model.method) == ('Seg-T-Mask/16', 'LaPE'), 'an older record'


def test_arms_have_the_papers_names():
    """Of the model, of what it starts from, and of the method."""

    def named(config):
        model = paper_model('x', collect(Recipe.of(load_config(f'mmlape::{config}')), 1, 1, 8, 'recipe'))
        assert model.plain == (model.method == 'Default')
        return [f'{model.name} | {model.pretrained} | {model.method}']

    assert paper_model('x', None).name == 'x'
    assert_calls_told('paper-names', named)


def test_curves_of_a_resumed_run_are_one_line(tmp_path):
    loss = lambda i, value: {'lr': 0.1, 'loss': value, 'iter': i, 'step': i}  # noqa: E731
    rows = [loss(10, 4.0), {'mIoU': 5.0, 'time': 1, 'step': 10}, loss(20, 9.0), '{"lr": 0.']
    write_log(tmp_path, rows, '20260101_000000')
    rows = [loss(20, 3.0), {'mIoU': 7.0, 'time': 1, 'step': 20}, {'mIoU': None, 'step': 30}]
    write_log(tmp_path, rows, '20260101_010000')
    assert read_curves(tmp_path) == dict(loss={10: 4.0, 20: 3.0}, mIoU={10: 5.0, 20: 7.0})


@pytest.mark.parametrize('recorded', [False, True])
def test_the_order_of_logs_is_not_that_of_their_names(tmp_path, recorded):
    """The clock was set back before each part; with a record, a later part may also begin before an earlier one."""
    row = lambda i, value: {'loss': value, 'iter': i, 'step': i}  # noqa: E731
    begin = 10 if recorded else 30
    write_log(tmp_path, [row(10, 1.0), row(20, 1.0), row(30, 1.0)], '20260103_000000')
    write_log(tmp_path, [row(20, 2.0), row(30, 2.0), row(40, 2.0)], '20260102_000000')
    write_log(tmp_path, [row(begin, 3.0), row(50, 3.0)], '20260101_000000')
    if recorded:
        write_json(tmp_path / 'run.json', dict(parts=['20260102_000000', '20260101_000000']))
    expected = {10: 1.0, 20: 2.0, 30: 2.0, 40: 2.0, 50: 3.0}
    assert read_curves(tmp_path)['loss'] == expected | {begin: 3.0}


def test_a_resumed_run_in_epochs_may_start_with_an_evaluation(tmp_path):
    loss = lambda epoch: {'loss': 1.0, 'iter': 50 * epoch, 'epoch': epoch, 'step': 50 * epoch}  # noqa: E731
    write_log(tmp_path, [loss(1), {'mIoU': 5.0, 'step': 1}, loss(2)], '20260101_000000')
    write_log(tmp_path, [{'mIoU': 6.0, 'step': 2}, loss(3), {'mIoU': 7.0, 'step': 3}], '20260101_010000')
    assert read_curves(tmp_path)['mIoU'] == {50: 5.0, 100: 6.0, 150: 7.0}


def test_a_band_is_mean_and_deviation_at_common_iterations():
    def band(rows):
        return band_of([dict(loss=row) for row in rows], 'loss')

    found = band([{10: 1.0, 20: 2.0, 30: 9.0}, {20: 4.0, 30: 3.0, 40: 0.0}, {}])
    assert found.n == 2
    assert found.steps.tolist() == [20, 30] and found.mean.tolist() == [3.0, 6.0]
    assert found.std == pytest.approx([np.sqrt(2), np.sqrt(18)])
    assert band([{1: 2.0}]).std is None
    assert band_of([{'coco/bbox_mAP': {1: 0.25}}, {}], 'coco/bbox_mAP').mean.tolist() == [25.0], 'in points'
    assert band([]) is None and band([{1: 1.0}, {2: 1.0}]) is None
    long = band([{step: float(step) for step in range(10_000)}])
    assert len(long.steps) == MOST_POINTS and long.mean == pytest.approx(long.steps)


def test_names_from_files_reach_no_terminal_and_no_spreadsheet_as_code(tmp_path, monkeypatch, capsys):
    """Of arms, classes, machines and reasons; the numbers beside them stay numbers."""
    keep_figures(monkeypatch)
    code, formulas = '\x1b]0;evil\x07\x1b[2J\x9b1m\u202e', ('=HYPERLINK(1)', '@sum', '+1+1', '-2+3')
    for name in (f'=cmd|calc{code}', f'@lape{code}'):
        classes = {f'{start}{code}': 30.0 + place for place, start in enumerate(formulas)}
        for seed in (1, 2, 3):
            more = dict(per_class={'IoU': classes}, host=f'node{code}', config=f'{code}.py')
            write_run(tmp_path / 'runs' / name, seed, 36.0 - seed, **more)
        write_run(tmp_path / 'runs' / name, 4, None, state='failed', reason=f'died {code}')
    assert main(['report', str(tmp_path / 'runs'), '--out', str(tmp_path / 'out'), '--title', f'all{code}']) == 1
    texts = {
        path.name: path.read_text() for path in (tmp_path / 'out').glob('*.*') if path.suffix not in ('.svg', '.pdf')
    }
    assert len(texts) == 8 and 'evil' in texts['index.html']
    printed = capsys.readouterr()
    for name, text in {**texts, 'out': printed.out, 'err': printed.err}.items():
        codes = r'[\x00-\x08\x0b-\x1f]' if name == 'report.json' else r'[\x00-\x08\x0b-\x1f\x7f\x9b\u202e]'
        assert not re.search(codes, text), name
    for name in ('values', 'estimates', 'comparisons'):
        frame = pd.read_csv(tmp_path / 'out' / f'{name}.csv')
        cells = [cell for column in frame for cell in frame[column] if isinstance(cell, str)]
        assert cells and not any(cell.startswith(tuple('=@+-')) for cell in cells)
        numbers = frame['value' if name == 'values' else 'mean']
        assert numbers.dtype == float and (name != 'comparisons' or (numbers <= 0).any())
