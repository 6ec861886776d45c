"""Retrieval between images and captions: recall at k, both ways.

image to text: share of the images with one of their captions among the k captions with the highest
scores text to image: share of the captions whose image is among the k images with the highest
scores
"""

from collections.abc import Sequence

import numpy as np
from mmengine.evaluator import BaseMetric

from mmlape.errors import ConfigError
from mmlape.registry import METRICS

CHUNK = 512  # rows of the score matrix at a time


def ranks(queries: np.ndarray, items: np.ndarray, owners: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return how many items come before the first right one of each query.

    Of equal scores the first item wins.

    Args:
        queries: (N, D), embeddings.
        items: (M, D), embeddings.
        owners: (M,), the group of each item.
        targets: (N,), the group that is right for each query.

    Returns:
        (N,), from 0.
    """
    counts = []
    for start in range(0, len(queries), CHUNK):
        rows = slice(start, start + CHUNK)
        scores = queries[rows] @ items.T  # (n, M)
        right = np.where(owners == targets[rows, None], scores, -np.inf)
        best = right.argmax(axis=1)[:, None]
        highest = np.take_along_axis(right, best, axis=1)
        earlier = (scores == highest) & (np.arange(len(items)) < best)
        # a score that is NaN comes before the right ones
        counts.append((~(scores <= highest) | earlier).sum(axis=1))
    return np.concatenate(counts)


@METRICS.register_module()
class CaptionRecall(BaseMetric):
    """Recall at k of `mmlape.LiT` on a `mmlape.CaptionDataset`, with all captions of each image.

    Keys, in percent: ``retrieval/image-to-text-R@1``, ``retrieval/text-to-image-R@1`` and so on.

    Args:
        topk: The numbers k.
        **kwargs: Of ``mmengine.evaluator.BaseMetric``.

    Raises:
        ConfigError: The samples have no embeddings of captions.
    """

    default_prefix = 'retrieval'
    reads_head = False

    def __init__(self, topk: Sequence[int] = (1, 5, 10), **kwargs) -> None:
        super().__init__(**kwargs)
        self.topk = tuple(topk)

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Keep the embeddings of a batch."""
        for sample in data_samples:
            if 'text_embedding' not in sample:
                raise ConfigError(
                    'CaptionRecall needs the captions: a model mmlape.LiT, a dataset '
                    "mmlape.CaptionDataset and PackInputs(algorithm_keys=['gt_caption']) at the "
                    'end of its pipeline'
                )
            self.results.append(tuple(sample[f'{kind}_embedding'].float().cpu().numpy() for kind in ('image', 'text')))

    def compute_metrics(self, results: list[tuple]) -> dict[str, float]:
        """Compute the recalls from the embedding (D,) and the captions' (n, D) of each image."""
        images = np.stack([image for image, _ in results])
        texts = np.concatenate([text for _, text in results])
        numbers = np.arange(len(images))
        image_of = np.repeat(numbers, [len(text) for _, text in results])
        directions = {
            'image-to-text': ranks(images, texts, image_of, numbers),
            'text-to-image': ranks(texts, images, numbers, image_of),
        }
        return {
            f'{name}-R@{k}': 100 * float((counts < k).mean()) for name, counts in directions.items() for k in self.topk
        }
