"""What a probe measures of a model, by layer.

reading    R^2 = 1 - SSE / SST of row and column, by ridge regressions over five folds of images:
           three train, one chooses the strength, one measures; the error is its root mean square,
           in patches
share      of the features' variance that the place in the image explains, over images:
           sum_p |mean_i x_ip - mean x|^2 / (n sum |x|^2), without what n images give by chance
shift      d = sqrt(mean |a - b|^2 / (2 D)) and the cosine of the same patch's features a and b, in
           an image and in the same image moved by whole patches, where they overlap
roll       the same of an image whose patches are moved around its borders, so that all content
           stays
canvas     the same of an image alone and as the middle of a larger canvas; and R^2 of the probe of
           the trained size, if places are shares of the side, or counted from the corner

All distances are of standardised channels, so d is 1 for unrelated patches.
"""

import functools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from mmlape.lab.runs.schema import Metric
from mmlape.models.grid import Grid
from mmlape.projects.probe.images import Canvases, patch_pixels
from mmlape.projects.probe.models import Probed
from mmlape.projects.probe.ridge import Moments, Reader, fit, squared_error, variance

FOLDS = 5
TOKENS = 4096
"""Of one forward."""
COMPARED = 24
"""Images that are moved, rolled and put on canvases; all of one fold, which no probe has seen."""


@dataclass
class Reading:
    """How well a coordinate is read: R^2 over all images, of the lowest and highest fold, and the error."""

    r2: Metric
    low: Metric
    high: Metric
    error: float  # root mean square, in patches


@dataclass
class Change:
    """How different the features of the same content are."""

    distance: float  # 0 the same, 1 as two unrelated patches
    cosine: Metric


@dataclass
class Canvas:
    """What is kept on a larger canvas."""

    content: Change
    share_of_side: Metric  # R^2 of row and column, their mean
    from_corner: Metric


@dataclass
class Layer:
    """What is measured behind a layer."""

    name: str
    row: Reading
    column: Reading
    share: float
    shift: dict[str, Change] = field(default_factory=dict)  # by patches
    roll: dict[str, Change] = field(default_factory=dict)
    canvas: dict[str, Canvas] = field(default_factory=dict)  # by the size of the canvas

    @property
    def r2(self) -> float:
        """The mean of row and column."""
        return (self.row.r2 + self.column.r2) / 2

    @property
    def error(self) -> float:
        """The mean of row and column, in patches."""
        return (self.row.error + self.column.error) / 2


@dataclass(frozen=True)
class Plan:
    """What is measured: the grid, shifts in patches, and sizes of canvases."""

    grid: Grid
    shifts: Sequence[int]
    canvases: Sequence[float]

    def canvas_grid(self, size: float) -> Grid:
        """Return the grid of a canvas so many times as large."""
        return round(self.grid[0] * size), round(self.grid[1] * size)

    def largest(self) -> Grid:
        """Return the grid that holds all windows."""
        grids = [self.canvas_grid(size) for size in self.canvases]
        moved = 2 * max(self.shifts, default=0)
        grids.append((self.grid[0] + moved, self.grid[1] + moved))
        return max(rows for rows, _ in grids), max(columns for _, columns in grids)

    def grids(self) -> list[Grid]:
        """Return the grid of each forward that the compared images need."""
        return [self.grid] * (1 + 2 * len(self.shifts)) + [self.canvas_grid(size) for size in self.canvases]


Tick = Callable[[int, Grid], None]
"""Is called behind each forward, with its images and their grid."""


