"""Ridge regressions from sums over tokens, so that no features are kept.

    standardised features x, centred targets y, n tokens:  w = (X'X / n + a I)^-1 X'Y / n

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
    """Sums of v = (features, targets) and of vv' over tokens, in float64.

    Features are counted from an origin near their mean, as those of large mean would lose digits. Moments of one
    origin can be added.
    """

    def __init__(self, origin: Tensor, targets: int):
        self.origin, self.count = origin.double(), 0  # (D,)
        self.first = torch.zeros(len(origin) + targets, dtype=torch.float64)
        self.second = torch.zeros(len(self.first), len(self.first), dtype=torch.float64)

    def add(self, features: Tensor, targets: Tensor) -> None:
        """Count tokens: features (M, D) and targets (M, T)."""
        both = torch.cat((features.double() - self.origin, targets.double()), dim=1)  # (M, D + T)
        self.count += len(both)
        self.first += both.sum(0)
        self.second += both.mT @ both

    def __add__(self, other: 'Moments') -> 'Moments':
        """Return the moments of the tokens of both."""
        added = Moments(self.origin, len(self.first) - len(self.origin))
        added.count = self.count + other.count
        added.first, added.second = self.first + other.first, self.second + other.second
        return added

    @property
    def mean(self) -> Tensor:
        """The mean of v, (D + T,)."""
        return self.first / self.count

    def around(self, centre: Tensor) -> Tensor:
        """Return the mean of (v - c) (v - c)', (D + T, D + T)."""
        cross = torch.outer(self.mean, centre)
        return self.second / self.count - cross - cross.mT + torch.outer(centre, centre)


class Reader(NamedTuple):
    """A linear probe, which reads y = mean + W'(x - mean)."""

    mean: Tensor  # of features and targets, (D + T,)
    weight: Tensor  # (D, T)


def squared_error(moments: Moments, reader: Reader) -> Tensor:
    """Return the mean squared error of each target, (T,)."""
    residual = torch.cat((-reader.weight, torch.eye(reader.weight.shape[1], dtype=torch.float64)))  # (D + T, T)
    return (residual * (moments.around(reader.mean) @ residual)).sum(0).clamp_min(0)


def variance(moments: Moments) -> Tensor:
    """Return the variance of each target, (T,)."""
    return moments.around(moments.mean).diagonal()[len(moments.origin) :]


def fit(train: Moments, chosen_on: Moments) -> Reader:
    """Fit a probe of each strength, and return the one with the least error on other tokens, target by target."""
    width, mean = len(train.origin), train.mean
    covariance = train.around(mean)
    std = covariance.diagonal()[:width].clamp_min(0).sqrt()
    std = torch.where(std <= LEAST_STD * std.max(), torch.inf, std)[:, None]
    values, vectors = torch.linalg.eigh(covariance[:width, :width] / std / std.mT)
    rotated = vectors.mT @ (covariance[:width, width:] / std)  # (D, T)
    readers = [
        Reader(mean, vectors @ (rotated / (values.clamp_min(0) + strength)[:, None]) / std) for strength in STRENGTHS
    ]
    best = torch.stack([squared_error(chosen_on, reader) for reader in readers]).argmin(0)  # (T,)
    columns = [readers[place].weight[:, target] for target, place in enumerate(best.tolist())]
    return Reader(mean, torch.stack(columns, dim=1))
