"""What counts, what is listed, and what is refused, from run folders as trainings leave them."""

import json

import pytest
import synthetic
from synthetic import settings, write_run

from mmlape.console.tables import rows_of
from mmlape.errors import DataError
from mmlape.lab.experiments.averages import SUMMARY, Average, summarise, summary_table, write_summary
from mmlape.lab.runs.record import lock_run
from mmlape.lab.runs.run import read_arms, read_run, read_seeds, write_planned

LAST = {1: 60.1234567, 2: 61.5, 3: 59.25}
BEST = {1: 62.0, 2: 61.5, 3: 65.125}


@pytest.fixture
def arm(tmp_path):
    for seed in LAST:
        write_run(tmp_path / 'arm', seed, LAST[seed], BEST[seed])
    return tmp_path / 'arm'


def test_classes_are_averaged_and_undefined_values_do_not_count(tmp_path):
    for seed, sky in ((1, 50.0), (2, 60.0), (3, float('nan'))):
        metrics = {'coco/bbox_mAP_l': -1.0, 'mIoU': None if seed == 3 else 40.0}
        write_run(tmp_path, seed, metrics, per_class={'IoU': {'sky': sky, 'lamp': -1.0}, 'bbox_AP': {'lamp': -1.0}})
    last = summarise(read_seeds(tmp_path)).last
    assert last.per_class['IoU']['sky'].values == {1: 50.0, 2: 60.0}
    assert last.per_class['IoU']['lamp'].n == 3
    assert last.per_class['bbox_AP']['lamp'].n == 0
    assert last.metrics['coco/bbox_mAP_l'].mean is None
    assert last.metrics['mIoU'].n == 2 and last.metrics['mIoU'].low is None


def test_every_kind_of_unfinished_run_is_listed_and_none_is_averaged(arm):
    wrong = 1e6
    write_run(arm, 4, wrong, state='running', iter=120)
    failure = {'kind': 'not-finite', 'reason': 'loss is nan at iteration 77'}
    write_run(arm, 5, wrong, state='failed', iter=77, failure=failure)
    write_run(arm, 6, wrong, state='failed', reason='no memory')
    write_run(arm, 7, wrong, iter=299)
    write_run(arm, 8, None)
    write_run(arm, 10, wrong, state='running', iter=121)
    with open(lock_run(arm / 'seed_10')):
        summary = summarise(read_seeds(arm, range(1, 11)))
    assert summary.unfinished == {
        4: 'broken at iteration 120 of 300',
        5: 'diverged at iteration 77 of 300: loss is nan at iteration 77',
        6: 'failed at iteration 300 of 300: no memory',
        7: 'partial at iteration 299 of 300',
        8: 'partial: it has no evaluation',
        9: 'missing',
        10: 'running at iteration 121 of 300',
    }
    assert summary.seeds == [1, 2, 3]
    assert max(summary.last.metrics['mIoU'].values.values()) < 100


