"""Recall at k against a search written out, with ties and different numbers of captions; wrong input."""

import numpy as np
import pytest
import torch

from mmlape.errors import ConfigError
from mmlape.projects.lit import retrieval
from mmlape.projects.lit.retrieval import CaptionRecall


def reference(images, groups, k):
    """Both recalls by sorting all candidates of each query, in percent."""
    texts = [(owner, text) for owner, group in enumerate(groups) for text in group]
    hits = []
    for owner, image in enumerate(images):
        order = sorted(range(len(texts)), key=lambda n: (-float(image @ texts[n][1]), n))
        hits.append(any(texts[n][0] == owner for n in order[:k]))
    found = []
    for owner, text in texts:
        order = sorted(range(len(images)), key=lambda n: (-float(images[n] @ text), n))
        found.append(owner in order[:k])
    return 100 * np.mean(hits), 100 * np.mean(found)


def test_embeddings_that_are_nan_find_nothing():
    nothing, owners = np.full((3, 4), np.nan), np.arange(3)
    assert list(retrieval.ranks(nothing, nothing, owners, owners)) == [3, 3, 3]


@pytest.mark.parametrize('chunk', [512, 3])
def test_recall_is_that_of_a_written_out_search(monkeypatch, chunk):
    monkeypatch.setattr(retrieval, 'CHUNK', chunk)
    random = np.random.default_rng(0)
    # small integers: exact scores, and many of them tie
    images = random.integers(-2, 3, (20, 4)).astype(np.float32)
    groups = [random.integers(-2, 3, (n, 4)).astype(np.float32) + image
              for n, image in zip(random.integers(1, 6, 20), images)]  # fmt: skip
    metric = CaptionRecall(topk=(1, 5, 10))
    for image, group in zip(images, groups):
        metric.process({}, [dict(image_embedding=torch.tensor(image), text_embedding=torch.tensor(group))])
    values = metric.evaluate(20)
    for k in (1, 5, 10):
        expected = reference(images, groups, k)
        found = [values[f'retrieval/{name}-R@{k}'] for name in ('image-to-text', 'text-to-image')]
        np.testing.assert_allclose(found, expected)
        assert 0 < found[0] < 100


def test_equal_embeddings_are_no_success():
    metric = CaptionRecall(topk=(1,))
    for _ in range(50):
        metric.process({}, [dict(image_embedding=torch.ones(3), text_embedding=torch.ones(1, 3))])
    assert set(metric.evaluate(50).values()) == {2.0}


def test_wrong_input():
    with pytest.raises(ConfigError, match=r'mmlape\.CaptionDataset'):
        CaptionRecall().process({}, [dict(image_embedding=torch.ones(3))])
