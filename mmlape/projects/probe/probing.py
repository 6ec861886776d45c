"""How well the place of a patch is read from its features, by layer.

R^2 = 1 - SSE / SST of row and column, by ridge regressions over five folds of images: three train, one chooses the
strength, one measures. The error is its root mean square, in patches. Ridges are made of sums over tokens, so that no
features are kept:

    standardised features x, centred targets y, n tokens:  w = (X'X / n + a I)^-1 X'Y / n

This is scikit-learn's ``Ridge(alpha=a * n)`` on features of mean 0 and deviation 1.
"""

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mmlape.checkpoint.converting import write_tensors
from mmlape.checkpoint.metadata import metadata_of
from mmlape.console.figures import look, new_axes, save_figure, wrapped
from mmlape.console.tables import console_table, text_table, write_csv
from mmlape.console.terminal import console
from mmlape.errors import ConfigError
from mmlape.lab.training.frozen.part import outermost_frozen
from mmlape.models.grid import Grid
from mmlape.models.removal import remove_position
from mmlape.projects.probe.models import Probed, find_images, open_probed, patch_pixels, read_images

FOLDS = 5
TOKENS = 4096
"""Of one forward."""
STRENGTHS = tuple(10.0**power for power in range(-7, 3))
"""The values of a that are tried."""
LEAST_STD = 1e-8
"""Channels that vary by less, relative to the largest deviation, are left out: they are constant."""


@dataclass(frozen=True)
class Moments:
    """Sums of v = (features, targets) and of vv' over tokens, in float64.

    Features are counted from an origin near their mean, as those of large mean would lose digits. Moments of one
    origin can be added.
    """

    origin: Tensor  # (D,)
    count: int
    first: Tensor  # (D + T,)
    second: Tensor  # (D + T, D + T)

    @classmethod
    def of(cls, features: Tensor, targets: Tensor, origin: Tensor) -> 'Moments':
        """Count tokens: features (M, D) and targets (M, T)."""
        both = torch.cat((features.double() - origin.double(), targets.double()), dim=1)
        return cls(origin.double(), len(both), both.sum(0), both.mT @ both)

    def __add__(self, other: 'Moments') -> 'Moments':
        """Return the moments of the tokens of both."""
        return Moments(self.origin, self.count + other.count, self.first + other.first, self.second + other.second)

    @property
    def mean(self) -> Tensor:
        """The mean of v, (D + T,)."""
        return self.first / self.count

    def around(self, centre: Tensor) -> Tensor:
        """Return the mean of (v - c) (v - c)', (D + T, D + T)."""
        cross = torch.outer(self.mean, centre)
        return self.second / self.count - cross - cross.mT + torch.outer(centre, centre)


def squared_error(moments: Moments, mean: Tensor, weight: Tensor) -> Tensor:
    """Return the mean squared error (T,) of reading each target as mean + W'(x - mean), W (D, T)."""
    residual = torch.cat((-weight, torch.eye(weight.shape[1], dtype=torch.float64)))  # (D + T, T)
    return (residual * (moments.around(mean) @ residual)).sum(0).clamp_min(0)


def variance(moments: Moments) -> Tensor:
    """Return the variance of each target, (T,)."""
    return moments.around(moments.mean).diagonal()[len(moments.origin) :]


def fit(train: Moments, chosen_on: Moments) -> tuple[Tensor, Tensor]:
    """Fit a probe of each strength, and return mean and weight of the one with the least error on other tokens.

    That is chosen target by target.
    """
    width, mean = len(train.origin), train.mean
    covariance = train.around(mean)
    std = covariance.diagonal()[:width].clamp_min(0).sqrt()
    std = torch.where(std <= LEAST_STD * std.max(), torch.inf, std)[:, None]
    values, vectors = torch.linalg.eigh(covariance[:width, :width] / std / std.mT)
    rotated = vectors.mT @ (covariance[:width, width:] / std)  # (D, T)
    weights = [vectors @ (rotated / (values.clamp_min(0) + strength)[:, None]) / std for strength in STRENGTHS]
    best = torch.stack([squared_error(chosen_on, mean, weight) for weight in weights]).argmin(0)  # (T,)
    return mean, torch.stack([weights[place][:, target] for target, place in enumerate(best.tolist())], dim=1)


