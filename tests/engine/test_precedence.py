"""Which of several values wins: option over arm over study over config over default, for every set that is given."""

import itertools

import pytest
import tiny
from mmengine.config import Config

from mmlape.cli import main
from mmlape.commands.multi_seed import SEEDS
from mmlape.engine.config import load_config, parse_options
from mmlape.engine.plan import default_work_dir, plan_run
from mmlape.experiments import multi_seed

KEY = 'optim_wrapper.optimizer.lr'
LAYERS = ('base', 'study arm', '--cfg-options', '--arm')
"""What may set the key above the config, the strongest last."""


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp('precedence')
    return tiny.write_config(folder, tiny.write_data(folder / 'data', train=2, val=1))


@pytest.fixture
def study_of(monkeypatch):
    """Return what `mmlape multi-seed` would train."""

    def call(*words):
        seen = []
        monkeypatch.setattr(multi_seed, 'run_study', lambda study, *rest: seen.append(study) or 0)
        assert main(['multi-seed', *map(str, words)]) == 0
        return seen[0]

    return call


def subsets(values):
    return itertools.chain.from_iterable(itertools.combinations(values, n) for n in range(len(values) + 1))


def rates(given):
    """Return different rates by layer, for those that are given."""
    return {layer: float(2 + LAYERS.index(layer)) for layer in given}


@pytest.mark.parametrize('given', subsets(LAYERS), ids=lambda given: '+'.join(given) or 'config')
def test_the_nearest_layer_sets_a_key(config, study_of, given):
    known = rates(given)
    base = {KEY: known['base']} if 'base' in known else {}
    arm = {KEY: known['study arm']} if 'study arm' in known else {}
    study = config.with_name('study.yml')
    study.write_text(f'bases: {{b: {{base: tiny.py, overrides: {base}}}}}\narms: {{a: {{overrides: {arm}}}}}\n')
    words = ['--arm', 'mine', f'{study}:a'] + ([f'{KEY}={known["--arm"]}'] if '--arm' in known else [])
    words += ['--cfg-options', f'{KEY}={known["--cfg-options"]}'] if '--cfg-options' in known else []
    (planned,) = study_of(*words, '--seeds', 1).arms
    cfg = load_config(planned.config, list(planned.cfg_options))
    expected = max(known.values(), default=1e-3)
    assert cfg.optim_wrapper.optimizer.lr == expected
    if '--arm' not in known:  # the arm itself takes the options, too
        (planned,) = study_of(f'{study}:a', *words[3:], '--seeds', 1).arms
        assert load_config(planned.config, list(planned.cfg_options)).optim_wrapper.optimizer.lr == expected


@pytest.mark.parametrize('given', subsets(('study', 'option')), ids=lambda given: '+'.join(given) or 'default')
def test_seeds_and_work_dir_of_a_study(config, study_of, given):
    study = config.with_name('seeded.yml')
    study.write_text(f'{"seeds: [7, 8]" if "study" in given else ""}\nbase: tiny.py\narms: {{a: }}\n')
    options = ['--seeds', 9, '--work-dir', 'mine'] if 'option' in given else []
    found = study_of(study, *options)
    assert tuple(found.seeds) == ((9,) if 'option' in given else (7, 8) if 'study' in given else tuple(SEEDS))
    assert str(found.work_dir) == ('mine' if 'option' in given else 'work_dirs/seeded')


@pytest.mark.parametrize('given', subsets(('config', 'option')), ids=lambda given: '+'.join(given) or 'default')
def test_what_has_an_option_and_a_key(config, given):
    """Work dir (of a test, too), seed and precision."""
    cfg = load_config(config)
    options = dict(work_dir='by option', seed=5, amp='bf16') if 'option' in given else {}
    if 'config' in given:
        cfg.work_dir, cfg.randomness = 'by config', dict(seed=4)
        cfg.optim_wrapper.update(type='AmpOptimWrapper', dtype='float16')
    name = 'by option' if 'option' in given else 'by config' if 'config' in given else 'work_dirs/tiny'
    assert default_work_dir(cfg, options.get('work_dir')) == default_work_dir(Config(), name)
    plan = plan_run(cfg, 1, **options)
    assert plan.work_dir == default_work_dir(Config(), name)
    assert plan.seed == (5 if 'option' in given else 4 if 'config' in given else None)
    by_config = 'AmpOptimWrapper' if 'config' in given else 'OptimWrapper'
    assert plan.cfg.optim_wrapper.type == ('mmlape.BFloat16OptimWrapper' if 'option' in given else by_config)


@pytest.mark.parametrize('value', [True, False])
@pytest.mark.parametrize('change', [str, str.lower, str.upper])
def test_words_of_truth_are_no_texts(config, value, change):
    text = change(str(value))
    assert parse_options([f'a={text}', f'b=[{value},1]', f'c={text}ly']) == dict(a=value, b=[value, 1], c=f'{text}ly')
    key = 'model.decode_head.align_corners'
    assert load_config(config, [f'{key}={text}']).model.decode_head.align_corners is value
