"""ViT-Adapter as an encoder of segmentation-models-pytorch, for its FPN, UPerNet, Segformer and Unet.

    import mmlape.integrations.smp

    encoder = 'mmlape-deit-tiny-adapter'
    model = segmentation_models_pytorch.FPN(encoder, encoder_weights=None, classes=3)

Importing this module adds every named adapter of ``mmlape.list_models('*-adapter*')``, behind
'mmlape-'.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from mmlape.errors import ConfigError, StackError
from mmlape.integrations.pyramid import STRIDES, build_pyramid, load_named
from mmlape.models import ViTAdapter

try:
    from segmentation_models_pytorch.encoders import encoders
    from segmentation_models_pytorch.encoders._base import EncoderMixin
    from segmentation_models_pytorch.encoders._utils import patch_first_conv
except ImportError as error:
    raise StackError(
        f'mmlape.integrations.smp needs segmentation-models-pytorch ({error}): pip install '
        "'mmlape[smp]'"
    ) from error

__all__ = ['PyramidEncoder', 'register']


class PyramidEncoder(nn.Module, EncoderMixin):
    """A backbone of mmlape, ``backbone``, as segmentation-models-pytorch has encoders.

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

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        depth: int = 5,
        output_stride: int = 32,
    ):
        super().__init__()
        if depth not in range(1, 6):
            raise ConfigError(f'encoder_depth={depth!r}: choose from 1 to 5')
        if output_stride != STRIDES[-1]:
            self.make_dilated(output_stride)
        self.backbone = build_pyramid(name, options, 'smp: ')
        load_named(self.backbone)
        self._depth, self._output_stride, self._in_channels = (
            depth,
            STRIDES[-1],
            self.backbone.in_channels,
        )
        self._out_channels = [self._in_channels, 0] + [self.backbone.embed_dims] * len(STRIDES)

    def set_in_channels(self, in_channels: int, pretrained: bool = True) -> None:
        """Change the convolutions that read images, the ViT's and the adapter's, to other channels."""
        if in_channels == self._in_channels:
            return
        old, self._in_channels = self._in_channels, in_channels
        readers = [m for m in self.modules() if isinstance(m, nn.Conv2d) and m.in_channels == old]
        for reader in readers:
            patch_first_conv(reader, in_channels, old, pretrained)
        self._out_channels = [in_channels, *self._out_channels[1:]]

    def make_dilated(self, output_stride: int) -> None:
        """Refuse other strides.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            f'encoder_output_stride={output_stride!r}: an adapter has maps at the strides 4, 8, '
            '16, 32; set it to 32'
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        """Return images (B, C, H, W), a map without channels at stride 2, and maps (B, D, H / s, W / s)."""
        empty = x.new_empty(x.shape[0], 0, x.shape[2] // 2, x.shape[3] // 2)
        features = [x, empty]
        if self._depth > 1:
            features += self.backbone(x)
        return features[: self._depth + 1]


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
