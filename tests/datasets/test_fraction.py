"""Training on a fraction of the images: which ones, of any dataset, and what is said and recorded of it."""

import json
from fractions import Fraction

import pytest
import tiny
from mmengine.config import ConfigDict
from mmengine.registry import DATASETS, init_default_scope

from mmlape.cli import main
from mmlape.errors import ConfigError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.fraction import DataFraction, data_fraction, label, parse_fraction, with_fraction
from mmlape.lab.recipe import Recipe
from mmlape.lab.runs.identity import settings

CONFIGS = tiny.ROOT / 'configs'
FRACTIONS = [Fraction(1, share) for share in (16, 8, 4, 2, 1)]


def test_smaller_fractions_lie_inside_larger_ones():
    for seed in (0, 7):
        subsets = [DataFraction(share, seed).indices(20210, 121) for share in FRACTIONS]
        assert [len(subset) for subset in subsets] == [1263, 2526, 5052, 10105, 20210]
        for small, large in zip(subsets, subsets[1:]):
            assert set(small) < set(large) and small == sorted(small)
        assert subsets[-1] == list(range(20210))


def test_the_subset_follows_from_its_seed():
    assert DataFraction(Fraction(1, 4), 0).indices(16, 121) == [1, 6, 8, 9], "NumPy's RandomState(0), which is frozen"
    assert DataFraction(Fraction(1, 4), 0).indices(16, 122) == DataFraction(Fraction(1, 4), 0).indices(16, 121)
    of_run = DataFraction(Fraction(1, 4), 'run')
    assert of_run.indices(16, 7) == DataFraction(Fraction(1, 4), 7).indices(16, 0) != of_run.indices(16, 8)
    assert len(DataFraction(parse_fraction(0.29)).indices(100, 0)) == 29
    assert [len(DataFraction(Fraction(2, 3)).indices(count, 0)) for count in (10, 11, 12)] == [7, 7, 8], 'rounded'
    assert label(Fraction(3, 16)) == '3of16'


@pytest.mark.parametrize(
    'options',
    [
        *(dict(data_fraction=value) for value in (0, -0.25, 1.5, 'nothing', '1/0', True, float('nan'))),
        *(dict(data_fraction_seed=seed) for seed in (-1, 0.5, 'other', True)),
    ],
)
def test_no_fraction_and_no_seed(options):
    ((key, value),) = options.items()
    with pytest.raises(ConfigError, match=rf'^{key}={value}: give a number [^\n]+$'):
        data_fraction(options)


def test_the_identity_knows_the_fraction():
    def content(**options):
        return settings(Recipe.of(dict(model=dict(type='Model'), **options)))

    assert content() == content(data_fraction=1) == content(data_fraction='1', data_fraction_seed=3)
    quarter = content(data_fraction=0.25)
    assert quarter['data_fraction'] == dict(share='1/4', seed=0)
    assert quarter == content(data_fraction='1/4', data_fraction_seed=0) != content()
    assert quarter != content(data_fraction=0.25, data_fraction_seed=1)
    assert json.loads(json.dumps(quarter)) == quarter


def build(dataset, share=Fraction(1, 2), least=1):
    return DATASETS.build(with_fraction(ConfigDict(dataset), DataFraction(share), 121, least))


@pytest.mark.parametrize(
    'config, data',
    [
        ('linear/linear_deit-mini_1xb8-100i_mini-ade', 'ade'),
        ('mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco', 'coco'),
        ('deit/deit-mini_1xb32-5e_mini-digits', 'digits'),
    ],
)
def test_half_of_any_dataset(pristine, config, data):
    cfg = load_config(CONFIGS / f'{config}.py', dict(data_root=f'{pristine}/{data}/'))
    init_default_scope(cfg.default_scope)
    dataset = cfg.train_dataloader.dataset
    everything, half = DATASETS.build(dataset), build(dataset)
    paths = [[built.get_data_info(place)['img_path'] for place in range(len(built))] for built in (everything, half)]
    assert len(half) == round(len(everything) / 2) and type(half) is type(everything)
    assert paths[1] == [paths[0][place] for place in DataFraction(Fraction(1, 2)).indices(len(everything), 0)]
    assert half.data_bytes.nbytes < 0.7 * everything.data_bytes.nbytes, 'nothing of the other images is kept'
    assert half[0]['inputs'] is not None
    parts = dict(type='RepeatDataset', times=3, dataset=dict(type='ConcatDataset', datasets=[dataset, dataset]))
    assert len(build(parts)) == 3 * 2 * len(half), 'the fraction of each part'
    with pytest.raises(ConfigError, match=rf'{len(half)} of {len(everything)} training images, fewer than the 999 of'):
        build(dataset, least=999)
    assert len(build(dataset, least=len(half))) == len(half), 'one step is enough'


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp('fraction')
    return tiny.write_config(folder, tiny.write_data(folder / 'data', train=16))


def test_training_loads_the_subset_and_says_so(config, tmp_path, monkeypatch, capsys):
    """A quarter of the images is loaded, an epoch is a quarter as long, and steps that are counted stay."""
    from mmlape.lab.datasets import transforms

    loaded = []
    load = transforms.LoadImageFromFile.transform
    monkeypatch.setattr(
        transforms.LoadImageFromFile, 'transform', lambda *args: [loaded.append(args[1]['img_path']), load(*args)][1]
    )
    options = [
        '--seed',
        '7',
        '--cfg-options',
        'data_fraction=1/4',
        'train_cfg.max_iters=2',
        'train_cfg.val_interval=2',
    ]
    assert main(['train', str(config), '--work-dir', str(tmp_path / 'run'), *options]) == 0
    trained = [path for path in loaded if '/training/' in path]
    names = sorted(str(number) for number in range(16))
    expected = {names[place] for place in DataFraction(Fraction(1, 4)).indices(16, 0)}
    assert len(trained) == 4 and {path.split('/')[-1].removesuffix('.png') for path in trained} == expected
    log = next((tmp_path / 'run').glob('*/*.log')).read_text()
    assert 'data_fraction=1/4, data_fraction_seed=0: training on 4 of 16 images' in log
    assert json.loads((tmp_path / 'run' / 'settings.json').read_text())['data_fraction'] == dict(share='1/4', seed=0)
    again = ['train', str(config), '--resume', '--work-dir', str(tmp_path / 'run'), '--cfg-options', *options[3:]]
    assert main([*again, 'data_fraction=1/2']) == 1
    assert 'data_fraction.share "1/4" -> "1/2"' in capsys.readouterr().err
