"""The words, tables and figures of reports, of the status and of sample sizes, as users see them."""

import re

import pytest
from synthetic import settings, write_run, write_study
from told import assert_told, keep_figures

import mmlape.lab.experiments.report  # noqa: F401  (imported before its figures are described)
from mmlape.cli import main
from mmlape.files import write_json
from mmlape.lab.experiments import status
from mmlape.lab.runs.run import write_planned


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv('COLUMNS', '180')


def write_files(folder, report, printed, figures, name):
    """Compare everything that a report consists of."""
    assert_told(f'{name}-printed', printed, out=report, work_dir=folder)
    page = re.sub(r'data:image/png;base64,[\w+/=]+', 'IMAGE', (report / 'index.html').read_text())
    texts = {'page': page, 'figures': '\n'.join(f'{file}\n{text}' for file, text in sorted(figures.items()))}
    texts |= {path.name: path.read_text() for path in sorted(report.rglob('*')) if path.suffix in ('.md', '.tex')}
    texts |= {file: (report / file).read_text() for file in ('values.csv', 'estimates.csv', 'comparisons.csv')}
    if name == 'study':
        texts['report.json'] = (report / 'report.json').read_text()
    for part, text in texts.items():
        assert_told(f'{name}-{part}', text, out=report, work_dir=folder)


def test_the_report_of_a_study(tmp_path, monkeypatch, capsys):
    figures = keep_figures(monkeypatch)
    work_dir = write_study(tmp_path / 'runs', seeds=(121, 122, 123))
    arm = work_dir / 'segmenter_deit-tiny_4xb2-160k_ade20k'
    write_run(arm, 124, None, chosen=settings('default'), state='failed', reason='CUDA out of memory', host='node9')
    write_planned(arm, (121, 122, 123, 124, 125))
    options = ('--title', 'A <title> & $more$', '--out', str(tmp_path / 'out'))
    assert main(['report', str(work_dir), *options]) == 1
    write_files(work_dir, tmp_path / 'out', capsys.readouterr().out, figures, 'study')


def test_the_report_of_fractions_and_chosen_arms(tmp_path, monkeypatch, capsys):
    figures = keep_figures(monkeypatch)
    for arm, joining, level in (('plain', 'default', 40.0), ('new', 'lape', 41.5)):
        for number, fraction in enumerate(('1/4', '1/2', '1')):
            chosen = (
                settings(joining) if fraction == '1' else settings(joining, data_fraction=dict(share=fraction, seed=0))
            )
            for seed in (1, 2, 3):
                value = level + 2 * number + (seed * 7 % 5) / 5
                write_run(tmp_path / 'runs' / f'{arm}-{number}', seed, value, value + 0.2, chosen=chosen)
    arms = ('--arms', 'plain-*', 'new-*', '--metric', 'mIoU', 'aAcc', '--baseline', 'plain-2')
    assert main(['report', str(tmp_path / 'runs'), *arms]) == 0
    write_files(tmp_path / 'runs', tmp_path / 'runs' / 'report', capsys.readouterr().out, figures, 'fractions')


def test_the_status_of_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(status.time, 'time', lambda: 1e9)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    batch = dict(
        world_size=4, images_per_process=3, cost=dict(seconds_per_iter=0.5), host='node7', iter=30, max_iters=90
    )
    last = dict(step=20, metrics={'aAcc': 10.0, 'mIoU': 43.21})
    runs = (
        dict(state='running', eta=4000, updated=1e9 - 40, last=last),
        dict(state='running', updated=1e9 - 901),
        dict(state='failed', reason='[/gloo/pair.cc:5] Connection [rank0] closed'),
        dict(state='finished', last=dict(last, metrics={'coco/bbox_mAP': 0.4567})),
    )
    for seed, run in enumerate(runs, 1):
        write_json(tmp_path / 'arm' / f'seed_{seed}' / 'run.json', dict(batch, seed=seed, **run))
    write_planned(tmp_path / 'arm', range(1, 7))
    write_json(tmp_path / 'arm' / 'slurm' / 'seed_6.json', dict(job='12', state='PENDING', ended=False))
    assert main(['status', str(tmp_path)]) == main(['status', str(tmp_path), '--json']) == 0
    assert_told('status', capsys.readouterr().out, work_dir=tmp_path)


def test_sample_sizes(tmp_path, capsys):
    work_dir = write_study(tmp_path / 'runs')
    differences = ('--difference', '0.4', '1.4')
    for more in (
        ('--std', '0.6'),
        ('--std', '0.6', '--power', '0.9', '--paired'),
        (str(work_dir), '--arms', 'segmenter*'),
        (str(work_dir), '--arms', 'segmenter*', '--paired', '--metric', 'aAcc'),
    ):
        assert main(['sample-size', *more, *differences]) == 0
    assert_told('sample-size', capsys.readouterr().out, work_dir=work_dir)