class _Statistics:
    """Sums over the images of one stage, a fold each, and over the images of each place."""

    def __init__(self, features: Tensor):
        count, width = features.shape[1:]
        origin = features.mean((0, 1))
        self.folds = [Moments(origin, 2) for _ in range(FOLDS)]
        self.places = torch.zeros(count, width, dtype=torch.float64)

    def add(self, features: Tensor, images: Sequence[int], targets: Tensor) -> None:
        """Count the features (B, N, D) of images; targets are of the places, (N, 2)."""
        for fold in range(FOLDS):
            chosen = [place for place, image in enumerate(images) if image % FOLDS == fold]
            if chosen:
                some = features[chosen]
                self.folds[fold].add(some.flatten(0, 1), targets.repeat(len(some), 1))
        self.places += features.double().sum(0)

    def measured(self, name: str) -> tuple[Layer, Reader]:
        """Return the readings, and the probe that has seen nothing of fold 0."""
        errors, totals, counts, readers = [], [], [], []
        for test in range(FOLDS):
            chosen_on = self.folds[(test + 1) % FOLDS]
            others = [self.folds[(test + number) % FOLDS] for number in range(2, FOLDS)]
            train = functools.reduce(operator.add, others)
            readers.append(fit(train, chosen_on))
            errors.append(squared_error(self.folds[test], readers[-1]))
            totals.append(variance(self.folds[test]))
            counts.append(self.folds[test].count)
        weights = torch.tensor(counts, dtype=torch.float64) / sum(counts)
        error, total = torch.stack(errors), torch.stack(totals)  # (folds, 2)
        mean = (weights[:, None] * error).sum(0)
        r2 = 1 - mean / (weights[:, None] * total).sum(0)
        of_folds = 1 - error / total
        columns = zip(*(part.tolist() for part in (r2, of_folds.amin(0), of_folds.amax(0), mean.sqrt())))
        return Layer(name, *(Reading(*column) for column in columns), self._share()), readers[0]

    def _share(self) -> float:
        total = functools.reduce(operator.add, self.folds)
        mean, std = total.statistics()
        images = total.count // len(self.places)
        means = (self.places / images - mean) / std  # (N, D)
        between = float((means**2).mean() * std.numel() / std.isfinite().sum())
        # means of n images vary by chance by 1 / n of the variance inside a place
        return max(0.0, (between - 1 / images) / (1 - 1 / images)) if images > 1 else between


def coordinates(grid: Grid) -> Tensor:
    """Return row and column of each place in patches, from the middle: (N, 2)."""
    sides = (torch.arange(side, dtype=torch.float64) - (side - 1) / 2 for side in grid)
    return torch.cartesian_prod(*sides)


