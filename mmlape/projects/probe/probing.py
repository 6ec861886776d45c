"""Probe models, each with its controls; what a folder has measured before is not measured again."""

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

import mmlape
from mmlape.backbones import require_once
from mmlape.console import clock
from mmlape.errors import ConfigError, DataError, MMLaPEError, shown
from mmlape.files import read_json, write_json
from mmlape.lab.decoding import decode, encode
from mmlape.models.grid import Grid
from mmlape.projects.probe.images import Canvases, find_images, read_canvases
from mmlape.projects.probe.measure import COMPARED, FOLDS, Layer, Plan, Tick, measure, read_pixels
from mmlape.projects.probe.models import Probed, open_probed
from mmlape.quiet import say

MOST = 16
"""Patches a side of the trained size, unless ``--size`` asks for more."""
SHIFTS, CANVASES = (1, 4), (1.5, 2.0)
FORMAT = 1
"""Of a result; results of another one are measured again."""
INTERVAL = 5.0
"""Seconds between two lines of progress."""


@dataclass(frozen=True)
class Settings:
    """What is asked of all models."""

    images: Path
    count: int = 200
    size: Grid | None = None  # in pixels; None for each model's own, of at most ``MOST`` patches
    shifts: Sequence[int] = SHIFTS
    canvases: Sequence[float] = CANVASES
    control: bool = True  # whether each architecture is probed with random values, too


@dataclass
class Probe:
    """What was measured of a model."""

    name: str
    key: str  # of weights, images and settings
    grid: list[int]  # rows and columns
    patch: int
    depth: int
    width: int
    images: int
    enlarged: int
    is_random: bool
    normalisation: str
    seconds: float
    layers: list[Layer]
    pixels: Layer
    random: list[Layer] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def size(self) -> Grid:
        """Of an image in pixels."""
        return self.grid[0] * self.patch, self.grid[1] * self.patch


def read_probes(path: Path) -> list[Probe]:
    """Return the probes in a ``probe.json``.

    Raises:
        DataError: If it is none.
    """
    content = read_json(path) or {}
    if content.get('format') != FORMAT:
        raise DataError(f'{path} is no probe.json of this version: probe its models again')
    return decode(list[Probe], content.get('models', {}), path, 'models')


def write_probes(path: Path, probes: Sequence[Probe]) -> None:
    """Write ``probe.json``."""
    content = {'format': FORMAT, 'version': mmlape.__version__}
    write_json(path, content | {'models': encode(list(probes))})


def probe_models(texts: Sequence[str], settings: Settings, out: Path, grid: Grid | None = None) -> list[Probe]:
    """Probe models; results are in ``out / 'probe.json'`` as soon as each is there.

    Args:
        texts: What `open_probed` takes.
        settings: The same for all.
        out: The folder.
        grid: (rows, columns) of the PE in checkpoints, where that is no square.

    Raises:
        ConfigError: If an argument is given twice, or a model is none that can be probed.
        DataError: If there are too few images.
    """
    require_once(texts)
    files = find_images(settings.images, settings.count)
    opened = [open_probed(text, grid) for text in texts]
    plans = [plan_of(model, settings) for model in opened]
    for model, plan in zip(opened, plans):
        _try_out(model, plan)
    path = out / 'probe.json'
    before = {probe.key: probe for probe in read_probes(path)} if path.is_file() else {}
    probes: list[Probe] = []
    read: dict[tuple, Canvases] = {}
    for model, plan in zip(opened, plans):
        form = plan.largest(), model.patch_size, model.vit.in_channels
        read = {form: read.get(form) or read_canvases(files, *form)}  # those of the model before
        canvases = read[form]
        for file, reason in canvases.skipped:
            say(f'skipped: {file}: {reason}')
        key = _key(model, canvases, plan, settings.control)
        if key in before:
            say(f'{model.name}: measured before, in {path}')
        probes.append(before[key] if key in before else _probe(model, canvases, plan, settings, key))
        write_probes(path, probes)
    names = [probe.name for probe in probes]
    for probe, text in zip(probes, texts):
        if names.count(probe.name) > 1:
            probe.name = f'{probe.name} ({text})'
    write_probes(path, probes)
    return probes


