"""Which of several values wins: option over arm over study over config over default, through the command line."""

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from mmlape.cli import main
from mmlape.commands.multi_seed import SEEDS
from mmlape.errors import ConfigError
from mmlape.lab.config.config_file import load_config, parse_options
from mmlape.lab.datasets.fraction import data_fraction, label, parse_fraction
from mmlape.lab.experiments import multi_seed
from mmlape.lab.experiments.launchers import Slot
from mmlape.lab.inference import evaluator
from mmlape.lab.runs.record import available_cores
from mmlape.lab.training import trainer
from mmlape.lab.training.plan import plan_run

CHANGES = {
    'optim_wrapper.optimizer.lr': (0.0, 1e-5, 0.5),
    'optim_wrapper.type': ('OptimWrapper', 'AmpOptimWrapper'),
    'model.backbone.drop_path_rate': (0, 0.1),
    'model.decode_head.align_corners': (False, True),
    'model.backbone.init_cfg': (None,),
    'default_hooks.checkpoint.save_best': (None, 'aAcc'),
    'train_dataloader.num_workers': (0, 1, 2),
    'train_cfg.max_iters': (6, 12),
    'train_cfg.val_interval': (1, 2, 3),
    'auto_scale_lr.enable': (False, True),
    'randomness.seed': (0, 1, 7),
    'work_dir': ('by-config', ''),
    'data_fraction': (0.5, 1),
}
"""Keys of the config, and what a layer may say: also what counts as false."""
DEFAULTS = dict.fromkeys(('work_dir', 'data_fraction', 'randomness.seed'))
LAYERS = ('base of the study', 'arm of the study', '--cfg-options', '--arm')
"""What may set them, the strongest last."""
BATCHES = ('auto-scale-lr', 'accumulate', 'allow-batch-mismatch')
EXTRA = """
randomness = dict(seed=None)
work_dir = None
data_fraction = None
train_cfg['val_interval'] = int('{{$EVERY:6}}')
model['backbone']['init_cfg'] = dict(type='Pretrained', checkpoint='none.pth')
auto_scale_lr = dict(enable=False, base_batch_size=4)
"""


def one_of(*values):
    """Return a strategy for a value that may not be given."""
    return st.none() | st.sampled_from(values)


layer = st.fixed_dictionaries({}, optional={key: st.sampled_from(CHANGES[key]) for key in CHANGES})
STUDIES = st.fixed_dictionaries(
    dict(
        layers=st.fixed_dictionaries(dict.fromkeys(LAYERS, st.just({}) | layer)),
        named=st.booleans(),  # whether the arm is one of --arm, or the study's own
        variable=one_of(4, 5),
        environment=one_of(5, 4),
        seeds=one_of([7, 8], [0]),
        more_seeds=one_of([9], [0, 5]),
        work_dir=one_of('mine'),
        processes=one_of(1, 2),
        parallel=one_of(1, 3),
        threads=one_of('3'),
        amp=one_of('bf16', 'fp16'),
        batch=one_of(*BATCHES),
        fraction=one_of('1', '1/4'),
    )
)


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp('precedence')
    return tiny.write_config(folder, tiny.write_data(folder / 'data', train=2, val=1), EXTRA)


def write_study(config, case):
    """Write the study of an example, and return its words."""
    seeds = '' if case['seeds'] is None else f'seeds: {case["seeds"]}\n'
    base, arm = (json.dumps(case['layers'][layer]) for layer in LAYERS[:2])
    variables = '{}' if case['variable'] is None else f'{{EVERY: {case["variable"]}}}'
    study = config.with_name('study.yml')
    study.write_text(
        f'{seeds}bases: {{b: {{base: tiny.py, overrides: {base}}}}}\n'
        f'arms: {{a: {{overrides: {arm}, variables: {variables}}}}}\n'
    )
    if not case['named']:
        return [f'{study}:a']
    return ['--arm', 'mine', f'{study}:a', *pairs(case['layers']['--arm'])]


