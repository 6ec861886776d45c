"""Runs of other data, or of other classes, are not repeats, not resumed, and not tested without a word."""

import json
import shutil
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from each import each
from mmengine.config import ConfigDict
from mmengine.dataset import BaseDataset, ConcatDataset, RepeatDataset
from mmengine.registry import DATASETS, init_default_scope

from mmlape.checkpoint import read_checkpoint
from mmlape.errors import CheckpointError, DataError, TrainingError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.data_content import contents_of
from mmlape.lab.datasets.fraction import DataFraction, with_fraction
from mmlape.lab.experiments.averages import check_repeats
from mmlape.lab.inference.evaluator import test as evaluate
from mmlape.lab.inference.trained_model import open_trained
from mmlape.lab.runs.run import read_run
from mmlape.lab.training.trainer import train

CONFIGS = {
    'ade': 'linear/linear_deit-mini_1xb8-100i_mini-ade',
    'coco': 'mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco',
    'digits': 'deit/deit-mini_1xb32-5e_mini-digits',
}


def part_of(root: Path) -> ConfigDict:
    cfg = load_config(tiny.ROOT / f'configs/{CONFIGS[root.name]}.py', dict(data_root=f'{root}/'))
    init_default_scope(cfg.default_scope)
    return cfg.train_dataloader.dataset


def content(root: Path) -> dict:
    (found,) = contents_of(DATASETS.build(part_of(root)))
    return asdict(found)


def exchange(first: Path, second: Path) -> None:
    """Exchange what two files hold, which get one length: decoders stop at the end that a file says it has."""
    one, two = first.read_bytes(), second.read_bytes()
    length = max(len(one), len(two))
    first.write_bytes(two.ljust(length, b'\0'))
    second.write_bytes(one.ljust(length, b'\0'))


def images_of(root: Path, folder: str = '') -> list[Path]:
    return sorted(
        path for path in (root / folder).rglob('*') if path.suffix in ('.png', '.jpg') and 'val' not in str(path)
    )


def test_the_same_data_elsewhere_are_the_same_and_every_change_is_another(pristine, tmp_path):
    for name in each(CONFIGS):
        root = shutil.copytree(pristine / name, tmp_path / name)
        first, second, *_ = images_of(root, 'train2017' if name == 'coco' else '')
        exchange(first, second)
        before = content(root)
        moved = shutil.copytree(root, tmp_path / 'another' / 'place' / name)
        assert content(moved) == before
        exchange(first, second)
        after = content(root)
        assert {key for key in before if before[key] != after[key]} == {'contents'}
        first.write_bytes(first.read_bytes() + b'\0')
        assert content(root)['names_and_sizes'] != before['names_and_sizes']
        for listed in moved.rglob('instances_train2017.json'):
            listed.write_text(listed.read_text().replace('"category_id": 1', '"category_id": 2'))
            changed = content(moved)
            assert {key for key in before if before[key] != changed[key]} == {'annotations'}


def test_folders_that_exchange_their_names(pristine, tmp_path):
    root = shutil.copytree(pristine / 'digits', tmp_path / 'digits')
    before, folders = content(root), sorted(path for path in (root / 'train').iterdir() if path.is_dir())
    folders[0].rename(root / 'x')
    folders[1].rename(folders[0])
    (root / 'x').rename(folders[1])
    assert content(root)['contents'] != before['contents']


class InMemory(BaseDataset):
    labels: tuple[int, ...] = ()

    def load_data_list(self):
        return [dict(img=np.full((2, 2), label), gt_label=label) for label in self.labels]


def test_samples_without_files_wrappers_and_subsets(pristine):
    one, two = (type('Own', (InMemory,), dict(labels=labels))() for labels in ((0, 1), (1, 0)))
    assert contents_of(one) != contents_of(two)
    assert contents_of(ConcatDataset([one, two])) == contents_of(RepeatDataset(one, 2)) + contents_of(two)
    for name in each(CONFIGS):
        part = part_of(pristine / name)
        subsets = [
            DATASETS.build(with_fraction(part, DataFraction(Fraction(1, 2), 'run'), seed, 1)) for seed in (1, 2)
        ]
        for subset in subsets:
            assert contents_of(subset) == contents_of(DATASETS.build(part)), 'runs of other subsets are repeats'


