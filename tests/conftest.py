"""Shared by all tests: one thread, a fixed seed, the models' small shapes, small mini data."""

import os
import shutil

os.environ.setdefault('OMP_NUM_THREADS', '1')

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(scope='session')
def tiny_arch():
    return dict(embed_dims=48, num_layers=4, num_heads=4, feedforward_channels=96)


@pytest.fixture(scope='session')
def pristine(tmp_path_factory):
    """Mini data of a few small images; not to be changed."""
    from mmlape.datasets.mini.make import MiniOptions, make_mini_data

    root = tmp_path_factory.mktemp('data') / 'mini'
    make_mini_data(root, MiniOptions(train=6, val=3, digits=50, size=(64, 64), digit_size=(20, 30), objects=(3, 5)))
    return root


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    """A tiny segmentor on data of its own, whose run makes the trouble that a test asks for."""
    import tiny
    import trouble

    folder = tmp_path_factory.mktemp('tiny')
    return tiny.write_config(folder, tiny.write_data(folder / 'data'), trouble.CONFIG)


@pytest.fixture
def mini(pristine, tmp_path):
    """A copy of the mini data, which a test may break."""
    return shutil.copytree(pristine, tmp_path / 'mini')
