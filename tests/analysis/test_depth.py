"""The analysis of the registered study of depth, on runs whose results are known; its page, from its records."""

import csv
import json

import depth
import numpy as np
import pytest
import replication
import tiny
from scipy.stats import ttest_ind
from synthetic import write_log, write_run

from mmlape.cli import main
from mmlape.lab.runs.curves import log_files, read_scalars
from mmlape.lab.studies.study_file import read_study
from mmlape.pe_figures.balance_hook import TAG

PAGE = tiny.ROOT / 'docs/results/depth.md'

GAINS = {'lape': -1.0, 'lape-vit-lite': 0.1, 'mpvg': 0.2, 'pvg': 0.5, 'lape-shared': -0.5, 'mpvg-mean': 1.0}


@pytest.fixture
def values(tmp_path):
    """Top-1 of each arm and seed, which are also written as finished runs that measured their PE balance twice."""
    random, found = np.random.RandomState(0), {}
    for place, (arm, seeds) in enumerate(depth.SEEDS.items()):
        found[arm] = [89 + GAINS.get(arm, 0) + random.randn() / 5 for _ in seeds]
        for seed, value in zip(seeds, found[arm], strict=True):
            folder = write_run(tmp_path / arm, seed, {'accuracy/top1': value}, key='accuracy/top1')
            rows = [{'pe_balance/last_beta': place + step / 1000 + seed, 'step': step} for step in (470, 1, 200)]
            write_log(folder, [*rows, {'loss': 1.0, 'step': 480}])
    return found


def test_the_analysis_is_of_the_registered_arms_and_seeds():
    study = read_study('mmlape::studies/fashion-mnist-depth.yml')
    assert {arm.name for arm in study.arms} == set(depth.SEEDS)
    assert {seed for seeds in depth.SEEDS.values() for seed in seeds} == set(study.seeds)
    asked = [name for one in depth.HYPOTHESES for name in (one.arm, one.baseline)]
    assert all(list(depth.SEEDS[arm]) == list(study.seeds) for arm in asked)
    others = {arm for pairs in depth.PAIRS.values() for pair in pairs for arm in pair}
    assert set(asked) | others == set(depth.SEEDS)


def test_the_three_hypotheses_are_tested_on_their_side_and_corrected_by_holm(values, tmp_path):
    """Against scipy's one-sided Welch test of values moved by the margin, and Holm's procedure written out."""
    moved = [
        (values['lape'], values['default'], 'less'),
        (np.array(values['lape-vit-lite']) + 0.4, values['default-vit-lite'], 'greater'),
        (np.array(values['mpvg']) + 0.4, values['default'], 'greater'),
    ]
    p = np.array([ttest_ind(arm, base, equal_var=False, alternative=side).pvalue for arm, base, side in moved])
    order, least, corrected = np.argsort(p), 0.0, {}
    for rank, place in enumerate(order):
        least = max(least, min(1.0, p[place] * (3 - rank)))
        corrected[place] = least
    lines = depth.primary(depth.Depth(str(tmp_path))).splitlines()[2:]
    for place, line in enumerate(lines):
        cells = [cell.strip() for cell in line.strip('|').split('|')]
        assert cells[4:] == [
            f'{p[place]:.2g}',
            f'{corrected[place]:.2g}',
            'yes' if corrected[place] < 0.05 else 'not shown',
        ]
    assert [line.strip('| ').split('|')[-1].strip() for line in lines] == ['yes', 'yes', 'yes']
    assert f'| {np.mean(values["lape"]) - np.mean(values["default"]):.3f} |' in lines[0]


def test_who_is_behind_by_the_margin_is_not_called_level(values, tmp_path):
    for seed, value in zip(depth.SEEDS['mpvg'], values['mpvg'], strict=True):
        write_run(tmp_path / 'mpvg', seed, {'accuracy/top1': value - 0.6}, key='accuracy/top1')
    *_, line = depth.primary(depth.Depth(str(tmp_path))).splitlines()
    assert line.startswith('| CVT: MPVG') and line.rstrip('| ').endswith('not shown')


def test_secondary_questions_compare_all_seeds_of_both_arms(values, tmp_path, capsys):
    depth.main([str(tmp_path)])
    printed = capsys.readouterr().out
    assert printed.count('### ') == 5 and 'Not answered' not in printed
    sections = dict(part.split('\n', 1) for part in printed.split('### ')[1:])
    for question, pairs in depth.PAIRS.items():
        for arm, baseline in pairs:
            test = ttest_ind(values[arm], values[baseline], equal_var=False)
            (line,) = [one for one in sections[question].splitlines() if one.startswith(f'| {arm} - {baseline} ')]
            low, high = test.confidence_interval()
            assert f'| {low:.3f} to {high:.3f} | {test.pvalue:.2g} |' in ' '.join(line.split())
            assert line.rstrip('| ').endswith(f'{len(values[arm])}, {len(values[baseline])}')
    gains = [np.subtract(values[f'lape{end}'], values[f'default{end}']) for end in ('', '-vit-lite')]
    p = ttest_ind(*gains, equal_var=False).pvalue
    assert f'| {p:.2g} |' in ' '.join(sections['1. A class token or a pool'].split())
    for place, (arm, seeds) in enumerate(depth.SEEDS.items()):
        assert f'{place + 0.47 + np.mean(seeds):.4f}' in sections['4. What the layers do with the PE'], arm


