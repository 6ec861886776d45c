"""What encodings inside attention add to the logits of one patch, as maps over the keys (iRPE, ICCV 2021, Figure 5).

A contextual term depends on the queries, so it is the mean over given images and heads, taken from
the live model; a bias is the same for every image.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from mmlape.checkpoint.exact_loading import IMAGENET
from mmlape.console.figures import save_figure, wrapped
from mmlape.errors import ConfigError
from mmlape.files import atomic_path
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.grid import Grid
from mmlape.projects.pe_figures.position import attended_grids


def read_images(paths: Sequence[str | Path], model: BaseBackbone) -> Tensor:
    """Read images, resized to the grid of the model's PE and normalised as ImageNet's are, (B, C, H, W).

    Without any, a mean colour. A backbone does not say how its images were normalised; big_vision's form has 127.5
    for both.

    Raises:
        ConfigError: If a file is no image, or the model takes no colour images.
    """
    rows, columns = (side * model.patch_size for side in model.grid)
    if not paths:
        return torch.zeros(1, model.in_channels, rows, columns)
    if model.in_channels != 3:
        raise ConfigError(f'--images: the model takes images of {model.in_channels} channels, not 3; leave it out')
    images = []
    mean = torch.tensor(IMAGENET.mean)
    std = torch.tensor(IMAGENET.std)
    for path in paths:
        try:
            with Image.open(path) as image:
                pixels = np.asarray(image.convert('RGB').resize((columns, rows), Image.Resampling.BICUBIC))
        except OSError as error:
            raise ConfigError(f'--images {path} cannot be read as an image: {error}') from error
        images.append((torch.from_numpy(pixels.astype(np.float32)) - mean) / std)
    return torch.stack(images).permute(0, 3, 1, 2).contiguous()


@torch.no_grad()
def bias_terms(model: BaseBackbone, images: Tensor) -> list[Tensor | None]:
    """Return what the encodings inside each layer's attention add to its logits, (N, N), or None.

    The mean over images (B, C, H, W), windows and heads, of the patches only; the model is in
    evaluation mode.
    """
    found: list[Tensor | None] = [None] * model.num_layers

    def record(number: int, encoding):
        def logits(attn, q, k, grid, *tokens):
            term = type(encoding).logits(encoding, attn, q, k, grid, *tokens)
            if term is not None:
                first = encoding.slot.num_prefix
                mean = term.double().mean((0, 1))[first:, first:]
                found[number] = mean if found[number] is None else found[number] + mean
            return term

        return logits

    encodings = [(i, one) for i, layer in enumerate(model.all_layers) for one in layer.attention.encodings]
    for number, encoding in encodings:
        encoding.logits = record(number, encoding)
    try:
        model(images)
    finally:
        for _, encoding in encodings:
            del encoding.logits
    return found


def write_bias_maps(
    name: str,
    model: BaseBackbone,
    folder: Path,
    layers: Sequence[int],
    cells: Sequence[Grid],
    paths: Sequence[str] = (),
) -> list[Path]:
    """Write ``bias_maps.png``, a row a layer and a column a reference cell, and ``bias_maps.npz``.

    Args:
        name: Of the model, in the title and in messages.
        model: In evaluation mode.
        folder: Of the files.
        layers: Counted from 0; none for all.
        cells: Patches whose queries are shown, (row, column) from 0; none for the centre.
        paths: Images; see ``read_images``.
    """
    layers = list(layers) or list(range(model.num_layers))
    if not all(0 <= layer < model.num_layers for layer in layers):
        raise ConfigError(f'--layers: choose from 0 to {model.num_layers - 1}')
    terms, grids = (bias_terms(model, read_images(paths, model)), attended_grids(model, model.grid))
    columns = max(1, len(cells))
    figure = Figure((2.6 * columns, 0.4 + 2.7 * len(layers)), layout='constrained')
    figure.suptitle(wrapped(name, 36 * columns), fontsize=8)
    axes = figure.subplots(len(layers), columns, squeeze=False)
    arrays = {}
    for row, layer in zip(axes, layers):
        if terms[layer] is None:
            raise ConfigError(f'{name}: no position encoding adds to the logits of layer {layer}')
        grid = grids[layer]
        for ax, cell in zip(row, cells or [(grid[0] // 2, grid[1] // 2)]):
            if not (0 <= cell[0] < grid[0] and 0 <= cell[1] < grid[1]):
                raise ConfigError(f'--cells {cell[0]},{cell[1]} is outside the grid of {grid[0]} x {grid[1]}')
            shown = terms[layer][cell[0] * grid[1] + cell[1]].view(grid).cpu().numpy()
            arrays[f'layer{layer}_cell{cell[0]}_{cell[1]}'] = shown
            figure.colorbar(ax.imshow(shown, cmap='viridis', interpolation='nearest'), ax=ax)
            ax.plot(cell[1], cell[0], marker='*', color='white', ms=9, mec='black')
            ax.set_title(f'layer {layer}, patch {cell[0]},{cell[1]}', fontsize=8)
            ax.set_axis_off()
    files = [folder / 'bias_maps.png', folder / 'bias_maps.npz']
    save_figure(figure, files[0])
    with atomic_path(files[1]) as partial:
        np.savez_compressed(partial, **arrays)
    return files
