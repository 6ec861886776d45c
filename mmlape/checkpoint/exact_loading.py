"""Load a file of weights into a model exactly, an error for everything that does not fit; what that did.

Beside it how pixels are normalised: what a model does, and what its weights want. And how a backbone's checkpoint is
loaded, with filters for images of other channels, as timm makes them:

    one channel: sum_c w_c;    n of m channels: w_(i mod m) m / n

So a gray image has the outputs of its copies in three channels. A norm of the patches' values goes into the map behind
it first: its scale and shift are of channels, too.
"""

import contextlib
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any

import numpy as np
from torch import Tensor, nn

from mmlape.checkpoint.opening import AROUND, INSIDE, OpenedFile, not_finite, require_finite
from mmlape.console.log import log
from mmlape.errors import CheckpointError, ConfigError

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


@dataclass
class LoadReport:
    """What loading did."""

    path: str  # the file
    layout: str  # the recognised layout
    total: int = 0  # how many tensors the model has
    loaded: list[str] = field(default_factory=list)  # names that got the checkpoint's values
    renamed: str = ''  # how many tensors of a released model got other names, and whose they were
    new: list[str] = field(default_factory=list)  # names that keep their initial values, and may
    # names of the checkpoint that this model has no place for
    dropped: list[str] = field(default_factory=list)
    resized: dict[str, str] = field(default_factory=dict)  # name to 'from -> to'
    problems: list[str] = field(default_factory=list)  # what strict loading refuses
    # what loads, but is probably not what was meant
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what the file does not tell
    # of the images that the weights want; None if it is unknown
    normalisation: Normalisation | None = None

    def __str__(self) -> str:
        lines = [f'checkpoint {self.path} ({self.layout} layout): loaded {len(self.loaded)} of {self.total}']
        lines += [f'  {summary_of_resized(self.resized)}'] if self.resized else []
        lines += [f'  renamed: {self.renamed}'] if self.renamed else []
        lines += [f'  new: {summary(self.new)}'] if self.new else []
        lines += [f'  dropped: {summary(self.dropped)}'] if self.dropped else []
        lines += [f'  problem: {problem}' for problem in self.problems]
        lines += [f'  note: {note}' for note in self.notes]
        return '\n'.join(lines)


def summary(names: list[str]) -> str:
    """Join names with layer numbers left out: 'blocks.*.gamma1 (12)'."""
    groups = Counter(re.sub(r'\.\d+\.', '.*.', name) for name in names)
    return ', '.join(key if count == 1 else f'{key} ({count})' for key, count in groups.items())


def summary_of_resized(resized: dict[str, str]) -> str:
    """Return 'resized pos_embed: 14x14 -> 32x32' for names and what happened to them."""
    changes = {how: [name for name in resized if resized[name] == how] for how in dict.fromkeys(resized.values())}
    return '; '.join(f'resized {summary(names)}: {how}' for how, names in changes.items())


@contextlib.contextmanager
def unwrapped(model: nn.Module) -> Iterator[nn.Module]:
    """Lend a model without the wrappers around it and around its modules; they are the same modules, and stay so."""
    inner = _content(model)
    changed = []
    for parent in list(inner.modules()):
        for name, child in parent.named_children():
            content = _content(child)
            if content is not child:
                changed.append((parent, name, child))
                parent._modules[name] = content
    try:
        yield inner
    finally:
        for parent, name, child in changed:
            parent._modules[name] = child


def _content(module: nn.Module) -> nn.Module:
    """Return the model that a wrapper has, through any number of them."""
    while True:
        names = dict(module.named_children())
        inside = next((names[name] for name in INSIDE if name in names), None)
        if inside is None and set(names) == {AROUND} and _is_around(module):
            inside = names[AROUND]
        if inside is None:
            return module
        module = inside


def _is_around(module: nn.Module) -> bool:
    """Check for a class that stands for its ``module``; others may have one by that name."""
    known = ('DistributedDataParallel', 'DataParallel', 'AveragedModel', 'DeepSpeedEngine', 'BaseAveragedModel')
    return any(base.__name__.endswith(known) for base in type(module).__mro__)


def load_exactly(model: nn.Module, file: OpenedFile, strict: bool = True, fresh: Sequence[str] = ()) -> LoadReport:
    """Load a file of the same model, whose tensors have the model's names.

    Args:
        model: The model, also compiled, distributed or averaged.
        file: The file.
        strict: Refuse every difference; otherwise differences are only reported.
        fresh: Beginnings of the names of tensors that keep their initial values, such as
            ``head.layers.head.``, whether the file has them or not.

    Raises:
        CheckpointError: For no match at all, or, if ``strict``, any difference.
    """
    with unwrapped(model) as inner:
        require_memory(inner, file.path)
        report = LoadReport(file.path, 'complete model')
        tensors = without(below_prefix(file.tensors, inner, report), fresh, report)
        known = tuple(fresh)
        fill(inner, tensors, report, strict, may_be_new=lambda name: name.startswith(known), fresh=fresh)
    return report


