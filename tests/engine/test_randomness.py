"""``randomness`` of a configuration, and the options of the command that win over it."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from mmengine.dataset import DefaultSampler
from properties import examples
from torch.nn.attention import SDPBackend, sdpa_kernel

from mmlape.lab.config.config_file import load_config
from mmlape.lab.recipe import Recipe
from mmlape.lab.runs.identity import settings
from mmlape.lab.training.hooks import ReseedHook
from mmlape.lab.training.runner import Runner
from mmlape.lab.training.seeding import SeededSampler, prefer_deterministic_kernels
from mmlape.lab.training.trainer import train

FUSED = {
    'flash': SDPBackend.FLASH_ATTENTION,
    'mem_efficient': SDPBackend.EFFICIENT_ATTENTION,
    'cudnn': SDPBackend.CUDNN_ATTENTION,
}


@pytest.fixture(autouse=True)
def backends():
    """Restores what a deterministic run changes."""
    with torch.backends.cudnn.flags(enabled=True), sdpa_kernel([SDPBackend.MATH, *FUSED.values()]):
        yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize('gpu', [True, False])
def test_fused_attention_is_left_out_on_a_gpu_alone(gpu, monkeypatch):
    """Its backward adds in any order there; on the CPU the same switches would turn off a kernel that does not."""
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: gpu)
    prefer_deterministic_kernels()
    assert torch.are_deterministic_algorithms_enabled()
    enabled = {name: getattr(torch.backends.cuda, f'{name}_sdp_enabled')() for name in FUSED}
    assert enabled == dict.fromkeys(FUSED, not gpu)


@pytest.fixture
def config(tmp_path):
    return tiny.write_config(tmp_path, tiny.write_data(tmp_path / 'data', train=2, val=1))


@pytest.mark.parametrize(
    ('randomness', 'option', 'expected'),
    [
        (None, None, False),
        (None, True, True),
        (dict(deterministic=True), None, True),
        (dict(deterministic=True), False, False),
        (dict(deterministic=False), True, True),
    ],
)
def test_deterministic_kernels_by_config_or_option(config, tmp_path, monkeypatch, randomness, option, expected):
    seen = []

    def untrained(runner):
        enabled = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        seen.append((runner.deterministic, torch.backends.cudnn.deterministic, *enabled))

    monkeypatch.setattr(Runner, 'train', untrained)
    cfg = load_config(config)
    if randomness is not None:
        cfg.randomness = dict(randomness, seed=3, diff_rank_seed=False)
    seed = train(cfg, tmp_path / 'run', deterministic=option).seed
    if randomness is not None:
        assert seed == 3
    assert seen == [(expected,) * 4]


@pytest.mark.parametrize(('value', 'equal'), [(None, False), (True, False), (False, True)])
def test_processes_differ_unless_the_config_says_otherwise(config, tmp_path, monkeypatch, value, equal):
    runners = []
    monkeypatch.setattr(Runner, 'train', lambda runner: runners.append(runner))
    cfg = load_config(config)
    cfg.randomness = dict(diff_rank_seed=value)
    train(cfg, tmp_path / 'run', seed=3)
    (runner,) = runners
    assert runner.seed == 3, 'samplers share a seed'
    drawn = []
    for rank in (0, 1):
        process = SimpleNamespace(seed=3, iter=5, rank=rank, diff_rank_seed=runner.diff_rank_seed)
        ReseedHook().before_train_iter(process, 0)
        drawn.append((random.random(), float(np.random.rand()), float(torch.rand(()))))
    assert (drawn[0] == drawn[1]) is equal
    plain = Recipe.of(load_config(config))
    assert (settings(Recipe.of(cfg)) == settings(plain)) is not equal, 'runs that differ are kept apart'


@examples(max_examples=30)
@given(
    seeds=st.lists(st.integers(0, 2**31), min_size=2, max_size=3, unique=True),
    epochs=st.lists(st.integers(0, 300), min_size=2, max_size=3, unique=True),
    images=st.integers(1, 12),
    processes=st.integers(1, 4),
)
def test_the_seed_of_a_sample_is_its_own_whatever_processes_there_are(seeds, epochs, images, processes):
    def samples(seed, epoch, rank, world_size):
        sampler = SeededSampler(DefaultSampler(range(images), shuffle=False), seed)
        sampler.rank, sampler.world_size = sampler.sampler.rank, sampler.sampler.world_size = rank, world_size
        sampler.sampler.num_samples = -(-images // world_size)
        sampler.sampler.total_size = sampler.sampler.num_samples * world_size
        sampler.set_epoch(epoch)
        return [(int(index), index.seed) for index in sampler]

    alone = {(seed, epoch): samples(seed, epoch, 0, 1) for seed in seeds for epoch in epochs}
    drawn = [number for found in alone.values() for _, number in found]
    assert len(set(drawn)) == len(drawn) == images * len(seeds) * len(epochs)
    for (seed, epoch), found in alone.items():
        shared = [samples(seed, epoch, rank, processes) for rank in range(processes)]
        assert [one for step in zip(*shared) for one in step][:images] == found
