"""CIFAR and Fashion-MNIST: read as they are published; what is damaged is one line."""

import gzip
import struct
from copy import deepcopy

import numpy as np
import pytest
from config_helpers import ROOT, load
from data_helpers import refusal
from mmengine.config import Config

from mmlape.errors import DataError
from mmlape.lab.datasets.checks import check_data
from mmlape.projects.fashion_mnist import GzippedFashionMNIST
from mmlape.registry import DATASETS

MINI = ROOT / 'configs' / 'compact' / 'cvt-mini_1xb128-5e_fashion-mnist-10k.py'
COUNTS = {'train': 24, 't10k': 16}


def write_idx(path, array: np.ndarray, shape=None) -> None:
    shape = array.shape if shape is None else shape
    header = struct.pack(f'>BBBB{len(shape)}I', 0, 0, 8, len(shape), *shape)
    path.write_bytes(gzip.compress(header + array.tobytes(), 1))


@pytest.fixture
def fashion(tmp_path):
    random = np.random.RandomState(0)
    for stem, count in COUNTS.items():
        write_idx(tmp_path / f'{stem}-images-idx3-ubyte.gz', random.randint(0, 256, (count, 28, 28), np.uint8))
        write_idx(tmp_path / f'{stem}-labels-idx1-ubyte.gz', np.arange(count, dtype=np.uint8) % 10)
    return tmp_path


def fashion_cfg(root) -> Config:
    cfg = deepcopy(load(MINI))
    for split in ('train', 'val', 'test'):
        cfg[f'{split}_dataloader'].dataset.data_root = str(root)
    return cfg


def test_gzipped_files_are_read_as_they_are(fashion):
    before = sorted(path.name for path in fashion.iterdir())
    dataset = DATASETS.build(dict(type='mmlape.GzippedFashionMNIST', data_root=str(fashion), split='test'))
    assert len(dataset) == 16 and len(dataset.metainfo['classes']) == 10
    sample = dataset[11]
    content = gzip.decompress((fashion / 't10k-images-idx3-ubyte.gz').read_bytes())[16:]
    assert sample['gt_label'] == 1 and sample['img'].tobytes() == content[11 * 784 : 12 * 784]
    assert len(GzippedFashionMNIST(str(fashion), indices=5)) == 5
    assert sorted(path.name for path in fashion.iterdir()) == before
    with pytest.raises(DataError, match="no split 'val': choose train or test"):
        GzippedFashionMNIST(str(fashion), split='val')


def test_the_check_counts_images_and_labels_of_each_split(fashion):
    train, val = check_data(fashion_cfg(fashion))
    assert (train.split, train.images, val.split, val.images) == ('train', 24, 'val', 16)
    assert train.labels[3] == 3 and val.labels[9] == 1 and train.seen == set(range(10))
    cfg = fashion_cfg(fashion)
    cfg.train_dataloader.dataset.indices = 10
    assert check_data(cfg)[0].images == 10


IMAGES, LABELS = 'train-images-idx3-ubyte.gz', 'train-labels-idx1-ubyte.gz'
DAMAGES = {
    'missing': (LABELS, lambda path: path.unlink(), 'does not exist'),
    'truncated': (IMAGES, lambda path: path.write_bytes(path.read_bytes()[:-500]), 'is truncated or not gzipped'),
    'empty': (IMAGES, lambda path: path.write_bytes(b''), 'no complete IDX file of unsigned bytes with 3 axes'),
    'unpacked': (IMAGES, lambda path: path.write_bytes(gzip.decompress(path.read_bytes())), 'not gzipped'),
    'labels for images': (IMAGES, lambda path: write_idx(path, np.zeros(24, np.uint8)), 'with 3 axes'),
    'too few bytes': (IMAGES, lambda path: write_idx(path, np.zeros(99, np.uint8), (24, 28, 28)), 'no complete IDX'),
    'another size': (IMAGES, lambda path: write_idx(path, np.zeros((24, 32, 32), np.uint8)), '32 x 32 pixels'),
    'fewer labels': (LABELS, lambda path: write_idx(path, np.zeros(23, np.uint8)), '23 labels'),
    'more classes': (LABELS, lambda path: write_idx(path, np.full(24, 10, np.uint8)), 'up to 10, not'),
}


@pytest.mark.parametrize('damage', DAMAGES)
def test_a_file_of_fashion_mnist_that_cannot_be_used(fashion, damage):
    name, break_file, reason = DAMAGES[damage]
    break_file(fashion / name)
    message = refusal(fashion_cfg(fashion))
    assert str(fashion / name) in message and reason in message and '\n' not in message
    assert 'apt-get install dataset-fashion-mnist' in message
