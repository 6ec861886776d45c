#!/usr/bin/env python
"""Why a ViT needs a position encoding: `python examples/explain_pe.py [IMAGE] [MODEL ...] --out DIR`.

Figures 1 to 11 of S. J. Callis' 'Position Embeddings for Vision Transformers, Explained' (2024), for any image, and
its claim on live models: without a position encoding attention is equivariant, f(Px) = P f(x) for a permutation P of
the patches, so a mean over the patches (or what a class token sees) does not change.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from PIL import Image
from rich.table import Table
from torch import Tensor

from mmlape.backbones import open_models
from mmlape.console.terminal import console
from mmlape.errors import ConfigError, DataError, MMLaPEError
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.position.absolute import sincos_1d
from mmlape.models.vit.model import VisionTransformer

IMAGES = ('.png', '.jpg', '.jpeg', '.bmp', '.webp', '.tif', '.tiff')
ARTICLE_SIZE = (60, 100)
TOKENS, WIDTH, LARGEST = 4, 9, 20
MEAN, STD = 0.45, 0.225
MARKED = 2  # the patch whose label is black
KINDS = {
    'none': dict(pe_type='none'),
    'default': dict(),
    'LaPE': dict(pe_joining='lape'),
    'relative only': dict(pe_type='rpe'),
}


def read_image(path: str | Path | None, patch: int) -> np.ndarray:
    """Read an image in grey, (H, W) in [0, 1], cropped to complete patches; a photograph of scikit-learn's by default.

    Raises:
        DataError: If the file is no image, or is smaller than a patch.
    """
    if path is None:
        from sklearn.datasets import load_sample_image

        photograph = Image.fromarray(load_sample_image('china.jpg')).convert('L').resize(ARTICLE_SIZE[::-1])
    else:
        try:
            photograph = Image.open(path).convert('L')
        except OSError as error:
            raise DataError(f'{path} cannot be read as an image: {error}') from error
    image = np.asarray(photograph, dtype=np.float64) / 255
    height, width = (side // patch * patch for side in image.shape)
    if not height or not width:
        raise DataError(f'{path or "the image"} of {image.shape[0]}x{image.shape[1]} is smaller than --patch {patch}')
    return image[:height, :width]


def to_patches(image: np.ndarray, patch: int) -> np.ndarray:
    """Cut (H, W) into (N, patch, patch), row by row."""
    height, width = image.shape
    cells = image.reshape(height // patch, patch, width // patch, patch)
    return cells.transpose(0, 2, 1, 3).reshape(-1, patch, patch)


def from_patches(patches: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Join (N, patch, patch) to (H, W); the inverse of ``to_patches``."""
    side = patches.shape[1]
    cells = patches.reshape(shape[0] // side, shape[1] // side, side, side)
    return cells.transpose(0, 2, 1, 3).reshape(shape)


def article_matrices(seed: int) -> dict[str, np.ndarray]:
    """Return the article's integers Q, K, V (4, 9), A = Q K^T and A V; with a suffix 's' after tokens 0 and 2 swap."""
    random = np.random.RandomState(seed)  # the generator of the article
    found = {name: random.randint(1, LARGEST, (TOKENS, WIDTH)) for name in 'QKV'}
    swapped = [2, 1, 0, 3]
    found |= {f'{name}s': matrix[swapped] for name, matrix in found.items()}
    for suffix in ('', 's'):
        found[f'A{suffix}'] = found[f'Q{suffix}'] @ found[f'K{suffix}'].T
        found[f'AV{suffix}'] = found[f'A{suffix}'] @ found[f'V{suffix}']
    found['A swapped'] = found['A'][swapped][:, swapped]
    found['AV swapped'] = found['AV'][swapped]
    return found


def write_figures(image: np.ndarray, patch: int, seed: int, folder: Path) -> list[Path]:
    """Draw figures 1 to 11 of the article.

    Args:
        image: (H, W) in [0, 1], of complete patches.
        patch: Side of a patch.
        seed: Of the order of the patches, and of the matrices.
        folder: Receives the files.
    """
    order = np.random.RandomState(seed).permutation(image.size // patch**2)
    patches = to_patches(image, patch)
    made = {
        '01_image': _grid_figure(image, patch, None),
        '02_patches': _grid_figure(image, patch, np.arange(len(patches))),
        '03_scrambled': _grid_figure(from_patches(patches[order], image.shape), patch, order),
    }
    found = article_matrices(seed)
    made['04_tokens'] = _matrices({name: found[name] for name in ('Q', 'K', 'V', 'Qs', 'Ks', 'Vs')}, rows=2)
    made['05_attention'] = _matrices({name: found[name] for name in ('A', 'As', 'A swapped')})
    made['06_output'] = _matrices({name: found[name] for name in ('AV', 'AVs', 'AV swapped')})
    table = sincos_1d(176, 768).numpy()
    made['07_sinusoids'] = _table(table, 'PuOr_r', (-1, 1))
    made['08_sinusoids_first'] = _table(table[:, :301], 'PuOr_r', (-1, 1))
    tokens = patches.reshape(len(patches), -1)
    encoding = sincos_1d(*tokens.shape).numpy()
    total = tokens + encoding
    total = (total - total.min()) / (total.max() - total.min())
    made['09_tokens'] = _table(tokens, 'Purples_r', (0, 1))
    made['10_encoding'] = _table(encoding, 'PuOr_r', (-1, 1))
    made['11_sum'] = _table(total, 'Purples_r', (0, 1))
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f'{name}.png' for name in made]
    for file, figure in zip(files, made.values()):
        figure.savefig(file, dpi=110)
    return files


def small_models(seed: int) -> dict[str, BaseBackbone]:
    """Return untrained ViTs, alike but for their position encoding."""
    arch, models = dict(embed_dims=96, num_layers=4, num_heads=4, feedforward_channels=192), {}
    for name, options in KINDS.items():
        torch.manual_seed(seed)
        model = VisionTransformer(arch, 80, 20, out_type='avg_featmap', **options).eval()
        for path, parameter in model.named_parameters():  # a table of zeros would encode nothing
            if path.endswith('relative_position_bias_table'):
                torch.nn.init.normal_(parameter)
        models[f'untrained ViT, PE {name}'] = model
    return models


@torch.no_grad()
def permutation_change(model: BaseBackbone, image: np.ndarray, seed: int) -> float:
    """Return how far a model's output moves when the patches of an image change places.

    Args:
        model: In evaluation mode.
        image: (H, W) in [0, 1]; it is resized to the grid of the model.
        seed: Of the new order.

    Returns:
        The largest change of the output (of its mean over tokens or cells, if it has them), relative to its largest
        value.
    """
    side = model.patch_size
    size = (model.grid[0] * side, model.grid[1] * side)
    grey = Image.fromarray(np.uint8(image * 255)).resize(size[::-1])
    values = (np.asarray(grey, dtype=np.float64) / 255 - MEAN) / STD
    patches = to_patches(values, side)
    order = np.random.RandomState(seed).permutation(len(patches))
    images = np.stack([values, from_patches(patches[order], size)])
    x = torch.from_numpy(images)[:, None].expand(-1, model.in_channels, -1, -1)
    one, other = _pooled(model.double()(x)[-1])
    model.float()
    return float((one - other).abs().max() / one.abs().max())


def _pooled(out: Tensor | tuple[Tensor, ...]) -> Tensor:
    """Return (B, D) of tokens (B, N, D), maps (B, D, H, W), one token or several."""
    if isinstance(out, tuple):
        return torch.cat(out, dim=-1)
    return out.flatten(2).mean(2) if out.ndim == 4 else out.mean(1) if out.ndim == 3 else out


def _grid_figure(image: np.ndarray, patch: int, labels: Sequence[int] | None) -> Figure:
    height, width = image.shape
    figure = Figure((8, 8 * height / width + 0.6), layout='constrained')
    ax = figure.subplots()
    ax.imshow(image, cmap='Purples_r', vmin=0, vmax=1)
    if labels is not None:
        ax.hlines(np.arange(patch, height, patch) - 0.5, -0.5, width - 0.5, color='w')
        ax.vlines(np.arange(patch, width, patch) - 0.5, -0.5, height - 0.5, color='w')
        for place, label in enumerate(labels):
            row, column = divmod(place, width // patch)
            x, y = (column + 0.5) * patch - 0.5, (row + 0.5) * patch - 0.5
            text = ax.text(
                x, y, str(label + 1), color='k' if label == MARKED else 'w', ha='center', va='center', size=16
            )
            text.set_path_effects([withStroke(linewidth=2, foreground='w' if label == MARKED else 'indigo')])
    return figure


def _matrices(matrices: dict[str, np.ndarray], rows: int = 1) -> Figure:
    columns = len(matrices) // rows
    figure = Figure((4.2 * columns, 2.4 * rows), layout='constrained')
    for ax, (name, matrix) in zip(figure.subplots(rows, columns).flat, matrices.items()):
        ax.imshow(matrix, cmap='Purples', aspect='auto', alpha=0.6)
        ax.set_title(name)
        _write_cells(ax, matrix)
    return figure


def _write_cells(ax: Axes, matrix: np.ndarray) -> None:
    ax.set(xticks=[], yticks=range(len(matrix)))
    for (row, column), value in np.ndenumerate(matrix):
        ax.text(column, row, str(value), ha='center', va='center', fontsize=8)


def _table(table: np.ndarray, colours: str, limits: tuple[float, float]) -> Figure:
    figure = Figure((9, 3.6), layout='constrained')
    ax = figure.subplots()
    image = ax.imshow(table, cmap=colours, vmin=limits[0], vmax=limits[1], aspect='auto', interpolation='nearest')
    ax.set(xlabel='channel', ylabel='token')
    figure.colorbar(image, ax=ax)
    return figure


def run(args: argparse.Namespace) -> None:
    """Write the figures, and print the table."""
    images = [text for text in args.subjects if text.lower().endswith(IMAGES)]
    models = [text for text in args.subjects if text not in images]
    if len(images) > 1 or args.patch < 1:
        raise ConfigError(f'give one image and --patch of 1 or more, not {images} and {args.patch}')
    image = read_image(images[0] if images else None, args.patch)
    opened = open_models(models) if models else small_models(args.seed)
    for file in write_figures(image, args.patch, args.seed, Path(args.out)):
        print(f'wrote {file}')
    table = Table('model', title='largest relative change of the output when patches change places')
    table.add_column('change', justify='right')
    for name, model in opened.items():
        table.add_row(name, f'{permutation_change(model, image, args.seed):.1e}')
    console().print(table)


def main(argv: Sequence[str] | None = None) -> int:
    """Read the arguments; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n\n')[2])
    add = parser.add_argument
    subjects = 'an image; models as `mmlape visualize-pe` takes them. Default: a photograph, four small untrained ViTs'
    add('subjects', nargs='*', metavar='IMAGE|MODEL', help=subjects)
    add('--patch', type=int, default=20, metavar='P', help='side of a patch of the figures (default: 20)')
    add('--seed', type=int, default=21, metavar='S', help='of the order of the patches (default: 21)')
    add('--out', required=True, metavar='DIR', help='receives the figures')
    try:
        run(parser.parse_args(argv))
    except MMLaPEError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
