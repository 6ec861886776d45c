"""Ridge regressions from sums over tokens, so that no features are kept.

    standardised features x, targets y, n tokens:  w = (X'X / n + a I)^-1 X'Y / n

This is scikit-learn's ``Ridge(alpha=a * n)`` on features of mean 0 and deviation 1. The strength a
is chosen on images that are held out, the error is measured on others.
"""

from typing import NamedTuple

import torch
from torch import Tensor

STRENGTHS = tuple(10.0**power for power in range(-7, 3))
"""The values of a that are tried."""
LEAST_STD = 1e-8
"""Channels that vary by less, relative to the largest deviation, are left out: they are constant."""


class Moments:
    """Sums of features and targets over tokens, in float64.

    Sums are taken around an origin near the mean, as features of large mean would lose digits.
    Moments of one origin can be added.
    """

    def __init__(self, origin: Tensor, targets: int):
        self.origin = origin.double()  # (D,)
        self.width, self.count = len(origin), 0
        self.first = torch.zeros(self.width + targets, dtype=torch.float64)
        self.second = torch.zeros(self.width + targets, self.width + targets, dtype=torch.float64)

    def add(self, features: Tensor, targets: Tensor) -> None:
        """Count tokens: features (M, D) and targets (M, T)."""
        both = torch.cat((features.double() - self.origin, targets.double()), dim=1)  # (M, D + T)
        self.count += len(both)
        self.first += both.sum(0)
        self.second += both.mT @ both

    def __add__(self, other: 'Moments') -> 'Moments':
        """Return the moments of the tokens of both."""
        added = Moments(self.origin, len(self.first) - self.width)
        added.count = self.count + other.count
        added.first, added.second = self.first + other.first, self.second + other.second
        return added

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of each feature, (D,) each; constant ones have an infinite one."""
        mean = self.first[: self.width] / self.count
        variance = self.second.diagonal()[: self.width] / self.count - mean**2
        std = variance.clamp_min(0).sqrt()
        is_constant = std <= LEAST_STD * std.max()
        return mean + self.origin, torch.where(is_constant, torch.inf, std)

    def standardised(self, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the means of zz', zy' and yy' of features z = (x - mean) / std with a last 1.

        Of (D + 1, D + 1), (D + 1, T) and (T, T).
        """
        width, middle = self.width, mean - self.origin
        first, second = self.first / self.count, self.second / self.count
        x, y = first[:width], first[width:]
        xx = second[:width, :width] - torch.outer(x, middle) - torch.outer(middle, x)
        xx = (xx + torch.outer(middle, middle)) / std[:, None] / std
        xy = (second[:width, width:] - torch.outer(middle, y)) / std[:, None]
        ones = ((x - middle) / std)[:, None]
        zz = torch.cat((torch.cat((xx, ones), 1), torch.cat((ones.mT, ones.new_ones(1, 1)), 1)))
        return zz, torch.cat((xy, y[None])), second[width:, width:]


class Reader(NamedTuple):
    """A linear probe."""

    mean: Tensor  # (D,)
    std: Tensor  # (D,)
    weight: Tensor  # (D + 1, T), the last row is the constant


def squared_error(moments: Moments, reader: Reader) -> Tensor:
    """Return the mean squared error of each target, (T,)."""
    zz, zy, yy = moments.standardised(reader.mean, reader.std)
    quadratic = (reader.weight * (zz @ reader.weight)).sum(0)
    return (quadratic - 2 * (reader.weight * zy).sum(0) + yy.diagonal()).clamp_min(0)


def variance(moments: Moments) -> Tensor:
    """Return the variance of each target, (T,)."""
    mean = moments.first[moments.width :] / moments.count
    return moments.second.diagonal()[moments.width :] / moments.count - mean**2


def fit(train: Moments, chosen_on: Moments) -> Reader:
    """Fit a probe of each strength, and return the one with the least error on other tokens, target by target."""
    mean, std = train.statistics()
    zz, zy, _ = train.standardised(mean, std)
    values, vectors = torch.linalg.eigh(zz[:-1, :-1])
    rotated = vectors.mT @ zy[:-1]  # (D, T)
    readers = [
        Reader(mean, std, torch.cat((vectors @ (rotated / (values.clamp_min(0) + strength)[:, None]), zy[-1:])))
        for strength in STRENGTHS
    ]  # the last row is the constant, since the features' mean is 0
    best = torch.stack([squared_error(chosen_on, reader) for reader in readers]).argmin(0)  # (T,)
    columns = [readers[place].weight[:, target] for target, place in enumerate(best.tolist())]
    return Reader(mean, std, torch.stack(columns, dim=1))
