"""The total batch and its three options; checkpoints lie at steps of the optimiser, and an epoch ends with one."""

import pytest
import tiny
import torch
import trouble
from mmengine.config import Config

from mmlape.errors import ConfigError, MMLaPEError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.recipe import Recipe
from mmlape.lab.training.plan import apply_batch_policy
from mmlape.lab.training.trainer import train

ACCUMULATED = """
optim_wrapper.update(accumulative_counts=2)
auto_scale_lr = dict(base_batch_size=4)
train_cfg = dict(type='IterBasedTrainLoop', max_iters=9, val_interval=3)
"""
EPOCHS = """
train_dataloader.update(sampler=dict(type='DefaultSampler', shuffle=True))
param_scheduler = [dict(type='PolyLR', begin=0, by_epoch=False)]
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=2, val_interval=1)
"""
BY_EPOCH = "default_hooks.update(checkpoint=dict(type='CheckpointHook', interval=1))\n"
PLAIN = """
model['backbone'].update(drop_path_rate=0.0)
model['decode_head'].update(dropout_ratio=0.0, norm_cfg=None)
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=0.1, momentum=0.9))
auto_scale_lr = dict(base_batch_size=4)
"""


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """Ten images: five iterations of two in an epoch."""
    return tiny.write_data(tmp_path_factory.mktemp('accumulation') / 'data', train=10, val=2)


@pytest.fixture
def losses(monkeypatch):
    """The losses of all iterations from now on."""
    from mmengine.hooks import IterTimerHook

    found = []
    after = IterTimerHook.after_train_iter

    def seen(hook, runner, batch_idx, data_batch=None, outputs=None):
        found.append((runner.iter, float(outputs['loss'].detach())))
        return after(hook, runner, batch_idx, data_batch, outputs)

    monkeypatch.setattr(IterTimerHook, 'after_train_iter', seen)
    return found


@pytest.mark.parametrize(
    ('extra', 'killed', 'first', 'names'),
    [
        ('', 6, 4, ['iter_6.pth', 'iter_9.pth']),  # due at 3: saved at 4
        pytest.param(EPOCHS + BY_EPOCH, 8, 5, ['epoch_1.pth', 'epoch_2.pth'], marks=pytest.mark.release),
        # due at 3 and 6: saved at 4 and 7
        pytest.param(EPOCHS, 9, 7, ['iter_9.pth', 'iter_10.pth'], marks=pytest.mark.release),
    ],
    ids=['iterations', 'epochs', 'within-epochs'],
)
def test_a_resumed_run_is_the_uninterrupted_one(data, tmp_path, monkeypatch, losses, extra, killed, first, names):
    config = tiny.write_config(tmp_path, data, trouble.CONFIG + ACCUMULATED + extra)
    train(load_config(config), tmp_path / 'whole', seed=1)
    whole = dict(losses)
    losses.clear()
    monkeypatch.setenv('TROUBLE', f'nan:{killed}:0')
    with pytest.raises(MMLaPEError, match=f'iteration {killed}'):
        train(load_config(config), tmp_path / 'part', seed=1)
    monkeypatch.delenv('TROUBLE')
    losses.clear()
    train(load_config(config), tmp_path / 'part', resume=True)
    assert losses == [(step, loss) for step, loss in whole.items() if step >= first]
    for folder in ('whole', 'part'):
        saved = [path.name for path in (tmp_path / folder).glob('*_*.pth') if not path.name.startswith('best')]
        assert sorted(saved) == sorted(names)
    assert tiny.difference(*(tmp_path / folder / names[-1] for folder in ('whole', 'part'))) == 0


STEPS = """
param_scheduler = [dict(type='MultiStepLR', milestones=[2], by_epoch=False)]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=4, val_interval=2)
"""
MILESTONE = "param_scheduler = [dict(type='MultiStepLR', milestones=[1])]\n"


