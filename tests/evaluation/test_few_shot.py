"""Few-shot accuracy: the classifier against NumPy's normal equations, the choice of shots, and runs."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from config_helpers import ROOT, build
from mmengine.dataset import default_collate
from mmengine.registry import init_default_scope
from tiny import MMLAPE, run

from mmlape.lab.config.config_file import load_config
from mmlape.lab.inference.evaluator import test as evaluate
from mmlape.projects.few_shot.dataset import choose_shots, few_shot_config
from mmlape.projects.few_shot.metric import FewShotMetric, ridge_labels
from mmlape.registry import DATASETS

CONFIG = ROOT / 'configs' / 'deit' / 'deit-mini-lape_1xb32-5e_mini-digits.py'


def reference(support, labels, queries, num_classes, l2):
    """Labels of the queries by big_vision's equations, with targets written out, in NumPy's float64."""
    support, queries = np.asarray(support, np.float64), np.asarray(queries, np.float64)
    mean, std = support.mean(0), np.sqrt(((support - support.mean(0)) ** 2).mean(0)) + 1e-5
    x, z = (np.concatenate(((a - mean) / std, np.full((len(a), 1), 100.0)), axis=1) for a in (support, queries))
    y = np.full((len(x), num_classes), -1.0)
    y[np.arange(len(x)), labels] = 1
    if len(x) < x.shape[1]:
        weights = x.T @ np.linalg.inv(x @ x.T + l2 * np.eye(len(x))) @ y
    else:
        weights = np.linalg.inv(x.T @ x + l2 * np.eye(x.shape[1])) @ x.T @ y
    return (z @ weights).argmax(1)


@pytest.mark.parametrize(('per_class', 'dims'), [(20, 12), (3, 40)], ids=['more images', 'more features'])
@pytest.mark.parametrize('l2', [2.0**10, 1e-2])
def test_classifier_equals_numpys(per_class, dims, l2):
    """Unequal classes, features of very different scales; few and many images for the features."""
    random = np.random.default_rng(0)
    labels = np.concatenate((np.repeat(np.arange(5), per_class), [2] * per_class, [4]))
    centres, scale = random.normal(size=(5, dims)), 10.0 ** random.integers(-3, 4, dims)
    support = ((centres[labels] + random.normal(size=(len(labels), dims))) * scale + 5 * scale).astype(np.float32)
    truth = np.arange(400) % 5
    queries = ((centres[truth] + random.normal(size=(400, dims))) * scale + 5 * scale).astype(np.float32)
    found = ridge_labels(*map(torch.from_numpy, (support, labels, queries)), 5, l2).numpy()
    assert (found == reference(support, labels, queries, 5, l2)).all()
    assert 0.2 < (found == truth).mean() < 1


def test_shots_are_those_of_big_vision():
    """Seed by seed, class by class, the first k of NumPy's permutation, or as many as there are."""
    labels = np.append(np.random.default_rng(1).integers(0, 3, 60), [4, 4])  # none of class 3, two of class 4
    ranks = choose_shots(labels, range(5), 5, 3)
    assert ranks.shape == (62, 3)
    for seed in range(3):
        random = np.random.default_rng(seed)
        for one in range(5):
            order = random.permutation(np.where(labels == one)[0])
            for shots in (1, 3, 5):
                assert set(order[:shots]) == set(np.flatnonzero((labels == one) & (ranks[:, seed] < shots)))


