"""How an image becomes what the network takes: order of the channels, mean and deviation."""

import json
from typing import NamedTuple

import torch
from mmengine.config import Config
from torch import Tensor, nn

Size = tuple[int, int]
"""Height and width of an image, in pixels."""


class Input(NamedTuple):
    """How a model normalises an image."""

    mean: Tensor | None  # (C, 1, 1), in the order of the network's channels; None for no normalisation
    std: Tensor | None
    reversed: bool  # whether the network's channels are BGR

    @classmethod
    def of(cls, model: nn.Module, cfg: Config) -> 'Input':
        """Read it from a model's data preprocessor.

        The pipeline of the config's test says which order it gets.
        """
        preprocessor = model.data_preprocessor
        enabled = getattr(preprocessor, '_enable_normalize', False)
        mean, std = (preprocessor.mean, preprocessor.std) if enabled else (None, None)
        steps = cfg.test_dataloader.dataset.get('pipeline') or []
        files = bool(steps) and str(steps[0]['type']).rpartition('.')[2] == 'LoadImageFromFile'
        # MMPretrain's own attribute has another name
        converts = any(getattr(preprocessor, name, False) for name in ('_channel_conversion', 'to_rgb'))
        grey = mean is not None and len(mean) == 1
        # files are loaded as BGR; datasets that are arrays have RGB
        return cls(mean, std, reversed=not grey and files != converts)

    @property
    def channels(self) -> int:
        """The number of channels of an image."""
        return 3 if self.mean is None else len(self.mean)

    def notes(self) -> dict[str, str]:
        """Return it as metadata: values in the order of an RGB image."""
        values = {} if self.mean is None else dict(mean=self.mean, std=self.std)
        ordered = {key: value.flatten().flip(0) if self.reversed else value for key, value in values.items()}
        listed = {key: json.dumps([round(v, 6) for v in value.flatten().tolist()]) for key, value in ordered.items()}
        return dict(input='RGB 0..255' if self.channels == 3 else 'grey 0..255', normalised='inside') | listed

    def normalise(self, image: Tensor) -> Tensor:
        """Convert (1, C, H, W), RGB in 0..255, to what the network takes."""
        if self.reversed:
            image = torch.cat([image[:, channel : channel + 1] for channel in (2, 1, 0)], dim=1)
        return image if self.mean is None else (image - self.mean) / self.std

    def restore(self, inputs: Tensor) -> Tensor:
        """Convert what the network takes back to an image."""
        image = inputs if self.mean is None else inputs * self.std + self.mean
        return image.flip(1) if self.reversed else image