@pytest.mark.parametrize(
    ('extra', 'rates'),
    # ten images in an epoch: batches of 4, 4 and 2
    [(STEPS, [0.1] * 2 + [0.01] * 2), (EPOCHS + BY_EPOCH + MILESTONE, [0.1] * 3 + [0.01] * 3)],
    ids=['iterations', 'epochs'],
)
def test_accumulation_has_the_steps_the_rates_and_the_weights_of_larger_batches(
    data, tmp_path, monkeypatch, extra, rates
):
    cfg = load_config(tiny.write_config(tmp_path, data, PLAIN + extra))
    found, step = [], torch.optim.SGD.step

    def counted(optimiser, *args, **kwargs):
        found.append(optimiser.param_groups[0]['lr'])
        return step(optimiser, *args, **kwargs)

    monkeypatch.setattr(torch.optim.SGD, 'step', counted)
    runs = []
    for policy, images in (('accumulate', 2), ('recipe', 4)):
        cfg.train_dataloader.batch_size = images
        run = train(cfg, tmp_path / policy, seed=1, batch=None if policy == 'recipe' else policy)
        assert found == pytest.approx(rates) and run.identity.batch_policy == policy
        found.clear()
        runs.append(max((tmp_path / policy).glob('[ei]*_*.pth'), key=lambda path: path.stat().st_mtime))
    assert tiny.difference(*runs) < 1e-6


def recipe(images=2, base=8, accumulation=1, **scale):
    return Config(
        dict(
            train_dataloader=dict(batch_size=images),
            optim_wrapper=dict(optimizer=dict(lr=0.1), accumulative_counts=accumulation),
            auto_scale_lr=dict(base_batch_size=base, **scale) if base else None,
            train_cfg=dict(type='IterBasedTrainLoop', max_iters=100, val_interval=10),
            param_scheduler=[dict(type='PolyLR', by_epoch=False, begin=5)],
            default_hooks=dict(checkpoint=dict(by_epoch=False, interval=20)),
        )
    )


@pytest.mark.parametrize(
    ('cfg', 'processes', 'way', 'policy', 'lasting'),
    [
        (recipe(), 4, None, 'recipe', (1, 100)),
        (recipe(accumulation=2), 2, None, 'recipe', (2, 100)),
        (recipe(), 4, 'auto-scale-lr', 'recipe', (1, 100)),
        (recipe(), 1, 'auto-scale-lr', 'auto-scale-lr', (1, 100)),
        (recipe(enable=True), 1, None, 'auto-scale-lr', (1, 100)),
        (recipe(enable=True), 1, 'accumulate', 'accumulate', (4, 400)),
        (recipe(), 2, 'accumulate', 'accumulate', (2, 200)),
        (recipe(accumulation=2), 1, 'accumulate', 'accumulate', (4, 200)),
        (recipe(), 8, 'allow-batch-mismatch', 'allow-batch-mismatch', (1, 100)),
        (recipe(base=None), 3, None, 'unknown', (1, 100)),
    ],
)
def test_a_policy_is_applied(cfg, processes, way, policy, lasting):
    batch, found = apply_batch_policy(Recipe.of(cfg), processes, way)
    assert found == policy and batch.accumulation == lasting[0]
    assert (cfg.optim_wrapper.accumulative_counts, cfg.train_cfg.max_iters) == lasting
    if policy != 'recipe':  # which leaves the switch as it is
        assert bool((cfg.auto_scale_lr or {}).get('enable')) == (policy == 'auto-scale-lr')
    if policy in ('recipe', 'accumulate') and cfg.auto_scale_lr:
        assert batch.total == 8


def test_a_mismatch_shows_three_options():
    with pytest.raises(ConfigError) as caught:
        apply_batch_policy(Recipe.of(recipe()), 2, None)
    for part in (
        '= 4 images a step, but the recipe is for 8',
        '--auto-scale-lr         lr 0.1 -> 0.05',
        '--accumulate            optim_wrapper.accumulative_counts=2, train_cfg.max_iters 100 -> 200',
        '--allow-batch-mismatch',
    ):
        assert part in str(caught.value)
    with pytest.raises(ConfigError, match=r'(?s)lr 0.1 -> 0.15.*not possible: .*8 images are no multiple of 12'):
        apply_batch_policy(Recipe.of(recipe(images=3)), 4, None)
    with pytest.raises(ConfigError, match='--accumulate: .*no multiple'):
        apply_batch_policy(Recipe.of(recipe(images=3)), 1, 'accumulate')
    with pytest.raises(ConfigError, match='has no auto_scale_lr.base_batch_size'):
        apply_batch_policy(Recipe.of(recipe(base=None)), 1, 'accumulate')
