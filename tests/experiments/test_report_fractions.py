"""The report of arms on fractions of the training images: DPN's Table 5, the paper's beside."""

from fractions import Fraction

import pytest
from synthetic import identity, settings, write_run

from mmlape.lab.experiments.report import average, build
from mmlape.lab.experiments.report.figures import series_of
from mmlape.lab.runs.run import read_arms

SHARES = ('1/16', '1/8', '1/4', '1/2', '1')
PARAMETERS = dict(none=86_547_606, dual=86_550_678)
SHIFTS = (0.3, -0.4, 0.1)


def value(stem, share, number):
    return 40 + 5 * float(Fraction(share)) + (stem == 'dual') + SHIFTS[number]


def name_of(stem, share='1'):
    config = f'linear_vit-base-p16{"-dpn" * (stem == "dual")}_4xb4-161664i_ade20k'
    return config + (f'+{share.replace("/", "of")}' if share != '1' else '')


def write_arm(work_dir, stem, share, data_seed=0, suffix='', **more):
    part = {} if share == '1' else dict(data_fraction=dict(share=share, seed=data_seed))
    chosen = settings('default', stem, 'deit-base', 'FCNHead', **part)
    for number in range(len(SHIFTS)):
        write_run(
            work_dir / (name_of(stem, share) + suffix), number, value(stem, share, number), chosen=chosen,
            config=f'configs/linear/{name_of(stem)}.py', cost=dict(parameters=PARAMETERS[stem]), **more,
        )  # fmt: skip


def report_of(work_dir):
    return build([average(name, runs) for name, runs in read_arms(work_dir).items()], 'Table 5')


@pytest.fixture(scope='module')
def work_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp('table5')
    for stem in PARAMETERS:
        for share in SHARES:
            write_arm(folder, stem, share)
    return folder


def test_arms_are_compared_on_the_same_images(work_dir):
    report = report_of(work_dir)
    assert {(one.arm, one.baseline) for one in report.comparisons} == {
        (name_of('dual', share), name_of('none', share)) for share in SHARES
    }
    assert all(one.welch.mean == pytest.approx(1) for one in report.comparisons)
    assert report.title_of(name_of('dual', '1/16'), name_of('none', '1/16')).endswith('1/16 of the images')


def test_series_of_other_subsets_stay_apart(tmp_path):
    for seed, suffix in ((0, ''), (1, '-other')):
        write_arm(tmp_path, 'none', '1/4', seed, suffix)
    write_arm(tmp_path, 'none', '1')
    found = series_of(report_of(tmp_path))
    assert [one.name.rpartition(', ')[2] for one in found] == ['data_fraction_seed=0', 'data_fraction_seed=1']
    assert [list(one.arms) for one in found] == [[Fraction(1, 4), Fraction(1)]] * 2


@pytest.mark.parametrize(
    'other',
    [
        dict(checkpoint=dict(name='deit.pth', sha256='d' * 64)),
        dict(checkpoint=None),
        dict(total_batch=16),
        dict(batch_policy='allow-batch-mismatch'),
        dict(amp='bf16'),
    ],
    ids=str,
)
def test_arms_that_differ_in_more_than_the_fraction_are_no_series(tmp_path, other):
    write_arm(tmp_path, 'none', '1')
    write_arm(tmp_path, 'none', '1/4')
    (one,) = series_of(report_of(tmp_path))
    assert list(one.arms) == [Fraction(1, 4), Fraction(1)]
    chosen = settings('default', 'none', 'deit-base', 'FCNHead', data_fraction=dict(share='1/4', seed=0))
    for number in range(len(SHIFTS)):
        changed = dict(identity(number, chosen), **other)
        write_run(tmp_path / name_of('none', '1/4'), number, 40.0 + number, chosen=chosen, identity=changed)
    assert series_of(report_of(tmp_path)) == []
