"""ViT-Adapter as a backbone of torchvision's detectors.

model = torchvision.models.detection.MaskRCNN(PyramidFPN('ViTAdapter', dict(arch='deit-tiny')),
num_classes=91)
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from mmlape.errors import StackError
from mmlape.integrations import STRIDES, build_pyramid, load_named

try:
    from torchvision.ops import FeaturePyramidNetwork
    from torchvision.ops.feature_pyramid_network import LastLevelMaxPool
except ImportError as error:
    raise StackError(
        f'mmlape.integrations.torchvision needs torchvision ({error}): pip install torchvision'
    ) from error

__all__ = ['PyramidFPN']


class PyramidFPN(nn.Module):
    """A backbone of mmlape, ``backbone``, below torchvision's FPN, as its Faster, Mask and Keypoint R-CNN take one.

    Args:
        name: The class of the backbone, ``ViTAdapter``, ``TimmViTAdapter`` or another of four maps.
        options: Its arguments; weights that they name are loaded.
        out_channels: Channels of the FPN's maps.

    Raises:
        ConfigError: For a name or options that cannot work.
        CheckpointError: If the weights that the options name do not fit.
    """

    def __init__(self, name: str, options: Mapping[str, Any], out_channels: int = 256):
        super().__init__()
        self.backbone = build_pyramid(name, options, 'PyramidFPN: ')
        load_named(self.backbone)
        self.out_channels = out_channels
        self.fpn = FeaturePyramidNetwork([self.backbone.embed_dims] * len(STRIDES), out_channels, LastLevelMaxPool())

    def forward(self, x: Tensor) -> OrderedDict[str, Tensor]:
        """Return maps of images (B, C, H, W): '0' to '3' at the strides 4 to 32, and 'pool' at 64."""
        maps = self.backbone(x)
        return self.fpn(OrderedDict((str(number), value) for number, value in enumerate(maps)))