def pairs(changes):
    return [f'{key}={value}' for key, value in changes.items()]


def words_of(config, case):
    """Return the command line of an example."""
    words = [*write_study(config, case), *option('--cfg-options', pairs(case['layers']['--cfg-options']))]
    words += option('--fractions', case['fraction'])
    words += option('--seeds', case['more_seeds']) + option('--work-dir', case['work_dir'])
    words += option('--processes', case['processes']) + option('--parallel', case['parallel'])
    return words + ['--', *option('--amp', case['amp']), *([f'--{case["batch"]}'] if case['batch'] else [])]


def option(name, value):
    values = value if isinstance(value, list) else [value]
    return [] if value in (None, []) else [name, *map(str, values)]


def expected_keys(case):
    """Return what the config of the run must hold, by the order of the layers."""
    keys = dict(DEFAULTS)
    keys['train_cfg.val_interval'] = first(case['variable'], case['environment'], 6)
    for layer in LAYERS if case['named'] else LAYERS[:-1]:
        keys |= case['layers'][layer]
    if case['fraction']:
        keys['data_fraction'] = case['fraction']
    return keys


def first(*values):
    return next((value for value in values if value is not None), None)


def value_of(cfg, key):
    for part in key.split('.'):
        cfg = cfg[part]
    return cfg


@contextlib.contextmanager
def recorded():
    """Yield a patch, and what the functions behind the commands are given: a study and its launcher, or a run."""
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multi_seed, 'run_study', lambda *args: calls.append(args) or 0)
        patch.setattr(
            trainer, 'train', lambda *args, **options: calls.append((args, options)) or SimpleNamespace(state='')
        )
        yield patch, calls