def without(tensors: Mapping[str, Tensor], fresh: Sequence[str], report: LoadReport) -> dict[str, Tensor]:
    """Return tensors but for those whose names begin as ``fresh`` says, which the report gets."""
    report.dropped += [name for name in tensors if name.startswith(tuple(fresh))]
    return {name: value for name, value in tensors.items() if name not in report.dropped}


def require_memory(model: nn.Module, path: str) -> None:
    """Raise CheckpointError for a model on the meta device, into which nothing can be loaded."""
    if any(value.is_meta for value in model.state_dict(keep_vars=True).values()):
        raise CheckpointError(
            f'checkpoint {path}: the model is on the meta device, which has no memory for weights; '
            "build it without torch.device('meta')"
        )


def below_prefix(tensors: dict[str, Tensor], model: nn.Module, report: LoadReport) -> dict[str, Tensor]:
    """Leave out what stands before the model's names in a file with more around it, such as a LightningModule's."""
    names_of_model = list(model.state_dict())
    if not names_of_model or any(name in tensors for name in names_of_model):
        return tensors
    starts = [name.removesuffix(names_of_model[0]) for name in tensors if name.endswith(f'.{names_of_model[0]}')]
    starts = [start for start in starts if all(start + name in tensors for name in names_of_model)]
    if len(starts) != 1:
        return tensors
    (start,) = starts
    report.dropped += [name for name in tensors if not name.startswith(start)]
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}


def other_normalisation(report: LoadReport, model: nn.Module) -> str:
    """Say that a file's weights want images normalised otherwise than a model does it; '' if not."""
    wanted, of_model = report.normalisation, normalisation_of(model)
    if wanted is None or of_model is None or wanted.is_near(of_model):
        return ''
    return (
        f'its images were normalised with {wanted} ({wanted.source}), but model.data_preprocessor '
        f"has {of_model}: set the file's, unless you mean to train it to these"
    )


def fill(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    report: LoadReport,
    strict: bool = True,
    *,
    may_be_new: Callable[[str], bool] = lambda name: False,
    fresh: Sequence[str] = (),
    hint: Callable[[], str] = str,
) -> None:
    """Load tensors into a model, and log what that did.

    Args:
        model: The model.
        tensors: By the model's names.
        report: Gets what was loaded, and every difference.
        strict: Refuse differences; otherwise they are only reported.
        may_be_new: Whether a tensor of the model may keep its initial value.
        fresh: Beginnings of names of tensors that keep theirs, whether the file has them or not.
        hint: Returns what may explain differences, after a semicolon.

    Raises:
        CheckpointError: If nothing fits, values are not finite, or, if ``strict``, for any
            difference.
    """
    wanted = model.state_dict()
    report.total = len(wanted)
    matching = {}
    for name, value in tensors.items():
        if name not in wanted:
            report.problems.append(f'unexpected: {name} {tuple(value.shape)}')
        elif wanted[name].shape != value.shape:
            shapes = f'{tuple(value.shape)} in the file, {tuple(wanted[name].shape)} in the model'
            report.problems.append(f'wrong shape: {name} is {shapes}')
        elif wanted[name].is_floating_point() and not value.is_floating_point():
            report.problems.append(f'wrong type: {name} is {value.dtype}, quantised values whose scales are unknown')
        else:
            matching[name] = value
    absent = [name for name in wanted if name not in tensors]
    report.new += [name for name in absent if may_be_new(name)]
    report.problems += [f'missing: {name}' for name in absent if name not in report.new]
    lost = [name for name in report.new if name in report.dropped and not name.startswith(tuple(fresh))]
    if lost:
        report.problems.append(f'dropped and new: {summary(lost)}; the file has them, but not where such files do')
    report.loaded = list(matching)
    explained = hint() if report.problems else ''
    if not wanted.keys() & tensors.keys():
        raise CheckpointError(
            f'checkpoint {report.path}: none of its {len(tensors)} tensors fits the model; the '
            f'file has {sorted(tensors)[:3]}..., the model {list(wanted)[:3]}...{explained}'
        )
    if report.problems and (strict or not matching):
        shown = '\n  '.join(report.problems[:12])
        more = f'\n  ... and {len(report.problems) - 12} more' if len(report.problems) > 12 else ''
        raise CheckpointError(
            f'checkpoint {report.path} does not fit the model:\n  {shown}{more}\n'
            f'use the configuration that it was trained with{explained}'
        )
    masks = [name for name, value in model.named_buffers() if not_finite({name: value})]
    require_finite({name: v for name, v in matching.items() if name not in masks}, report.path)
    model.load_state_dict(matching, strict=False)
    log(str(report))
    for warning in report.warnings:
        log(f'checkpoint {report.path}: {warning}', logging.WARNING)


