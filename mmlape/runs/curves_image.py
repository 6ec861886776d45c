"""The curves of one run as a picture in its work dir: training loss and validation metrics over the iterations."""

from pathlib import Path

from matplotlib.figure import Figure

from mmlape.evaluation.names import RANKING, label
from mmlape.runs.curves import loss_band, metric_band, read_curves

PICTURE = 'curves.png'


def plot_run(work_dir: str | Path) -> Path | None:
    """Draws training loss and validation metrics over the iterations into ``work_dir/curves.png``.

    Args:
        work_dir: Of a run; what was logged is in ``*/vis_data/scalars.json``.

    Returns:
        The picture; None if no loss was logged.
    """
    curves = read_curves(work_dir)
    loss = loss_band([curves])
    if loss is None:
        return None
    figure = Figure(figsize=(9.6, 3.6), layout='constrained')
    left, right = figure.subplots(1, 2)
    left.plot(loss.steps, loss.mean, lw=1.5)
    left.set(xlabel='iteration', ylabel='training loss')
    left.set_ylim(bottom=0)
    known = [name for name in RANKING if name in curves.metrics]
    for name in known:
        band = metric_band([curves], name)
        right.plot(band.steps, band.mean, 'o-', ms=4, lw=1.5, label=label(name))
    right.set(xlabel='iteration', ylabel='validation, points')
    if known:
        right.legend(frameon=False)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.spines[['top', 'right']].set_visible(False)
        axes.set_xlim(left=0)
    path = Path(work_dir) / PICTURE
    figure.savefig(path, dpi=110)
    return path