def plan_of(model: Probed, settings: Settings) -> Plan:
    """Return what is measured of a model.

    Raises:
        ConfigError: If the size is not one of complete patches, or shifts leave no overlap.
    """
    grid, side = model.default_grid(MOST), model.patch_size
    if settings.size is not None:
        height, width = settings.size
        if height % side or width % side:
            raise ConfigError(
                f'--size {height} {width}: {model.name} has patches of {side} pixels: give '
                f'multiples of {side}, such as {max(1, round(height / side)) * side}'
            )
        grid = height // side, width // side
    most = max(settings.shifts, default=0)
    shifts = [shift for shift in settings.shifts if shift < min(grid) / 2]
    if most and not shifts:
        raise ConfigError(
            f'--shifts: {model.name} has {grid[0]} x {grid[1]} patches, of which a shift must leave '
            'more than half: give smaller ones, or a larger --size'
        )
    return Plan(grid, shifts, settings.canvases)


def _try_out(model: Probed, plan: Plan) -> None:
    """Run a model once on each canvas, before any time is spent.

    Raises:
        ConfigError: If it cannot, for whatever it raises.
    """
    side, channels = model.patch_size, model.vit.in_channels
    for size in (1.0, *plan.canvases):
        rows, columns = plan.canvas_grid(size)
        try:
            stages = list(model.features(torch.zeros(1, channels, rows * side, columns * side)))
            reason = '' if stages[0].shape[1] == rows * columns else f'it has {stages[0].shape[1]} patch tokens'
        except (MMLaPEError, RuntimeError, ValueError, AssertionError, IndexError, TypeError) as error:
            reason = shown(error)
        if reason:
            option = 'leave larger canvases out with --no-canvas' if size != 1 else 'give another --size'
            moved = f'its position encoding cannot be moved to {rows} x {columns} patches'
            raise ConfigError(f'{model.name}: {moved} ({reason}): {option}')


def _probe(model: Probed, canvases: Canvases, plan: Plan, settings: Settings, key: str) -> Probe:
    started = time.monotonic()
    layers = measure(model, canvases, plan, _progress(model, canvases, plan))
    random = None
    if settings.control and not model.is_random:
        other = model.with_random_values()
        random = measure(other, canvases, plan, _progress(other, canvases, plan))
    return Probe(
        model.name,
        key,
        list(plan.grid),
        model.patch_size,
        model.depth,
        model.vit.embed_dims,
        len(canvases),
        canvases.enlarged,
        model.is_random,
        f'{model.normalisation}, {model.normalisation.source}'.rstrip(', '),
        round(time.monotonic() - started, 1),
        layers,
        read_pixels(canvases, plan.grid),
        random,
    )


def _key(model: Probed, canvases: Canvases, plan: Plan, control: bool) -> str:
    """Return a hash of all that a result depends on, but for the code."""
    found = hashlib.sha256(canvases.pixels.tobytes())
    told = (
        mmlape.__version__,
        FORMAT,
        COMPARED,
        FOLDS,
        model.name,
        repr(model.backbone),
        sorted(model.backbone.arguments.items(), key=repr),
        model.normalisation,
        model.is_bgr,
        plan,
        control,
    )
    found.update(repr(told).encode())
    for name, value in model.backbone.state_dict().items():
        found.update(name.encode())
        found.update(value.contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()[:16]


def _progress(model: Probed, canvases: Canvases, plan: Plan) -> Tick:
    """Return what counts the tokens of each forward of a model, and tells every few seconds the time left."""
    compared = min(COMPARED, -(-len(canvases) // FOLDS))
    total = len(canvases) * math.prod(plan.grid) + compared * sum(math.prod(grid) for grid in plan.grids())
    done, started = 0, time.monotonic()
    last = started

    def tick(images: int, grid: Grid) -> None:
        nonlocal done, last
        done += images * math.prod(grid)
        if time.monotonic() - last >= INTERVAL:
            last = time.monotonic()
            left = (last - started) * (total - done) / done
            say(f'{model.name}: {done / total:.0%}, about {clock(left)} left of this model')

    return tick