@pytest.fixture(scope='module')
def first(tmp_path_factory):
    """A run of three classes, its config, and its data."""
    folder = tmp_path_factory.mktemp('first')
    config = tiny.write_config(folder, tiny.write_data(folder / 'data'), 'train_cfg.update(max_iters=3)\n')
    train(load_config(config), folder / 'seed_1', seed=1)
    return folder


@pytest.fixture
def trained(first, tmp_path):
    """The same elsewhere, to be changed."""
    shutil.copytree(first, tmp_path, dirs_exist_ok=True)
    for config in (tmp_path / 'tiny.py', tmp_path / 'seed_1' / 'tiny.py'):
        config.write_text(config.read_text().replace(str(first), str(tmp_path)))
    return tmp_path, load_config(tmp_path / 'tiny.py'), tmp_path / 'data'


def test_other_data_are_neither_resumed_nor_averaged(trained):
    folder, cfg, data = trained
    content = tiny.record(folder / 'seed_1')
    labels = sorted((data / 'annotations/training').iterdir())
    exchange(*labels[:2])
    (folder / 'seed_1/run.json').write_text(json.dumps({**content, 'state': 'interrupted'}))
    with pytest.raises(TrainingError, match=r'other data \(data: train\.0\.[^:]*: restore them, or'):
        train(cfg, folder / 'seed_1', resume=True)
    refused = tiny.record(folder / 'seed_1')
    assert refused['state'] == 'failed' and refused['identity']['data'] == content['identity']['data']
    train(cfg, folder / 'seed_2', seed=2)
    (folder / 'seed_1/run.json').write_text(json.dumps(content))
    runs = [read_run(folder / f'seed_{seed}') for seed in (1, 2)]
    with pytest.raises(DataError, match=r'not repeats of each other \(data: train\.0\.'):
        check_repeats(runs)
    del content['identity']['data'], content['state']
    (folder / 'seed_1/run.json').write_text(json.dumps({**content, 'state': 'failed'}))
    checkpoint = read_checkpoint(folder / 'seed_1/iter_3.pth')
    del checkpoint['meta']['identity']  # as an older version wrote it
    torch.save(checkpoint, folder / 'seed_1/iter_3.pth')
    train(cfg, folder / 'seed_1', resume=True)
    assert 'data' not in tiny.record(folder / 'seed_1')['identity'], 'those of its first part are not known'
    check_repeats([read_run(folder / 'seed_1'), runs[1]])


def test_classes_in_another_order_are_refused_wherever_a_head_is_loaded(trained, capfd):
    folder, _, data = trained
    checkpoint = folder / 'seed_1/iter_3.pth'

    def config(name, classes):
        return load_config(tiny.write_config(folder, data, name=name), {
            f'{split}_dataloader.dataset.metainfo.classes': classes for split in ('train', 'val', 'test')
        })  # fmt: skip

    exchanged, renamed = config('exchanged', ('right', 'left', 'below')), config('renamed', ('left', 'right', 'under'))
    exchanged.load_from = renamed.load_from = str(checkpoint)
    told = r'another order \(0: left -> right; 1: right -> left\)'
    with pytest.raises(CheckpointError, match=told):
        evaluate(exchanged, checkpoint, folder / 'test')
    with pytest.raises(CheckpointError, match=told):
        train(exchanged, folder / 'from', seed=1)
    exchanged.load_fresh = ('decode_head.conv_seg',)
    train(exchanged, folder / 'fresh', seed=1)
    capfd.readouterr()
    evaluate(renamed, checkpoint, folder / 'test')
    train(renamed, folder / 'renamed', seed=1)
    assert ''.join(capfd.readouterr()).count('other names of classes (2: below -> under)') == 2


def test_a_run_is_tested_on_data_elsewhere(trained):
    folder, _, data = trained
    moved = shutil.copytree(data, folder / 'moved')
    (moved / 'classes.txt').write_text('\n'.join(tiny.CLASSES))
    model = open_trained(folder / 'seed_1', [f'data_root={moved}'])
    shutil.rmtree(data)
    assert evaluate(model.config, model.weights(), folder / 'test')['images'] == 5
    (moved / 'classes.txt').write_text('\n'.join(tiny.CLASSES[::-1]))
    model = open_trained(folder / 'seed_1', [f'data_root={moved}'])
    with pytest.raises(CheckpointError, match='another order'):
        evaluate(model.config, model.weights(), folder / 'exchanged')