@dataclass(frozen=True)
class ProbedLayer:
    """How well row and column are read behind a layer."""

    name: str
    row: float  # R^2
    column: float
    error: float  # in patches, the mean of both

    @property
    def r2(self) -> float:
        """The mean of row and column."""
        return (self.row + self.column) / 2


@dataclass(frozen=True)
class Probe:
    """What was read in a model."""

    name: str
    layers: list[ProbedLayer]
    random: list[ProbedLayer]  # in the same architecture with random values
    pixels: ProbedLayer
    removed: list[ProbedLayer]  # of the output without position, by way


def coordinates(grid: Grid) -> Tensor:
    """Return row and column of each place in patches, from the middle: (N, 2)."""
    sides = (torch.arange(side, dtype=torch.float64) - (side - 1) / 2 for side in grid)
    return torch.cartesian_prod(*sides)


def read_layers(
    names: Sequence[str], features: Callable[[Tensor], Iterable[Tensor]], images: Tensor, grid: Grid
) -> list[ProbedLayer]:
    """Read the places of patches in features.

    Args:
        names: Of the layers.
        features: Yields the features (B, N, D) of images behind each layer.
        images: (n, C, H, W), from 0 to 255; every fifth is of one fold.
        grid: Rows and columns of patches.
    """
    folds: dict[str, dict[int, Moments]] = {}
    targets = coordinates(grid)
    for number in range(FOLDS):
        for batch in images[number::FOLDS].split(max(1, TOKENS // len(targets))):
            for name, values in zip(names, features(batch.float()), strict=True):
                of_layer = folds.setdefault(name, {})
                origin = of_layer[0].origin if of_layer else values.mean((0, 1))
                found = Moments.of(values.flatten(0, 1), targets.repeat(len(batch), 1), origin)
                of_layer[number] = of_layer[number] + found if number in of_layer else found
    return [_layer(name, list(of_layer.values())) for name, of_layer in folds.items()]


def _layer(name: str, folds: Sequence[Moments]) -> ProbedLayer:
    errors, totals = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for test in range(FOLDS):
        chosen_on, *train = (folds[(test + number) % FOLDS] for number in range(1, FOLDS))
        reader = fit(functools.reduce(operator.add, train), chosen_on)
        errors += folds[test].count * squared_error(folds[test], *reader)
        totals += folds[test].count * variance(folds[test])
    row, column = (1 - errors / totals).tolist()
    return ProbedLayer(name, row, column, float((errors / sum(fold.count for fold in folds)).sqrt().mean()))


def read_removed(model: Probed, images: Tensor, grid: Grid, directions: Sequence[int]) -> list[ProbedLayer]:
    """Read the places in the output without position; means and ridges are those of every second image, left out."""

    def output(some: Tensor) -> Tensor:
        return list(model.features(some.float()))[-1]

    batch = max(1, TOKENS // (grid[0] * grid[1]))
    seen, constant = [output(some) for some in images[::2].split(batch)], [output(torch.zeros_like(images[:1]))]
    ways = {f'{count} directions': dict(how='constant', directions=count) for count in directions}
    ways |= {way: dict(how=way) for way in ('ridge', 'mean')}
    removed = [remove_position(constant if 'directions' in way else seen, grid, **way) for way in ways.values()]

    def features(some: Tensor) -> Iterator[Tensor]:
        tokens = output(some)
        yield tokens
        yield from (without(tokens) for without in removed)

    return read_layers(['nothing', *ways], features, images[1::2], grid)


def probe_models(
    texts: Sequence[str],
    folder: Path,
    count: int = 200,
    size: Grid | None = None,
    grid: Grid | None = None,
    remove: Sequence[int] = (),
) -> list[Probe]:
    """Probe models.

    Args:
        texts: What `open_probed` takes.
        folder: Of images.
        count: How many of them.
        size: Height and width in pixels; by default each model's own, of at most 16 patches a side.
        grid: (rows, columns) of the PE in checkpoints, where that is no square.
        remove: How many directions of a constant image are taken out of the output, for `Probe.removed`.

    Raises:
        ConfigError: If a model is none that can be probed at this size.
        DataError: If there are too few images.
    """
    files = find_images(folder, count)
    return [_probe(open_probed(text, grid), files, size, remove) for text in texts]


def fit_removal(text: str, folder: Path, count: int, size: Grid | None, file: Path, grid: Grid | None = None) -> None:
    """Write a model's frozen weights with what its ``remove_position`` takes out, computed from images.

    Raises:
        ConfigError: If it has none, or cannot be probed at this size.
        DataError: If there are too few images.
    """
    model = open_probed(text, grid)
    if model.backbone.removal is None:
        raise ConfigError(
            f"--fit: {model.name} takes nothing out: give its backbone remove_position=dict(how='ridge')"
        )
    images, cells = _images(model, find_images(folder, count), size)
    batches = images.float().split(max(1, TOKENS // (cells[0] * cells[1])))
    model.backbone.fit_removal(map(model.normalised, batches), tuple(images.shape[-2:]))
    inside = ('removal', *outermost_frozen(model.backbone.train()))
    model.backbone.eval()
    kept = {
        key: value
        for key, value in model.backbone.state_dict().items()
        if any(f'{key}.'.startswith(f'{part}.' if part else '') for part in inside)
    }
    write_tensors(kept, file, 'state_dict', True, metadata_of(model.backbone))
    print(f'wrote {file}')


def _images(model: Probed, files: Sequence[Path], size: Grid | None) -> tuple[Tensor, Grid]:
    """Return the images of a model, and its grid."""
    side = model.vit.patch_size
    rows, columns = (min(cells, 16) for cells in model.vit.grid) if size is None else (-(-at // side) for at in size)
    if size not in (None, (rows * side, columns * side)):
        raise ConfigError(f'--size: {model.name} has patches of {side} pixels: such as {rows * side} {columns * side}')
    return read_images(files, (rows, columns), side), (rows, columns)


def _probe(model: Probed, files: Sequence[Path], size: Grid | None, remove: Sequence[int]) -> Probe:
    images, grid = _images(model, files, size)
    layers = [read_layers(one.stages(), one.features, images, grid) for one in (model, model.with_random_values())]
    (pixels,) = read_layers(['pixels'], lambda some: [patch_pixels(some, grid)], images, grid)
    return Probe(model.name, *layers, pixels, read_removed(model, images, grid, remove) if remove else [])


def write_probes(probes: Sequence[Probe], out: Path) -> None:
    """Print the table; write it, and R^2 by depth as a figure."""
    columns = ['model', 'layer', 'R² row', 'R² column', 'error in patches', 'R² random values', 'R² pixels']
    rows = [
        (probe.name, layer.name, layer.row, layer.column, layer.error, random.r2, probe.pixels.r2)
        for probe in probes
        for layer, random in zip(probe.layers, probe.random, strict=True)
    ]
    _write(columns, rows, 'Position in the features', out / 'probe.csv')
    if any(probe.removed for probe in probes):
        columns = ['model', 'taken out', *columns[2:5]]
        rows = [(probe.name, way.name, way.row, way.column, way.error) for probe in probes for way in probe.removed]
        _write(columns, rows, 'Position in the output without', out / 'removed.csv')
    figure, axes = new_axes((6.4, 4.2))
    axes.set(xlabel='depth, from the embedding (0) to the output (1)', ylabel='R² of row and column')
    for place, probe in enumerate(probes):
        drawn = look(place)
        depth = np.linspace(0, 1, len(probe.layers))
        axes.plot(depth, [layer.r2 for layer in probe.layers], **drawn, label=wrapped(probe.name, 44))
        axes.plot(depth, [layer.r2 for layer in probe.random], color='0.65', ls=drawn['ls'])
        axes.axhline(probe.pixels.r2, color='0.65', ls=':')
    axes.legend(title='grey: random values; dotted: pixels', frameon=False, fontsize=8)
    print(f'wrote {save_figure(figure, out / "probe.png")}, and beside it probe.csv')


def _write(columns: Sequence[str], rows: Sequence[tuple], title: str, file: Path) -> None:
    """Print a table and write it."""
    table = text_table(columns, [[*row[:2], *(f'{value:.3f}' for value in row[2:])] for row in rows], 2)
    console().print(console_table(table, title))
    write_csv(file, columns, rows)
