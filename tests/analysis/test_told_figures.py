"""What figures of models and of runs show, and the numbers that are printed beside them."""

import numpy as np
import pytest
from model_helpers import ARCH, filled, new_vit, swin
from PIL import Image
from synthetic import settings, write_log, write_run
from told import assert_told, keep_figures

from mmlape.cli import main
from mmlape.lab.runs.curves import plot_run
from mmlape.lab.training.hooks.gradient_norm import TAG
from mmlape.projects.pe_figures.balance import measure_models, write_balance
from mmlape.projects.pe_figures.position import numbers_table, write_figures


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv('COLUMNS', '180')


@pytest.fixture
def figures(monkeypatch):
    return keep_figures(monkeypatch)


def shown(figures: dict[str, str]) -> str:
    return '\n'.join(f'{name}\n{text}' for name, text in sorted(figures.items()))


def test_position_encodings(figures, tmp_path, capsys):
    models = {
        'LaPE, $p$ and dual': filled(new_vit(arch=ARCH, pe_joining='lape', patch_norm='dual')),
        'relative': filled(new_vit(arch=ARCH, pe_type='rpe')),
    }
    views, files = write_figures(models, tmp_path)
    numbers_table(views)
    arrays = dict(np.load(tmp_path / 'position.npz'))
    kept = [
        f'{name} {value.shape} {value.ravel()[:3].round(3).tolist()}'
        for name, value in sorted(arrays.items())
        if value.dtype.kind == 'f'
    ]
    names = ' '.join(file.name for file in files)
    assert_told('position', '\n'.join([shown(figures), *kept, names, capsys.readouterr().out]))
    figures.clear()
    views, _ = write_figures({'stages': filled(swin(pe_type='learnable', pe_joining='lape'))}, tmp_path)
    numbers_table(views)
    assert_told('position-of-stages', shown(figures) + capsys.readouterr().out)


def test_balance(figures, tmp_path, capsys):
    values = np.arange(40 * 40 * 3).reshape(40, 40, 3) * 7 % 251
    Image.fromarray(values.astype(np.uint8)).save(tmp_path / 'a.png')
    models = {
        'LaPE': filled(new_vit(arch=ARCH, pe_joining='lape')),
        'shared': filled(new_vit(arch=ARCH, pe_joining='shared')),
    }
    write_balance(measure_models(models, [str(tmp_path / 'a.png')]), tmp_path)
    assert_told('balance', shown(figures) + capsys.readouterr().out)


def test_gradient_norms_and_curves(figures, tmp_path, capsys):
    for arm, joining in (('plain $x$', 'default'), ('lape', 'lape')):
        for seed in (1, 2):
            work_dir = write_run(tmp_path / 'runs' / arm, seed, 40.0, chosen=settings(joining))
            parts = ('patch_embed', 'position', 'blocks.0', 'blocks.1', 'backbone', 'heads', 'all')
            rows = [
                {f'{TAG}{part}': (k + 1) * (1 + 0.1 * seed) / step for k, part in enumerate(parts)}
                | {'loss': 3 / step, 'iter': step, 'step': step}
                for step in range(1, 13)
            ]
            write_log(work_dir, [*rows, {'mIoU': 30.0 + seed, 'aAcc': 70.0, 'step': 6}, {'mIoU': 35.0, 'step': 12}])
    assert main(['plot-grad-norms', str(tmp_path / 'runs'), '--out', str(tmp_path / 'norms.png')]) == 0
    assert plot_run(work_dir) == work_dir / 'curves.png'
    assert_told('gradient-norms', shown(figures) + capsys.readouterr().out, folder=tmp_path)


@pytest.mark.parametrize('values', [(-0.5,), (2.0,), (1.0, -3.0, -2.0), (0.0, 4.0)])
def test_no_point_of_a_curve_is_cut(values, monkeypatch, tmp_path):
    """A negative loss, a single point, which has a marker, and a first one at zero."""
    drawn = []
    monkeypatch.setattr('mmlape.lab.runs.curves.save_figure', lambda figure, path: drawn.append(figure))
    work_dir = write_run(tmp_path / 'runs', 1, 40.0)
    first = values[0] != 0
    write_log(work_dir, [{'loss': value, 'iter': step, 'step': step} for step, value in enumerate(values, first)])
    plot_run(work_dir)
    (axes, _), (line,) = drawn[0].axes, drawn[0].axes[0].lines
    low, high = axes.viewLim.get_points()
    assert (line.get_xydata()[:, 1] > low[1] - (min(values) > 0)).all() and (line.get_xydata() < high).all()
    assert (line.get_xydata()[:, 0] > low[0] - first).all() and axes.viewLim.height > 0
    assert (line.get_marker() != 'None') == (len(values) == 1)