def test_the_metric_averages_over_seeds_in_any_order():
    """Each image as the dataset marks it; shuffled results give the same accuracies."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 6)
    ranks = choose_shots(labels, range(3), 4, 2)
    features = (np.eye(3)[labels] @ random.normal(size=(3, 8)) + random.normal(size=(18, 8))).astype(np.float32)
    queries = (np.eye(3)[labels] @ random.normal(size=(3, 8)) + random.normal(size=(18, 8))).astype(np.float32)
    metric = FewShotMetric()
    metric.dataset_meta = dict(shots=(2, 4))
    results = [*zip(features, labels.tolist(), ranks.tolist()), *zip(queries, labels.tolist(), [None] * 18)]
    found = metric.compute_metrics(results)
    for shots in (2, 4):
        single = []
        for seed in range(2):
            chosen = ranks[:, seed] < shots
            predicted = reference(features[chosen], labels[chosen], queries, 3, 2**10)
            single.append(100 * (predicted == labels).mean())
            assert found[f'{shots}-shot-seed-{seed}'] == pytest.approx(single[-1])
        assert found[f'{shots}-shot'] == pytest.approx(np.mean(single))
    random.shuffle(results)
    assert metric.compute_metrics(results) == pytest.approx(found)


@pytest.fixture(scope='module')
def digits(pristine, tmp_path_factory):
    """A config on the mini digits, with a hidden layer in the head, and a checkpoint of random weights."""
    folder = tmp_path_factory.mktemp('few-shot')
    config = folder / 'digits.py'
    config.write_text(
        f"_base_ = '{CONFIG}'\ndata_root = '{pristine / 'digits'}/'\n"
        "model = dict(head=dict(hidden_dim=24))\nenv_cfg = dict(dist_cfg=dict(backend='gloo'))\n"
        'loaders = dict(num_workers=0, persistent_workers=False, batch_size=7)\n'
        'train_dataloader = dict(dataset=dict(data_root=data_root), **loaders)\n'
        'val_dataloader = dict(dataset=dict(data_root=data_root), **loaders)\ntest_dataloader = val_dataloader\n'
        "custom_hooks = [dict(type='mmlape.SecondEvaluationHook', name='big', changes=dict(Resize=dict(scale=72)))]\n"
    )
    torch.manual_seed(0)
    model = build(load_config(config))
    torch.nn.init.normal_(model.head.layers.pre_logits.weight)
    torch.save(dict(state_dict=model.state_dict()), folder / 'weights.pth')
    return config, folder / 'weights.pth', model.eval()


@pytest.fixture(scope='module')
def measured(digits, tmp_path_factory):
    """Metrics of one process."""
    config, weights, _ = digits
    work_dir = tmp_path_factory.mktemp('one')
    cfg = few_shot_config(load_config(config), [1, 2], 2, 2.0**10)
    return evaluate(cfg, weights, work_dir)['metrics']


def test_a_run_equals_features_and_numpy(digits, measured):
    """The dataset's order, the model's `pre_logits` in evaluation mode, and the reference."""
    config, _, model = digits
    cfg = few_shot_config(load_config(config), [1, 2], 2, 2.0**10)
    init_default_scope('mmpretrain')
    support, queries = map(DATASETS.build, cfg.test_dataloader.dataset['datasets'])

    @torch.no_grad()
    def features(dataset):
        batch = model.data_preprocessor(default_collate([dataset[index] for index in range(len(dataset))]))
        labels = np.array([int(sample.gt_label) for sample in batch['data_samples']])
        return model.extract_feat(batch['inputs'], stage='pre_logits').numpy(), labels

    (x, labels), (z, truth) = features(support), features(queries)
    assert x.shape[1] == 24
    ranks = choose_shots(labels, range(10), 2, 2)
    for shots in (1, 2):
        single = []
        for seed in range(2):
            chosen = ranks[:, seed] < shots
            single.append(100 * (reference(x[chosen], labels[chosen], z, 10, 2**10) == truth).mean())
            assert measured[f'few-shot/{shots}-shot-seed-{seed}'] == pytest.approx(single[-1])
        assert measured[f'few-shot/{shots}-shot'] == pytest.approx(np.mean(single))
    assert set(measured) == {f'few-shot/{k}-shot{tail}' for k in (1, 2) for tail in ('', '-seed-0', '-seed-1')}


def test_both_sets_have_the_pipeline_of_the_test(digits):
    """Shots are images of the training set, but none is flipped, cropped or erased."""
    cfg = load_config(digits[0])
    training, testing = cfg.train_dataloader.dataset, cfg.test_dataloader.dataset
    training.pipeline = [*training.pipeline[:-1], dict(type='RandomFlip', prob=0.5), training.pipeline[-1]]
    made = few_shot_config(cfg, [1, 2], 2, 64.0)
    support, queries = made.test_dataloader.dataset['datasets']
    assert support['pipeline'] == queries['pipeline'] == testing.pipeline
    assert support['data_prefix'] == training.data_prefix and queries['data_prefix'] == testing.data_prefix
    assert (made.test_evaluator.l2, made.test_dataloader.dataset.seeds) == (64.0, 2)
    assert cfg.test_dataloader.dataset == testing and 'test_evaluator' in cfg, 'the given one stays'


@pytest.mark.release
def test_two_processes_measure_the_folder_of_a_run_as_one(digits, measured, tmp_path):
    config, weights, _ = digits
    (run_folder := tmp_path / 'run').mkdir()
    load_config(config).dump(run_folder / 'digits.py')
    shutil.copy(weights, run_folder / 'epoch_1.pth')
    (run_folder / 'run.json').write_text('{"state": "finished", "config": "digits.py"}')
    launch = (sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', 2)
    options = ('--shots', 1, 2, '--num-seeds', 2, '--work-dir', tmp_path, '--launcher', 'pytorch')
    printed = run(*launch, *MMLAPE, 'few-shot', run_folder, *options, cwd=tmp_path)
    assert 'few-shot/2-shot' in printed
    assert printed.count('newest checkpoint: epoch_1.pth (no best one was kept)') == 1
    found = json.loads((tmp_path / 'few_shot.json').read_text())
    assert found['world_size'] == 2 and found['metrics'] == pytest.approx(measured)
    queries = DATASETS.build(load_config(config).test_dataloader.dataset)
    assert found['images'] == len(queries), 'the images that the accuracy is of'