def batches(images: Sequence[int], grid: Grid) -> Iterator[list[int]]:
    """Yield as many images at once as `TOKENS` allows."""
    size = max(1, TOKENS // (grid[0] * grid[1]))
    for start in range(0, len(images), size):
        yield list(images[start : start + size])


def read_pixels(canvases: Canvases, grid: Grid) -> Layer:
    """Return how well position is read in the pixels of single patches: what content alone tells."""
    ((layer, _),) = _read(lambda images: [patch_pixels(images, grid)], ['pixels'], canvases, grid)
    return layer


def measure(probed: Probed, canvases: Canvases, plan: Plan, tick: Tick) -> list[Layer]:
    """Return what is measured of each stage of a model."""
    measured = _read(probed.features, probed.stages(), canvases, plan.grid, tick)
    _compare(probed, canvases, plan, measured, tick)
    return [layer for layer, _ in measured]


def _read(
    features_of: Callable[[Tensor], Iterable[Tensor]],
    names: Sequence[str],
    canvases: Canvases,
    grid: Grid,
    tick: Tick = lambda images, grid: None,
) -> list[tuple[Layer, Reader]]:
    """Return how well position is read in the features of each stage, and the probe that has not seen fold 0."""
    statistics: list[_Statistics] = []
    for images in batches(range(len(canvases)), grid):
        for number, features in enumerate(features_of(canvases.windows(images, grid))):
            if number == len(statistics):
                statistics.append(_Statistics(features))
            statistics[number].add(features, images, coordinates(grid))
        tick(len(images), grid)
    return [one.measured(name) for name, one in zip(names, statistics, strict=True)]


def _compare(
    probed: Probed, canvases: Canvases, plan: Plan, measured: Sequence[tuple[Layer, Reader]], tick: Tick
) -> None:
    """Add what changes to the layers: of images of the fold that the probes have not seen."""
    grid, patch = plan.grid, canvases.patch
    of_fold = range(0, len(canvases), FOLDS)
    smallest = max([grid, *(plan.canvas_grid(size) for size in plan.canvases)])
    found: dict[tuple, list[Tensor]] = defaultdict(list)  # by kind, shift or size, and layer: a row a patch
    for images in batches(of_fold[:COMPARED], smallest):
        window = canvases.windows(images, grid)
        base = [features.unflatten(1, grid) for features in probed.features(window)]
        tick(len(images), grid)
        for shift in plan.shifts:
            for number, features in enumerate(probed.features(canvases.windows(images, grid, shift))):
                before = base[number][:, shift:, shift:]
                after = features.unflatten(1, grid)[:, : grid[0] - shift, : grid[1] - shift]
                found['shift', shift, number].append(_changes(before, after, measured[number][1]))
            tick(len(images), grid)
            rolled = window.roll((shift * patch, shift * patch), (2, 3))
            for number, features in enumerate(probed.features(rolled)):
                after = features.unflatten(1, grid).roll((-shift, -shift), (1, 2))
                found['roll', shift, number].append(_changes(base[number], after, measured[number][1]))
            tick(len(images), grid)
        for size in plan.canvases:
            large = plan.canvas_grid(size)
            row, column = (b - a for a, b in zip(canvases.corner(large), canvases.corner(grid)))
            for number, features in enumerate(probed.features(canvases.windows(images, large))):
                reader = measured[number][1]
                same = features.unflatten(1, large)[:, row : row + grid[0], column : column + grid[1]]
                found['canvas', size, number].append(_changes(base[number], same, reader))
                found['read', size, number].append(_squares(features, large, grid, reader))
            tick(len(images), large)
    means = {key: torch.cat(parts).mean(0).tolist() for key, parts in found.items()}
    for number, (layer, _) in enumerate(measured):
        for shift in plan.shifts:
            layer.shift[str(shift)] = _change(means['shift', shift, number])
            layer.roll[str(shift)] = _change(means['roll', shift, number])
        for size in plan.canvases:
            large = plan.canvas_grid(size)
            totals = coordinates(large).var(0, correction=0)
            scale = torch.tensor(_scale(large, grid), dtype=torch.float64)
            share, corner = torch.tensor(means['read', size, number], dtype=torch.float64).split(2)
            layer.canvas[f'{size:g}'] = Canvas(
                _change(means['canvas', size, number]),
                float((1 - share / (totals * scale**2)).mean()),
                float((1 - corner / totals).mean()),
            )


def _scale(large: Grid, grid: Grid) -> tuple[float, float]:
    """Return the size of a patch of a canvas in those of the trained size, if places are shares of the side."""
    return grid[0] / large[0], grid[1] / large[1]


def _changes(before: Tensor, after: Tensor, reader: Reader) -> Tensor:
    """Return |a - b|^2 / D and the cosine of features (B, rows, columns, D), standardised: (B * N, 2)."""
    a, b = (((part.flatten(0, 2).double() - reader.mean) / reader.std) for part in (before, after))
    width = reader.std.isfinite().sum()
    return torch.stack(((a - b).square().sum(1) / width, F.cosine_similarity(a, b, dim=1)), dim=1)


def _change(means: Sequence[float]) -> Change:
    return Change((means[0] / 2) ** 0.5, means[1])


def _squares(features: Tensor, large: Grid, grid: Grid, reader: Reader) -> Tensor:
    """Return the squared errors of rows and columns, as shares of the side and from the corner: (B * N, 4)."""
    found = reader.read(features)  # (B, N, 2)
    places = coordinates(large)
    stretched = places * torch.tensor(_scale(large, grid), dtype=torch.float64)
    corner = places + torch.tensor([(side - own) / 2 for side, own in zip(large, grid)], dtype=torch.float64)
    both = torch.cat(((found - stretched).square(), (found - corner).square()), dim=2)
    return both.flatten(0, 1)
