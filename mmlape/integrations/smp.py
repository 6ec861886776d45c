"""ViT-Adapter as an encoder of segmentation-models-pytorch, for its FPN, UPerNet, Segformer and Unet.

    import mmlape.integrations.smp

    encoder = 'mmlape-deit-tiny-adapter'
    model = segmentation_models_pytorch.FPN(encoder, encoder_weights=None, classes=3)

Importing this module adds every named adapter of ``mmlape.list_models('*-adapter*')``, behind
'mmlape-'.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mmlape.checkpoint.exact_loading import with_channels
from mmlape.errors import ConfigError, StackError
from mmlape.integrations import STRIDES, build_pyramid, load_named
from mmlape.models import ViTAdapter

try:
    from segmentation_models_pytorch.encoders import encoders
    from segmentation_models_pytorch.encoders._base import EncoderMixin
except ImportError as error:
    raise StackError(
        f"mmlape.integrations.smp needs segmentation-models-pytorch ({error}): pip install 'mmlape[smp]'"
    ) from error

__all__ = ['PyramidEncoder', 'register']


class PyramidEncoder(nn.Module, EncoderMixin):
    """A backbone of mmlape, ``backbone``, as segmentation-models-pytorch has encoders.

    ``unfreeze_encoder`` of a model trains what ``frozen_stages`` has frozen; a ``TimmViT`` with ``frozen=True`` has no
    gradients all the same.

    Args:
        name: The class of the backbone, ``ViTAdapter``, ``TimmViTAdapter`` or another of four maps.
        options: Its arguments; weights that they name are loaded.
        depth: How many strides of 2, 4, 8, 16, 32 there are maps for.
        output_stride: 32, the only one.

    Raises:
        ConfigError: For a name, options, a depth or a stride that cannot work.
        CheckpointError: If the weights that the options name do not fit.
    """

    _is_torch_scriptable = False

    def __init__(self, name: str, options: Mapping[str, Any], depth: int = 5, output_stride: int = 32):
        super().__init__()
        if depth not in range(1, 6):
            raise ConfigError(f'encoder_depth={depth!r}: choose from 1 to 5')
        if output_stride != STRIDES[-1]:
            self.make_dilated(output_stride)
        self._of = name, dict(options)
        self.backbone = build_pyramid(name, options, 'smp: ')
        load_named(self.backbone)
        self._depth, self._output_stride, self._in_channels = (depth, STRIDES[-1], self.backbone.in_channels)
        self._out_channels = [self._in_channels, 0] + [self.backbone.embed_dims] * len(STRIDES)

    def set_in_channels(self, in_channels: int, pretrained: bool = True) -> None:
        """Build the backbone for images of other channels; all else keeps its values.

        What reads images is initialised anew, or, where weights have been loaded, made of that of
        3 channels as the library makes it.
        """
        if in_channels == self._in_channels:
            return
        name, options = self._of
        old, loaded = self.backbone.state_dict(), pretrained or bool(self.backbone.init_cfg)
        backbone = build_pyramid(name, {**options, 'in_channels': in_channels}, 'smp: ')
        for key, value in backbone.state_dict().items():
            if old[key].shape == value.shape:
                value.copy_(old[key])
            elif loaded:
                value.copy_(_with_channels(old[key], self._in_channels, in_channels))
        self.backbone, self._in_channels = backbone, in_channels
        self._out_channels = [in_channels, *self._out_channels[1:]]

    def make_dilated(self, output_stride: int) -> None:
        """Refuse other strides.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            f'encoder_output_stride={output_stride!r}: an adapter has maps at the strides 4, 8, '
            '16, 32; set it to 32, or take FPN, UPerNet, Segformer or Unet where the decoder has '
            'no such stride'
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        """Return images (B, C, H, W), a map without channels at stride 2, and maps (B, D, H / s, W / s)."""
        empty = x.new_empty(x.shape[0], 0, x.shape[2] // 2, x.shape[3] // 2)
        features = [x, empty]
        if self._depth > 1:
            features += self.backbone(x)
        return features[: self._depth + 1]


def _with_channels(weight: Tensor, old: int, new: int) -> Tensor:
    """Return a stem's weights (D, C, P, P), or a Dual PatchNorm's (C * P * P), for other channels.

    Channels are repeated in turn; one channel gets the sum of the weights, and the mean of a norm's.
    """
    if weight.ndim > 1:
        return with_channels(weight, new)
    norm = weight.unflatten(0, (old, -1))
    return norm.mean(0) if new == 1 else norm[torch.arange(new) % old].flatten()


def register(encoder_name: str, name: str, options: Mapping[str, Any]) -> None:
    """Make an encoder known to segmentation-models-pytorch.

    Args:
        encoder_name: What its models take; it replaces another encoder of that name.
        name: The class of the backbone, as in ``PyramidEncoder``.
        options: Its arguments.
    """
    params = dict(name=name, options=dict(options))
    encoders[encoder_name] = dict(encoder=PyramidEncoder, pretrained_settings={}, params=params)


for _name, _options in ViTAdapter.model_names.items():
    register(f'mmlape-{_name}', ViTAdapter.__name__, _options)
