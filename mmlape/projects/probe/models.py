"""The models that a probe takes: all that `visualize-pe` takes, and names that `mmlape.get_model` knows."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from torch import Tensor

from mmlape.backbones import open_model
from mmlape.errors import ConfigError
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.grid import Grid
from mmlape.models.names import get_model
from mmlape.weights.loading import IMAGENET, Normalisation

STEPS = ('embed', 'run_layers', 'split_prefix', 'normed')
"""What a ViT offers whose layers all have the tokens of one grid, as the adapter asks it."""
RANDOM_SEED = 2603
"""Of the initial values of controls."""
WEIGHTS = ('init_cfg', 'pretrained', 'checkpoint')
"""Arguments that name weights."""


@dataclass(frozen=True)
class Probed:
    """A model to probe."""

    name: str
    backbone: BaseBackbone  # in evaluation mode
    normalisation: Normalisation
    is_bgr: bool = False  # the order of the channels that the model takes
    is_random: bool = False  # whether it has no trained weights

    @property
    def vit(self) -> Any:
        """The ViT, or that below an adapter."""
        return getattr(self.backbone, 'plain_vit', self.backbone)

    @property
    def depth(self) -> int:
        """The number of layers."""
        return self.vit.num_layers

    @property
    def patch_size(self) -> int:
        """The side of a patch in pixels."""
        return self.vit.patch_size

    def default_grid(self, most: int) -> Grid:
        """Return the grid of the model's PE, of at most so many patches a side."""
        rows, columns = self.vit.grid
        return min(rows, most), min(columns, most)

    def stages(self) -> list[str]:
        """Return the names of what `features` yields."""
        return ['embedding', *(f'layer {number}' for number in range(self.depth)), 'output']

    @torch.inference_mode()
    def features(self, images: Tensor) -> Iterator[Tensor]:
        """Yield the patch tokens (B, N, D) of images (B, C, H, W), from 0 to 255.

        Of the embedding, before any layer; behind each layer; and of the last one behind the final
        norm, where there is one.
        """
        vit = self.vit
        x, first, hw = vit.embed(self._normalised(images))
        yield vit.split_prefix(x)[1]
        state = first
        for number in range(self.depth):
            x, state = vit.run_layers(x, state, hw, number, number + 1)
            yield vit.split_prefix(x)[1]
        yield vit.split_prefix(vit.normed(x, True, first))[1]

    def _normalised(self, images: Tensor) -> Tensor:
        mean, std = (
            torch.tensor(values)[:, None, None] for values in (self.normalisation.mean, self.normalisation.std)
        )
        return ((images.flip(1) if self.is_bgr else images) - mean) / std

    def with_random_values(self) -> 'Probed':
        """Return the same architecture with initial values of a fixed seed."""
        arguments = {key: value for key, value in self.backbone.arguments.items() if key not in WEIGHTS}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(RANDOM_SEED)
            backbone = type(self.backbone)(**arguments).eval()
        return Probed(f'{self.name}, random values', backbone, self.normalisation, self.is_bgr, True)


def open_probed(text: str, grid: Grid | None = None) -> Probed:
    """Build the model that an argument of the command line means.

    Args:
        text: What ``open_model`` takes; or ``NAME`` or ``NAME@CHECKPOINT`` of a model that
            ``mmlape.get_model`` knows. ``timm/NAME.TAG`` has the weights that timm knows for it.
        grid: (rows, columns) of the PE in a checkpoint, where that is no square.

    Raises:
        ConfigError: If there is no such model, or it has no patch tokens on one grid.
        CheckpointError: If a file is missing, unreadable or of another model.
    """
    name, _, file = text.partition('@')
    is_name = name.startswith('timm/') or ('/' not in name and not Path(name).suffix)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)  # of models without weights
        is_file = Path(name).exists() or Path(text).exists()
        probed = _named(name, file) if is_name and not is_file else _opened(text, grid)
    vit = probed.vit
    if not all(hasattr(vit, step) for step in STEPS):
        raise ConfigError(
            f'{probed.name}: {type(vit).__name__} has no patch tokens on one grid in all layers, '
            'which a probe reads: give a plain ViT, ours or of timm'
        )
    if vit.in_channels not in (1, 3):
        raise ConfigError(
            f'{probed.name}: it takes images of {vit.in_channels} channels, and a probe reads images of colour or grey'
        )
    return probed


def _opened(text: str, grid: Grid | None) -> Probed:
    opened = open_model(text, grid=grid)
    found, is_bgr = _of_config(opened.config or Config())
    of_weights = opened.model.load_report and opened.model.load_report.normalisation
    return Probed(
        opened.name,
        opened.model,
        found or of_weights or _imagenet(opened.model.in_channels),
        is_bgr,
        opened.name.endswith('untrained'),
    )


def _named(name: str, file: str) -> Probed:
    has_tag = name.startswith('timm/') and '.' in name
    weights: str | bool | None = file or (True if has_tag else None)
    model: Any = get_model(name, pretrained=weights)
    sources = (model.load_report, getattr(model, 'source', None))
    known = [one.normalisation for one in sources if one is not None and one.normalisation]
    shown_name = f'{name}, {Path(file).stem}' if file else name if weights else f'{name}, untrained'
    return Probed(shown_name, model.eval(), (known or [_imagenet(model.in_channels)])[0], is_random=not weights)


def _imagenet(channels: int) -> Normalisation:
    return Normalisation(IMAGENET.mean[:channels], IMAGENET.std[:channels], 'assumed')


def _of_config(cfg: Config) -> tuple[Normalisation | None, bool]:
    """Return how a config normalises images, and whether its model takes blue first."""
    preprocessor = dict(cfg.get('data_preprocessor') or {})
    preprocessor |= dict((cfg.get('model') or {}).get('data_preprocessor') or {})
    mean, std = preprocessor.get('mean'), preprocessor.get('std')
    if mean is None or std is None:
        return None, False
    is_rgb = preprocessor.get('bgr_to_rgb') or preprocessor.get('to_rgb')
    normalisation = Normalisation(tuple(map(float, mean)), tuple(map(float, std)), 'its config')
    return normalisation, len(mean) == 3 and not is_rgb
