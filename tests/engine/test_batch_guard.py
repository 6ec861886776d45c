"""The total batch: what is refused, the three options, and what they change."""

import pytest
from mmengine.config import Config

from mmlape.errors import ConfigError
from mmlape.lab.recipe import Recipe
from mmlape.lab.training.plan import apply_batch_policy


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
