"""What a probe takes: plain ViTs, which have the tokens of one grid in all layers, and images of that shape."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from PIL import Image, ImageOps
from torch import Tensor

from mmlape.backbones import open_model
from mmlape.checkpoint.exact_loading import IMAGENET, Normalisation
from mmlape.console.quiet import say
from mmlape.errors import ConfigError, DataError, shown
from mmlape.lab.datasets.folders import files_below, is_image
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.grid import Grid

STEPS = ('embed', 'run_layers', 'split_prefix', 'normed')
"""What a ViT offers whose layers all have the tokens of one grid, as the adapter asks it."""
WEIGHTS = ('init_cfg', 'pretrained', 'checkpoint')
"""Arguments that name weights."""


@dataclass(frozen=True)
class Probed:
    """A model to probe."""

    name: str
    backbone: BaseBackbone  # in evaluation mode
    normalisation: Normalisation
    is_bgr: bool = False  # the order of the channels that the model takes

    @property
    def vit(self) -> Any:
        """The ViT, or that below an adapter."""
        return getattr(self.backbone, 'plain_vit', self.backbone)

    def stages(self) -> list[str]:
        """Return the names of what `features` yields."""
        return ['embedding', *(f'layer {number}' for number in range(self.vit.num_layers)), 'output']

    @torch.inference_mode()
    def features(self, images: Tensor) -> Iterator[Tensor]:
        """Yield the patch tokens (B, N, D) of images (B, C, H, W), from 0 to 255.

        Of the embedding, before any layer; behind each layer; and of the last one behind the final
        norm, where there is one.
        """
        vit = self.vit
        x, first, hw = vit.embed(self.normalised(images))
        yield vit.split_prefix(x)[1]
        state = first
        for number in range(vit.num_layers):
            x, state = vit.run_layers(x, state, hw, number, number + 1)
            yield vit.split_prefix(x)[1]
        yield vit.split_prefix(vit.normed(x, True, first))[1]

    def normalised(self, images: Tensor) -> Tensor:
        """Return images, from 0 to 255, as the backbone gets them."""
        mean, std = (
            torch.tensor(values)[:, None, None] for values in (self.normalisation.mean, self.normalisation.std)
        )
        return ((images.flip(1) if self.is_bgr else images) - mean) / std

    def with_random_values(self) -> 'Probed':
        """Return the same architecture with initial values of a fixed seed."""
        arguments = {key: value for key, value in self.backbone.arguments.items() if key not in WEIGHTS}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(2603)
            backbone = type(self.backbone)(**arguments).eval()
        return Probed(f'{self.name}, random values', backbone, self.normalisation, self.is_bgr)


def open_probed(text: str, grid: Grid | None = None) -> Probed:
    """Build the model that an argument of the command line means.

    Args:
        text: What ``open_model`` takes.
        grid: (rows, columns) of the PE in a checkpoint, where that is no square.

    Raises:
        ConfigError: If there is no such model, or it has no patch tokens on one grid.
        CheckpointError: If a file is missing, unreadable or of another model.
    """
    opened = open_model(text, grid=grid)
    of_weights = opened.model.load_report and opened.model.load_report.normalisation
    probed = Probed(opened.name, opened.model, *(_of_config(opened.config or Config()) or [of_weights or IMAGENET]))
    if not all(hasattr(probed.vit, step) for step in STEPS):
        raise ConfigError(
            f'{probed.name}: {type(probed.vit).__name__} has no patch tokens on one grid in all layers, '
            'which a probe reads: give a plain ViT, ours or of timm'
        )
    if len(probed.normalisation.mean) != 3:
        raise ConfigError(f'{probed.name}: it takes {probed.vit.in_channels} channels, and a probe reads colour')
    return probed


def _of_config(cfg: Config) -> tuple[Normalisation, bool] | None:
    """Return how a config normalises images, and whether its model takes blue first; None if it does not say."""
    preprocessor = cfg.get('model', {}).get('data_preprocessor') or cfg.get('data_preprocessor') or {}
    if not preprocessor.get('mean') or not preprocessor.get('std'):
        return None
    mean, std = (tuple(map(float, preprocessor[key])) for key in ('mean', 'std'))
    is_rgb = preprocessor.get('bgr_to_rgb') or preprocessor.get('to_rgb')
    return Normalisation(mean, std, 'its config'), len(mean) == 3 and not is_rgb


def find_images(folder: str | Path, count: int) -> list[Path]:
    """Return so many images of a folder and those below it, spread evenly over their sorted names.

    Raises:
        DataError: If there is no such folder.
    """
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f'{root}: no such folder of images: give --images DIR; `mmlape make-mini-data` makes one')
    names = sorted(name for name in files_below(str(root)) if is_image(name))
    places = np.linspace(0, len(names) - 1, min(count, len(names))).round().astype(int)
    return [root / names[place] for place in places]


def read_images(files: Sequence[Path], grid: Grid, patch: int) -> Tensor:
    """Return images (n, 3, rows * patch, columns * patch), from 0 to 255; files that cannot be read are skipped.

    Raises:
        DataError: If there are fewer than ten.
    """
    height, width, found = grid[0] * patch, grid[1] * patch, []
    for file in files:
        try:
            with Image.open(file) as opened:
                image = ImageOps.exif_transpose(opened).convert('RGB')
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            say(f'skipped: {file}: {shown(error)}')
            continue
        fitted = ImageOps.fit(image, (width, height), Image.Resampling.BICUBIC)
        found.append(torch.from_numpy(np.array(fitted)).permute(2, 0, 1))
    if len(found) < 10:  # of which five folds are held out in turn
        raise DataError(f'{len(found)} images can be read, and a probe needs 10 or more: give more by --images')
    return torch.stack(found)


def patch_pixels(images: Tensor, grid: Grid, side: int = 4) -> Tensor:
    """Return the content of each patch of images (B, C, H, W), as side x side means: (B, N, C * side**2)."""
    small = torch.nn.functional.adaptive_avg_pool2d(images, (grid[0] * side, grid[1] * side))
    cells = small.unflatten(3, (grid[1], side)).unflatten(2, (grid[0], side))
    return cells.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