@examples(max_examples=25)
@given(case=STUDIES)
def test_the_strongest_layer_of_a_study_decides_what_its_runs_get(config, case):
    keys, processes = expected_keys(case), case['processes'] or 1
    policy = first(case['batch'], 'auto-scale-lr' if keys.get('auto_scale_lr.enable') else None)
    with recorded() as (patch, calls):
        for name, value in dict(EVERY=case['environment'], OMP_NUM_THREADS=case['threads']).items():
            patch.delenv(name, raising=False) if value is None else patch.setenv(name, str(value))
        status = main(['multi-seed', *words_of(config, case)])
        if policy is None and processes == 1:  # two images instead of four
            assert status == 1
            return
        assert status == 0
        study, launcher, *_ = calls.pop()
        runs = study.plan()
        check_places(case, runs)
        main(['train', *runs[-1].train_args])
        threads = launcher._environment(Slot())['OMP_NUM_THREADS']
        plan = plan_of(*calls.pop(), processes)
    parallel = case['parallel'] or max(1, available_cores() // processes)
    assert threads == first(case['threads'], str(max(1, available_cores() // (parallel * processes))))
    assert plan.seed == runs[-1].run.seed and plan.work_dir.name == f'seed_{plan.seed}'
    check_config(plan, keys, case, 'recipe' if processes == 2 else policy)


def check_places(case, runs):
    """Check seeds and folders: the study's and the options', never the config's."""
    seeds = first(case['more_seeds'], case['seeds'], list(SEEDS))
    share = parse_fraction(case['fraction'] or 1)
    name = ('mine' if case['named'] else 'a') + (f'+{label(share)}' if share < 1 else '')
    folder = case['work_dir'] or ('work_dirs' if case['named'] else 'work_dirs/study')
    assert [(planned.run.seed, str(planned.folder)) for planned in runs] == [
        (seed, f'{folder}/{name}/seed_{seed}') for seed in seeds
    ]


def plan_of(args, options, processes=1):
    """Return the plan of a run from what `train` was given."""
    cfg, work_dir = args
    names = ('seed', 'amp', 'batch', 'share')
    return plan_run(cfg, processes, work_dir, **{name: options[name] for name in names})


def check_config(plan, keys, case, policy):
    """Check the config of a run, and its batch and precision, which options change."""
    assert plan.batch_policy == policy
    precision = {'bf16': 'mmlape.BFloat16OptimWrapper', 'fp16': 'AmpOptimWrapper'}
    wrapper = keys.get('optim_wrapper.type', 'OptimWrapper')
    assert plan.cfg.optim_wrapper.type == precision.get(case['amp'], wrapper)
    share = parse_fraction(first(keys['data_fraction'], 1))
    assert getattr(data_fraction(plan.cfg), 'share', 1) == share
    for key in set(keys) - {'optim_wrapper.type', 'data_fraction', 'auto_scale_lr.enable'}:
        found, value = value_of(plan.cfg, key), keys[key]
        if key in ('train_cfg.max_iters', 'train_cfg.val_interval'):
            found /= plan.batch.accumulation
        assert found == value and (value is None) == (found is None), key


@examples(max_examples=15)
@given(
    by_config=one_of('by-config'),
    by_option=one_of('by-option'),
    seed=one_of(0, 4),
    other_seed=one_of(0, 5),
    in_run=st.booleans(),
)
def test_options_of_train_and_test_win_over_the_config(
    config, tmp_path, by_config, by_option, seed, other_seed, in_run
):
    """Work dir and seed; in a test, the folder of the checkpoint's run comes between the two."""
    keys = {'work_dir': by_config, 'randomness.seed': seed}
    changes = option('--cfg-options', pairs({key: value for key, value in keys.items() if value is not None}))
    work_dir = option('--work-dir', by_option)
    (tmp_path / 'run.json').unlink(missing_ok=True)
    if in_run:
        (tmp_path / 'run.json').touch()

    def stop(*args):
        calls.append(args)
        raise ConfigError('stopped')

    with recorded() as (patch, calls):
        main(['train', str(config), '--auto-scale-lr', *work_dir, *option('--seed', other_seed), *changes])
        plan = plan_of(*calls.pop())
        patch.setattr(evaluator, 'open_file', lambda *_, **__: None)
        patch.setattr(evaluator.InitialModel, 'build', lambda *_: None)
        patch.setattr(evaluator, '_check_inputs', stop)
        assert main(['test', str(config), str(tmp_path / 'weights.pth'), *work_dir, *changes]) == 1
        tested = calls.pop()[1]
    assert plan.seed == first(other_seed, seed)
    assert plan.work_dir == Path(first(by_option, by_config, 'work_dirs/tiny')).absolute()
    folder = first(by_option, tmp_path if in_run else None, by_config, 'work_dirs/tiny')
    assert tested == Path(folder).absolute()


@examples(max_examples=50)
@given(
    st.recursive(
        st.booleans()
        | st.none()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text('ab.', min_size=1), inner),
    )
)
def test_a_value_on_the_command_line_is_the_value(value):
    assert parse_options([f'a.b={value}']) == {'a.b': value}


NAMES = st.lists(st.sampled_from(['data', 'My', 'run-2', '(1)', '[old]', '/x']), min_size=1, max_size=4).map(' '.join)


@examples(max_examples=100)
@given(
    NAMES.filter(lambda name: name[0] not in '[('),
    st.lists(NAMES, min_size=2, max_size=3),
    st.sampled_from([',', ', ']),
)
def test_names_keep_their_spaces(name, names, comma):
    names = [f'n {name} n' for name in names]
    expected = dict(a=name, b=names, c=names, d=tuple(names))
    listed = comma.join(names)
    assert parse_options([f'a={name}', f'b={listed}', f'c=[ {listed} ]', f'd=({listed})']) == expected


@pytest.mark.parametrize('value', [True, False])
@pytest.mark.parametrize('change', [str, str.lower, str.upper])
def test_words_of_truth_are_no_texts(config, value, change):
    text = change(str(value))
    assert parse_options([f'a={text}', f'b=[{value},1]', f'c={text}ly']) == dict(a=value, b=[value, 1], c=f'{text}ly')
    key = 'model.decode_head.align_corners'
    assert load_config(config, [f'{key}={text}']).model.decode_head.align_corners is value
