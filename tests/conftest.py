"""Shared by all tests: one thread, a fixed seed, the models' small shapes."""

import os

os.environ.setdefault('OMP_NUM_THREADS', '1')

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(scope='session')
def tiny_arch():
    return dict(embed_dims=48, num_layers=4, num_heads=4, feedforward_channels=96)