def require_grid(grid: Any, key: str) -> tuple[int, int]:
    """Return a grid of patches as (rows, columns); an integer is a square, NumPy's and torch's are integers too.

    Raises:
        ConfigError: If it is none.
    """
    try:
        sides = [index(side) for side in (grid if np.ndim(grid) else (grid, grid))]
    except (TypeError, ValueError):
        sides = []
    if len(sides) != 2 or min(sides) < 1:
        raise ConfigError(f'{key}={grid!r} is no grid: give (rows, columns) of patches')
    return sides[0], sides[1]


@dataclass(frozen=True)
class LoadOptions:
    """How a backbone's checkpoint is loaded."""

    # (rows, columns) of the stored PE, needed when it is not square
    grid: tuple[int, int] | None = None
    # load a checkpoint trained with LaPE into a model without it, or the reverse; of files with the
    # same keys, do not warn that they record another joining
    allow_joining_mismatch: bool = False
    # fit filters for images of 3 channels, or of 1, to those of the model
    adapt_channels: bool = False


OF_IMAGES = (1, 3)
"""Channels of the images that public weights read."""


def fit_channels(
    tensors: dict[str, Tensor], wanted: Mapping[str, Tensor], options: LoadOptions, report: LoadReport
) -> dict[str, Tensor]:
    """Return tensors whose filters of the image have the channels of a model's, ``wanted``; say how where not asked.

    A filter of the image is one of as many channels as images of public weights have, while the
    model's has others and the same shape else.
    """
    out = dict(tensors)
    for name, kernel in tensors.items():
        kernel_of_model = wanted.get(name)
        if kernel_of_model is None or not _reads_other_channels(kernel, kernel_of_model):
            continue
        have, channels = kernel.shape[1], kernel_of_model.shape[1]
        if not options.adapt_channels:
            report.problems.append(
                f'wrong channels: {name} reads images of {have}, and the model has '
                f'in_channels={channels}; adapt_channels=True (in init_cfg, or of '
                'mmlape.load_weights) sums or repeats its filters as timm does'
            )
            continue
        _fold_norm(out, name, kernel_of_model)
        out[name] = with_channels(out[name], channels)
        report.resized[name] = f'{have} -> {channels} channels'
    return out


def _reads_other_channels(kernel: Tensor, kernel_of_model: Tensor) -> bool:
    if kernel.ndim != 4 or kernel_of_model.ndim != 4 or kernel.shape[1] not in OF_IMAGES:
        return False
    same = kernel.shape[:1] + kernel.shape[2:] == kernel_of_model.shape[:1] + kernel_of_model.shape[2:]
    return same and kernel.shape[1] != kernel_of_model.shape[1]


def with_channels(kernel: Tensor, channels: int) -> Tensor:
    """Return a filter (D, C, P, P) of the image for other channels, of the sums that copies of a gray image have."""
    have, values = kernel.shape[1], kernel.float()
    if channels == 1:
        return values.sum(1, keepdim=True).to(kernel.dtype)
    repeated = values.repeat(1, math.ceil(channels / have), 1, 1)[:, :channels]
    return (repeated * (have / channels)).to(kernel.dtype)


def _fold_norm(tensors: dict[str, Tensor], name: str, kernel_of_model: Tensor) -> None:
    """Put scale and shift of the norm before a stem's map into the map; what is left of it is the identity."""
    stem = name.removesuffix('proj.weight')
    scale, shift = (tensors.get(f'{stem}norm0.{leaf}') for leaf in ('weight', 'bias'))
    if scale is None:
        return
    kernel = tensors[name]
    if shift is not None:
        moved = (kernel * shift.view(kernel.shape[1:])).flatten(1).sum(1)
        tensors[f'{stem}proj.bias'] = tensors[f'{stem}proj.bias'] + moved
        tensors[f'{stem}norm0.bias'] = shift.new_zeros(kernel_of_model[0].numel())
    tensors[name] = kernel * scale.view(kernel.shape[1:])
    tensors[f'{stem}norm0.weight'] = scale.new_ones(kernel_of_model[0].numel())
