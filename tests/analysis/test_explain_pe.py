"""examples/explain_pe.py: the article's numbers, and the script."""

import numpy as np
from explain_pe import article_matrices

ORDER = [15, 6, 8, 11, 7, 2, 3, 13, 4, 14, 12, 1, 5, 9, 10]


def test_the_articles_numbers():
    found = article_matrices(21)
    assert found['A'][0].tolist() == [1111, 1014, 895, 1003]
    np.testing.assert_array_equal(found['As'], found['A swapped'])
    np.testing.assert_array_equal(found['AVs'], found['AV swapped'])
    assert (np.random.RandomState(21).permutation(15) + 1).tolist() == ORDER
