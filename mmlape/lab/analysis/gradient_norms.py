"""Figures of the gradient norms that `GradientNormHook` logged: by depth and by iteration (DPN, Figures 2 and 4)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mmlape.console.figures import look, save_figure, tidy, wrapped
from mmlape.errors import DataError
from mmlape.lab.runs.curves import log_files, read_scalars
from mmlape.lab.runs.identity import read_identity
from mmlape.lab.runs.schema import Identity
from mmlape.lab.training.hooks.gradient_norm import TAG

LAST = 1000  # iterations that the norm by depth is averaged over, as in the paper
# parts with no place between input and output
WITHOUT_DEPTH = ('position', 'backbone', 'heads', 'all')
TITLES = {'patch_embed': 'patch embedding'}

Norms = dict[int, dict[str, float]]
"""Norm of each part at each iteration."""


@dataclass
class GradientNorms:
    """The gradient norms of the runs of one method."""

    name: str
    # the model's size and patches, such as 'deit-base/16'; '' where the runs did not record it
    model: str = ''
    runs: dict[Path, Norms] = field(default_factory=dict)  # the norms of each run's folder

    @property
    def parts(self) -> list[str]:
        """The parts of the network, from input to output."""
        first_run = next(iter(self.runs.values()))
        first_step = next(iter(first_run.values()))
        return list(first_step)

    def by_depth(self, last: int) -> np.ndarray:
        """Average each part's norm over the last iterations; (runs, parts)."""
        means = []
        for norms in self.runs.values():
            kept = [values for step, values in norms.items() if step > max(norms) - last]
            means.append([np.mean([values[part] for values in kept]) for part in self.parts])
        return np.array(means)

    def over_time(self, part: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the iterations that all runs have, (T,), and the norms of a part, (runs, T)."""
        steps = sorted(set.intersection(*(set(norms) for norms in self.runs.values())))
        return np.array(steps), np.array([[norms[step][part] for step in steps] for norms in self.runs.values()])


def read_norms(work_dirs: Sequence[str | Path]) -> list[GradientNorms]:
    """Read every run below some folders.

    Runs in folders named ``seed_*`` belong to the arm of their parent folder. Arms of one name in
    two folders stay apart, and are named by their paths.

    Raises:
        DataError: A folder has no logged gradient norms, or an arm's runs are of models with other
            layers.
    """
    arms: dict[Path, GradientNorms] = {}
    for work_dir in work_dirs:
        found = False
        runs = {file.parents[2] for file in Path(work_dir).resolve().rglob('vis_data/scalars.json')}
        for file in (file for run in sorted(runs) for file in log_files(run)):
            norms, run = _read_file(file), file.parents[2]
            if norms:
                found = True
                folder = run.parent if run.name.startswith('seed_') else run
                arm = arms.get(folder) or arms.setdefault(folder, GradientNorms(folder.name, _model_of(run)))
                arm.runs.setdefault(run, {}).update(norms)
        if not found:
            raise DataError(f'{work_dir} has no run with gradient norms: train with --log-grad-norm')
    names = [arm.name for arm in arms.values()]
    for folder, arm in arms.items():
        arm.name = str(folder) if names.count(folder.name) > 1 else folder.name
        if any(list(values) != arm.parts for norms in arm.runs.values() for values in norms.values()):
            raise DataError(f'{arm.name}: its runs, or iterations of one, have other parts, so their models differ')
    return list(arms.values())


def _model_of(run: Path) -> str:
    """Return size and patches of a run's backbone: 'deit-base/16', or '2x64/7' (layers x width) if it has no name."""
    settings = (read_identity(run) or Identity()).settings or {}
    backbone = (settings.get('model') or {}).get('backbone') or {}
    arch = backbone.get('arch', '')
    if isinstance(arch, dict):
        arch = f'{arch.get("num_layers") or arch.get("depths")}x{arch.get("embed_dims")}'
    return f'{arch}/{backbone["patch_size"]}' if arch and 'patch_size' in backbone else arch


def _read_file(file: Path) -> Norms:
    norms: Norms = {}
    for row in read_scalars(file):
        if f'{TAG}all' in row:
            norms[row['step']] = {key.removeprefix(TAG): row[key] for key in row if key.startswith(TAG)}
    return norms


def plot_norms(arms: Sequence[GradientNorms], path: str | Path, last: int = LAST) -> None:
    """Plot norm against depth, and the patch embedding's norm against the iteration.

    A colour for each arm. The two stand side by side for one model, as in Figure 2. Several models
    have a column each, as in Figure 4. Lines are means over an arm's runs, bands and bars their
    sample standard deviation. The norm by depth is the mean of the ``last`` iterations.
    """
    models = list(dict.fromkeys(arm.model for arm in arms))
    if len(models) == 1:
        figure = Figure(figsize=(11, 4.2), layout='constrained')
        panels = [figure.subplots(1, 2)]
    else:
        figure = Figure(figsize=(5.5 * len(models), 8.4), layout='constrained')
        panels = figure.subplots(2, len(models), sharey='row').T
    for model, (depth, time) in zip(models, panels):
        _plot_model([arm for arm in arms if arm.model == model], depth, time, last)
        if len(models) > 1:
            depth.set_title(f'{model or "model not recorded"}, {depth.get_title()}')
    save_figure(figure, Path(path))


def _plot_model(arms: Sequence[GradientNorms], left: Axes, right: Axes, last: int) -> None:
    """Plot the arms of one model: by depth, and the first part's over the iterations."""
    for number, arm in enumerate(arms):
        count, drawn = len(arm.runs), look(number)
        label = wrapped(f'{arm.name} ({count} run{"s" * (count != 1)})', 60)
        _plot_depth(left, arm, last, **drawn, label=label)
        steps, norms = arm.over_time(arm.parts[0])
        mean, spread = norms.mean(0), _spread(norms)
        right.plot(steps, mean, **dict(drawn, marker=''), label=label)
        bounds = np.maximum(mean - spread, mean / 100), mean + spread
        right.fill_between(steps, *bounds, color=drawn['color'], alpha=0.2, lw=0)
    length = max(max(norms) for arm in arms for norms in arm.runs.values())
    title = f'mean of the last {min(last, length)} iterations'
    left.set(title=title, xlabel='patch embedding, then layers', ylabel='gradient norm')
    right.set(title=TITLES.get(arms[0].parts[0], arms[0].parts[0]), xlabel='iteration', ylabel='gradient norm')
    tidy(left, right)
    for axes in (left, right):
        axes.set_yscale('log')
    left.legend(frameon=False, fontsize=8, loc='upper center', bbox_to_anchor=(0.5, -0.15))


def _plot_depth(axes: Axes, arm: GradientNorms, last: int, **style) -> None:
    means = arm.by_depth(last)
    shown = [place for place, part in enumerate(arm.parts) if part not in WITHOUT_DEPTH] or [arm.parts.index('all')]
    mean, spread = means.mean(0)[shown], _spread(means)[shown]
    axes.errorbar(range(len(shown)), mean, np.minimum(spread, 0.99 * mean), capsize=3, **style)
    names = (arm.parts[place].removeprefix('blocks.') for place in shown)
    axes.set_xticks(range(len(shown)), ['patches' if name == 'patch_embed' else name for name in names])


def _spread(values: np.ndarray) -> np.ndarray:
    return values.std(0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
