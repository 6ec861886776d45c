"""Images for few-shot evaluation.

A few of each class to fit a classifier to, and the queries that it labels.
"""

import copy
from collections.abc import Sequence

import numpy as np
from mmengine.config import Config
from mmengine.dataset import ConcatDataset

from mmlape.errors import ConfigError, DataError
from mmlape.lab.datasets.formats import iter_unwrapped
from mmlape.lab.registry import is_a
from mmlape.lab.training.hooks import SecondEvaluationHook
from mmlape.lab.training.plan import require_keys
from mmlape.registry import DATASETS


@DATASETS.register_module()
class FewShotDataset(ConcatDataset):
    """Support images, chosen by seed from the first dataset, followed by the queries, all images of the second.

    For every seed each class's images are shuffled by NumPy's generator of that seed, as in
    big_vision; the first k are its k shots, all of them where there are fewer. Only images that
    some seed chooses are kept. A sample's metainfo has its ``label``, which may be none of the
    head's, and so is no ``gt_label``, and its ``ranks``: the image's place in its class for every
    seed, or the largest number of shots where it is not chosen; None for a query.

    Args:
        datasets: Configs of two datasets with the same classes, both with the pipeline of a test.
        shots: Numbers of images of a class.
        seeds: How many choices of images there are; they are those of the seeds 0, 1, ...

    Raises:
        ConfigError: There are not two datasets, or a number is not positive.
        DataError: Their classes differ.
    """

    def __init__(self, datasets: Sequence[dict], shots: Sequence[int] = (1, 5, 10, 25), seeds: int = 3) -> None:
        self.shots, self.seeds = tuple(sorted(set(shots))), seeds
        if len(datasets) != 2:
            raise ConfigError(f'FewShotDataset takes two datasets, support images and queries, not {len(datasets)}')
        if not self.shots or self.shots[0] < 1 or seeds < 1:
            raise ConfigError(f'FewShotDataset: shots={list(shots)} and seeds={seeds} must be positive')
        super().__init__(datasets, ignore_keys='classes')
        self._metainfo = dict(self._metainfo, shots=self.shots)

    @property
    def num_evaluated(self) -> int:
        """The number of queries, which the accuracy is of."""
        return len(self.datasets[1])

    def full_init(self) -> None:
        """Load both datasets and reduce the first to the chosen images."""
        if self._fully_initialized:
            return
        for dataset in self.datasets:
            dataset.full_init()
        support, queries = self.datasets
        classes, others = support.metainfo.get('classes'), queries.metainfo.get('classes')
        if classes != others:
            differing = sorted(set(classes or ()) ^ set(others or ())) or ['their order']
            raise DataError(
                f'few-shot: the support images have {len(classes or ())} classes, the queries '
                f'{len(others or ())}; they differ in {", ".join(differing[:5])}'
            )
        labels = np.array([support.get_data_info(index)['gt_label'] for index in range(len(support))])
        num_classes = len(classes) if classes else int(labels.max(initial=-1)) + 1
        ranks = choose_shots(labels, range(num_classes), self.shots[-1], self.seeds)
        chosen = np.flatnonzero((ranks < self.shots[-1]).any(axis=1))
        support.get_subset_(chosen.tolist())
        self.ranks = ranks[chosen].tolist()
        super().full_init()

    def __getitem__(self, index: int) -> dict:
        """Return a packed sample with its ``label`` and ``ranks``."""
        packed = super().__getitem__(index)
        sample = packed['data_samples']
        ranks = self.ranks[index] if index < len(self.ranks) else None
        sample.set_metainfo(dict(label=int(sample.pop('gt_label')), ranks=ranks))
        return packed


def choose_shots(labels: np.ndarray, classes: Sequence, shots: int, seeds: int) -> np.ndarray:
    """Choose the images of each class.

    Args:
        labels: (N,), the class of each image.
        classes: The classes.
        shots: How many images of a class to choose; all, if it has fewer.
        seeds: How many choices to make.

    Returns:
        (N, seeds), each image's place among the chosen ones of its class; ``shots`` where it is not
        chosen.
    """
    counts = np.bincount(labels, minlength=len(classes))
    by_class = np.split(np.argsort(labels, kind='stable'), np.cumsum(counts)[:-1])
    ranks = np.full((len(labels), seeds), shots)
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        for images in by_class:
            ranks[random.permutation(images)[:shots], seed] = np.arange(min(shots, len(images)))
    return ranks


def few_shot_config(cfg: Config, shots: Sequence[int], seeds: int, l2: float, data: Config | None = None) -> Config:
    """Return a copy of a configuration whose test measures few-shot accuracy.

    Args:
        cfg: Of the model.
        shots: Numbers of images of a class.
        seeds: How many choices of images there are.
        l2: Strength of the regularisation.
        data: The configuration whose data are used: shots of its training images, all images of its
            test set, both with the pipeline of its test; ``cfg`` by default. A test set that is
            few-shot already stays.

    Raises:
        ConfigError: The data have no training or test set, or several training sets.
    """
    data = cfg if data is None else data
    require_keys(data, ('train_dataloader', 'test_dataloader'), 'evaluated with few shots')
    loader = copy.deepcopy(data.test_dataloader)
    if is_a(loader['dataset'], FewShotDataset, data.get('default_scope'), 'DATASETS'):
        datasets = loader['dataset']['datasets']
    else:
        support = list(iter_unwrapped(copy.deepcopy(data.train_dataloader['dataset'])))
        if len(support) > 1:
            raise ConfigError(f'few-shot: {data.filename} has {len(support)} training sets, but shots come from one')
        queries = loader['dataset']
        shots_of = dict(support[0], pipeline=queries.get('pipeline', []))
        datasets = [shots_of, queries]
    loader['dataset'] = dict(type='mmlape.FewShotDataset', datasets=datasets, shots=list(shots), seeds=seeds)
    cfg = copy.deepcopy(cfg)
    cfg.test_dataloader, cfg.test_cfg = loader, dict()
    cfg.test_evaluator = dict(type='mmlape.FewShotMetric', l2=l2)
    hooks, scope = cfg.get('custom_hooks') or [], cfg.get('default_scope')
    cfg.custom_hooks = [hook for hook in hooks if not is_a(hook, SecondEvaluationHook, scope, 'HOOKS')]
    return cfg
