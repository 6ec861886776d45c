"""The models that a probe takes: plain ViTs, which have the tokens of one grid in all layers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from mmengine.config import Config
from torch import Tensor

from mmlape.backbones import open_model
from mmlape.checkpoint.exact_loading import IMAGENET, Normalisation
from mmlape.errors import ConfigError
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
