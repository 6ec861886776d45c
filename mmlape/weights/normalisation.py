"""How pixels are normalised: what a model does, and what its weights want."""

from dataclasses import dataclass, field

from torch import nn

TOLERANCE = 0.5
"""Means and deviations that differ by less are the same ones, rounded."""


@dataclass(frozen=True)
class Normalisation:
    """The mean and standard deviation of each channel of the stem, (image - mean) / std, of pixels from 0 to 255."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    source: str = field(default='', compare=False)  # how they are known

    def __str__(self) -> str:
        return f'mean={list(self.mean)}, std={list(self.std)}'

    def is_near(self, other: 'Normalisation') -> bool:
        """Check whether both are the same, up to rounding."""
        pairs = list(zip(self.mean + self.std, other.mean + other.std))
        return len(self.mean) == len(other.mean) and all(abs(a - b) < TOLERANCE for a, b in pairs)


IMAGENET = Normalisation((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
HALF = Normalisation((127.5,) * 3, (127.5,) * 3)


def normalisation_of(model: nn.Module) -> Normalisation | None:
    """Return what a model's data preprocessor does; None if it does not normalise."""
    preprocessor = getattr(model, 'data_preprocessor', None)
    mean, std = (getattr(preprocessor, name, None) for name in ('mean', 'std'))
    if mean is None or std is None or mean.is_meta:
        return None
    return Normalisation(*(tuple(round(v, 4) for v in part.flatten().tolist()) for part in (mean, std)))
