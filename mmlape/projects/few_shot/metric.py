"""Few-shot accuracy of frozen features, by a linear classifier in closed form.

Ridge regression on the class labels.

    W = (X^T X + l2 I)^-1 X^T Y,  label = argmax_c x W

X: the chosen training images' features, standardised, and a constant 100; Y: 1 for the image's
class, -1 for the others. It is how "How to train your ViT?" (TMLR 2022) and Dual PatchNorm (TMLR
2023) compare models of ImageNet-21k.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.evaluator import BaseMetric
from torch import Tensor, nn

from mmlape.errors import ConfigError, DataError
from mmlape.registry import METRICS

BIAS = 100.0  # the constant feature: so large that its weight is hardly regularised
EPS = 1e-5
CHUNK = 4096  # images whose scores are computed at a time


def ridge_labels(support: Tensor, labels: Tensor, queries: Tensor, num_classes: int, l2: float) -> Tensor:
    """Fit the classifier to the support images and label the queries, in float64.

    Args:
        support: (N, D), features.
        labels: (N,), their classes.
        queries: (M, D), features.
        num_classes: Number of classes C.
        l2: Strength of the regularisation.

    Returns:
        (M,), the classes with the highest scores.
    """
    support, queries = support.double(), queries.double()
    mean, std = support.mean(dim=0), support.std(dim=0, correction=0) + EPS

    def design(features: Tensor) -> Tensor:
        return F.pad((features - mean) / std, (0, 1), value=BIAS)

    x = design(support)  # (N, D + 1)
    sums = x.new_zeros(num_classes, x.shape[1]).index_add_(0, labels, x)
    targets = 2 * sums - x.sum(dim=0)  # Y^T X: what is of a class counts once, the rest minus once
    # (D + 1, C)
    weights = torch.linalg.solve(x.T @ x + l2 * torch.eye(x.shape[1], dtype=x.dtype), targets.T)
    return torch.cat([(design(part) @ weights).argmax(dim=1) for part in queries.split(CHUNK)])


@METRICS.register_module()
class FewShotMetric(BaseMetric):
    """The accuracy of `ridge_labels` on the images of a `mmlape.FewShotDataset`, for each number of shots and seed.

    Features are what enters the head's last layer (mmpretrain's ``pre_logits``). Keys, in percent:
    ``few-shot/25-shot``, the mean over the seeds, and ``few-shot/25-shot-seed-0`` and so on. The
    head's own classes do not matter, so a model of ImageNet-21k is evaluated on ImageNet-1K.

    Args:
        l2: Strength of the regularisation.
        **kwargs: Of ``mmengine.evaluator.BaseMetric``.

    Raises:
        ConfigError: The dataset is another one, or the model has no head with ``pre_logits``.
    """

    default_prefix = 'few-shot'
    reads_head = False

    def __init__(self, l2: float = 2.0**10, **kwargs) -> None:
        super().__init__(**kwargs)
        if not l2 > 0:
            raise ConfigError(f'FewShotMetric: l2 must be positive, not {l2}')
        self.l2 = l2
        self.features: Tensor | None = None

    @BaseMetric.dataset_meta.setter
    def dataset_meta(self, meta: dict | None) -> None:
        """Set what the dataset says of itself; the runner does so before the first batch."""
        if not (meta or {}).get('shots'):
            raise ConfigError("FewShotMetric needs a dataset of type='mmlape.FewShotDataset'")
        self._dataset_meta = meta

    def attach(self, model: nn.Module) -> None:
        """Keep the features of each batch that the model is evaluated on.

        The runner calls this once.
        """
        head = getattr(model, 'head', None)
        if not hasattr(head, 'pre_logits'):
            raise ConfigError(f'FewShotMetric needs a head with pre_logits, which {type(model).__name__} lacks')

        def keep(head: nn.Module, inputs: tuple, _) -> None:
            self.features = None if head.training else head.pre_logits(inputs[0])

        head.register_forward_hook(keep)

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Keep the features, labels and ranks of a batch."""
        if self.features is None:
            raise ConfigError('FewShotMetric works in runs of mmlape, which attach it to the model')
        for feature, sample in zip(self.features.float().cpu().numpy(), data_samples, strict=True):
            self.results.append((feature, sample['label'], sample['ranks']))

    def compute_metrics(self, results: list[tuple]) -> dict[str, float]:
        """Compute the accuracies by key over all images, from feature, label and ranks (of a query None) of each."""
        features = torch.from_numpy(np.stack([feature for feature, _, _ in results]))
        labels = torch.tensor([label for _, label, _ in results])
        is_query = torch.tensor([ranks is None for _, _, ranks in results])
        ranks = np.array([ranks for _, _, ranks in results if ranks is not None])  # (N, seeds)
        if not is_query.any() or not len(ranks):
            raise DataError(f'few-shot: {len(ranks)} support images and {int(is_query.sum())} queries were evaluated')
        support, support_labels, truth = features[~is_query], labels[~is_query], labels[is_query]
        num_classes, values = int(labels.max()) + 1, {}
        for shots in self.dataset_meta['shots']:
            single = {}
            for seed in range(ranks.shape[1]):
                chosen = torch.from_numpy(ranks[:, seed] < shots)
                predicted = ridge_labels(
                    support[chosen], support_labels[chosen], features[is_query], num_classes, self.l2
                )
                share = float((predicted == truth).double().mean())
                single[f'{shots}-shot-seed-{seed}'] = 100 * share
            values |= {f'{shots}-shot': float(np.mean(list(single.values()))), **single}
        return values
