"""The config of a test of few-shot accuracy, from the one of a model."""

import copy
from collections.abc import Sequence

from mmengine.config import Config

from mmlape.errors import ConfigError
from mmlape.lab.datasets.formats import iter_unwrapped
from mmlape.lab.engine.plan import require_keys

DATASET = 'mmlape.FewShotDataset'


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
    if loader['dataset']['type'] == DATASET:
        datasets = loader['dataset']['datasets']
    else:
        support = list(iter_unwrapped(copy.deepcopy(data.train_dataloader['dataset'])))
        if len(support) > 1:
            raise ConfigError(f'few-shot: {data.filename} has {len(support)} training sets, but shots come from one')
        queries = loader['dataset']
        shots_of = dict(support[0], pipeline=queries.get('pipeline', []))
        datasets = [shots_of, queries]
    loader['dataset'] = dict(type=DATASET, datasets=datasets, shots=list(shots), seeds=seeds)
    cfg = copy.deepcopy(cfg)
    cfg.test_dataloader, cfg.test_cfg = loader, dict()
    cfg.test_evaluator = dict(type='mmlape.FewShotMetric', l2=l2)
    hooks = cfg.get('custom_hooks') or []
    cfg.custom_hooks = [hook for hook in hooks if not str(hook['type']).endswith('SecondEvaluationHook')]
    return cfg