def test_the_seeds_of_an_arm_are_its_own_and_those_planned(tmp_path):
    write_run(tmp_path / 'b', 1, 1.0)
    write_run(tmp_path / 'a', 1, 1.0)
    write_run(tmp_path / 'a', 12, 1.0)
    write_planned(tmp_path / 'a', [1, 3])
    (tmp_path / 'report' / 'pictures').mkdir(parents=True)
    (tmp_path / 'a' / 'seed_old').mkdir()
    arms = read_arms(tmp_path)
    assert {name: [(run.seed, run.state) for run in runs] for name, runs in arms.items()} == {
        'a': [(1, 'finished'), (3, 'missing'), (12, 'finished')],
        'b': [(1, 'finished')],
    }
    assert list(read_arms(tmp_path, ['b'])) == ['b'] and len(read_arms(tmp_path, ['b'])['b']) == 1
    assert list(read_arms(tmp_path, ['b*', '?'])) == ['b', 'a'], 'patterns, each arm once'
    assert list(read_arms(tmp_path / 'a')) == ['a']
    with pytest.raises(DataError, match=r'no arm c, d\* in .*; there are: a, b'):
        read_arms(tmp_path, ['a', 'c', 'd*'])
    with pytest.raises(DataError, match='no runs in'):
        read_arms(tmp_path / 'report')


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        ({'total_batch': 16}, 'total_batch: 8 -> 16'),
        ({'world_size': 2}, 'world_size: 4 -> 2'),
        ({'batch_policy': 'allow-batch-mismatch'}, 'batch_policy: recipe -> allow-batch-mismatch'),
        ({'amp': 'bf16'}, 'amp: None -> bf16'),
        ({'checkpoint': {'name': 'deit.pth', 'sha256': 'd' * 64}}, 'checkpoint: .*cccccccc.* -> .*dddddddd'),
        ({'code': {'version': '0.3.0', 'source': 'x' * 64, 'commit': None}}, 'code: mmlape 0.2.0 -> 0.3.0'),
        ({'stack': {**synthetic.STACK, 'torch': '2.12.0'}}, 'stack: torch 2.11.0 -> 2.12.0'),
        ({'stack': {**synthetic.STACK, 'new': '1'}}, 'stack: new none -> 1'),
    ],
)
def test_runs_that_differ_in_what_must_be_equal_are_not_averaged(arm, change, words):
    write_run(arm, 4, 60.0, identity=synthetic.identity(4, **change))
    with pytest.raises(DataError, match=words) as error:
        summarise(read_seeds(arm))
    assert 'seed_1' in str(error.value) and 'seed_4' in str(error.value)
    software = set(change) <= {'code', 'stack'}
    assert ('--allow-different-software' in str(error.value)) == software
    if software:
        assert summarise(read_seeds(arm), allow_software=True).last.n == 4


def test_other_settings_are_named_key_by_key(tmp_path):
    """The hash in the record must be that of settings.json; the package's own function makes it."""
    from mmlape.lab.runs.identity import digest

    for seed, joining in ((1, 'lape'), (2, 'default')):
        chosen = settings(joining)
        write_run(
            tmp_path, seed, 60.0, chosen=chosen, identity=synthetic.identity(seed, settings_sha256=digest(chosen))
        )
    with pytest.raises(DataError, match=r'config: model\.backbone\.pe_joining.*lape.*default'):
        summarise(read_seeds(tmp_path))


def test_what_is_no_repeat_is_not_averaged(arm):
    with pytest.raises(DataError, match='same seed'):
        summarise([*read_seeds(arm), read_run(arm / 'seed_1')])
    longer = write_run(arm, 4, 60.0, 60.0, steps=(600, 200))
    with pytest.raises(DataError, match=r'different iterations, \[300, 600\]'):
        summarise(read_seeds(arm))
    scores = dict(mIoU=60.0, mAcc=60.0)
    other = write_run(arm, 5, scores, scores, key='mAcc')
    with pytest.raises(DataError, match=r"different metrics: \['mAcc', 'mIoU'\]"):
        summarise([read_run(arm / 'seed_1'), read_run(other)])
    with pytest.raises(DataError, match='seed 4, not 9'):
        read_run(longer, seed=9)


def test_the_summary_is_written_as_it_is_and_shown_in_points(tmp_path):
    for seed, value in ((1, 0.4), (2, 0.42), (3, 0.44)):
        write_run(tmp_path, seed, {'coco/bbox_mAP': value}, key='coco/bbox_mAP')
    write_summary(tmp_path, read_seeds(tmp_path), 'a.py')
    summary = summarise(read_seeds(tmp_path))
    stored = json.loads((tmp_path / SUMMARY).read_text())
    assert list(stored) == ['config', 'seeds', 'unfinished', 'key', 'last', 'best'] and stored['config'] == 'a.py'
    assert stored['last']['steps'] == {'1': 300, '2': 300, '3': 300}
    kept = stored['last']['metrics']['coco/bbox_mAP']
    assert (
        Average(**dict(kept, values={int(seed): value for seed, value in kept['values'].items()}))
        == (summary.last.metrics['coco/bbox_mAP'])
    )
    assert summary.last.metrics['coco/bbox_mAP'].mean == pytest.approx(0.42)
    (row, *_) = rows_of(summary_table(summarise(read_seeds(tmp_path), in_points=True)))
    assert row[:4] == ('coco/bbox_mAP', '42.00', '2.00', 3)