def test_a_question_waits_for_all_of_its_runs(values, tmp_path, capsys):
    write_run(tmp_path / 'lape-mean', 306, None, state='running', iter=10)
    (tmp_path / 'lape-mean' / 'seed_303' / 'run.json').unlink()
    depth.main([str(tmp_path)])
    printed = capsys.readouterr().out
    assert printed.count('Not answered: 4 of 5 runs of lape-mean are finished.') == 2
    with pytest.raises(replication.Unfinished, match='no PE balance'):
        depth._last_balance(tmp_path)


def test_the_page_says_how_the_pe_balance_begins_and_ends(tmp_path):
    """Means over the seeds, before the first iteration and in the end."""
    folder, page = tiny.unpack_records('fashion-mnist-depth', tmp_path), ' '.join(PAGE.read_text().split())
    first, last = {}, {}
    for arm, seeds in depth.SEEDS.items():
        begun = [
            next(row for file in log_files(folder / arm / f'seed_{seed}') for row in read_scalars(file))
            for seed in seeds
        ]
        assert {row['step'] for row in begun} == {1}
        first[arm] = {key.removeprefix(TAG): np.mean([row[key] for row in begun]) for key in begun[0] if TAG in key}
        last[arm] = depth.Depth(str(folder)).balance(arm)

    begin = [value for row in first.values() for key, value in row.items() if 'correlation' in key]
    layers = [{key: value for key, value in row.items() if 'correlation' in key} for row in last.values()]
    end = [value for row in layers for value in row.values()]
    assert (
        f'negative in every layer of every arm: {max(end):.2f} to {min(end):.2f}, '
        f'after {min(begin):.2f} to {max(begin):+.2f} before' in page
    )
    strongest = {min(row, key=row.get) for row in layers if row}
    assert strongest <= {f'correlation.{layer}' for layer in (1, 2, 3, 4)}

    of_mpvg, of_mpvg_mean = (f'{last[arm]["last_cosine"]:.2f}' for arm in ('mpvg', 'mpvg-mean'))
    (at_first,) = {f'{first[arm]["last_cosine"]:.2f}' for arm in ('mpvg', 'mpvg-mean')}
    assert f'have less, {of_mpvg} and {of_mpvg_mean}; before the first iteration it is {at_first} in both' in page
    others = [row[key] for arm, row in last.items() if 'mpvg' not in arm for key in row if 'cosine' in key]
    assert f'the cosine is {min(others):.2f} or more' in page


def test_the_page_says_what_the_records_give(tmp_path, capsys):
    runs, page = tiny.unpack_records('fashion-mnist-depth', tmp_path), PAGE.read_text()
    depth.main([str(runs)])
    answers = capsys.readouterr().out.splitlines()
    assert len([line for line in answers if line.startswith('### ')]) == 5
    assert [line for line in answers if line not in page.splitlines()] == []

    main(['report', str(runs), '--out', str(tmp_path / 'report')])
    with (tmp_path / 'report' / 'estimates.csv').open() as file:
        rows = {row['arm']: row for row in csv.DictReader(file) if row['which'] == 'last'}
    for arm, row in rows.items():
        assert int(row['n']) == len(depth.SEEDS[arm])
        mean, std, low, high = (f'{float(row[key]):.2f}' for key in ('mean', 'std', 'low', 'high'))
        (line,) = (line for line in page.splitlines() if line.startswith(f'| {arm} | ') and '±' in line)
        assert line.endswith(f'| {mean} ± {std} ({row["n"]}) | {low} to {high} |')
    pairs = [(one.arm, one.baseline) for one in depth.HYPOTHESES] + list(depth.PAIRS['3. The mean of the tokens'])
    differences = [depth.Depth(str(runs)).difference(*pair) for pair in pairs]
    for one in differences:
        assert f'+{one.mean:.2f}' in page
        assert f'{one.low:.2f} to ' in page and f'{one.high:.2f}' in page

    earlier_runs = tiny.unpack_records('fashion-mnist-replication', tmp_path)
    first = replication.Runs(str(earlier_runs))
    for arm, earlier in (('default', 'deep'), ('lape', 'deep-lape')):
        assert f'{np.mean(list(first.top1(earlier, replication.FIVE).values())):.2f} %' in page
        files = runs / arm / 'seed_301', earlier_runs / earlier / 'seed_201'
        settings = [json.loads((folder / 'settings.json').read_text()) for folder in files]
        rates = [one['optim_wrapper']['optimizer'].pop('lr') for one in settings]
        assert rates == dict(default=[4e-3, 4e-3], lape=[2e-3, 4e-3])[arm]
        assert settings[0] == settings[1]
