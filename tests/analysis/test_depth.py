"""The analysis of the registered study of depth is of its arms; its page says what the records of the runs give."""

import csv
import json

import depth
import numpy as np
import pytest
import replication
import tiny

from mmlape.cli import main
from mmlape.lab.runs.curves import log_files, read_scalars
from mmlape.lab.studies.study_file import read_study
from mmlape.projects.pe_figures.balance_hook import TAG

PAGE = tiny.ROOT / 'docs/results/depth.md'


def test_the_analysis_is_of_the_registered_arms_and_seeds():
    study = read_study('mmlape::studies/fashion-mnist-depth.yml')
    assert {arm.name for arm in study.arms} == set(depth.SEEDS)
    assert {seed for seeds in depth.SEEDS.values() for seed in seeds} == set(study.seeds)
    asked = [name for one in depth.HYPOTHESES for name in (one.arm, one.baseline)]
    assert all(list(depth.SEEDS[arm]) == list(study.seeds) for arm in asked)
    others = {arm for pairs in depth.PAIRS.values() for pair in pairs for arm in pair}
    assert set(asked) | others == set(depth.SEEDS)


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


@pytest.mark.release
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
    first = differences[0]
    for name in ('README.md', 'docs/index.md'):
        told = f'{first.mean:+.2f} points of top-1 (95 % interval {first.low:+.2f} to {first.high:+.2f})'
        assert told in ' '.join((tiny.ROOT / name).read_text().split()), name

    earlier_runs = tiny.unpack_records('fashion-mnist-replication', tmp_path)
    first = replication.Runs(str(earlier_runs))
    for arm, earlier in (('default', 'deep'), ('lape', 'deep-lape')):
        assert f'{np.mean(list(first.top1(earlier, replication.FIVE).values())):.2f} %' in page
        files = runs / arm / 'seed_301', earlier_runs / earlier / 'seed_201'
        settings = [json.loads((folder / 'settings.json').read_text()) for folder in files]
        rates = [one['optim_wrapper']['optimizer'].pop('lr') for one in settings]
        assert rates == dict(default=[4e-3, 4e-3], lape=[2e-3, 4e-3])[arm]
        assert settings[0] == settings[1]
