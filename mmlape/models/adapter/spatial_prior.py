"""The convolutional pyramid that ViT-Adapter (arXiv 2205.08534, section 3.2) puts beside a plain ViT."""

from torch import Tensor, nn

from mmlape.models.grid import channels_last


def _conv_bn_relu(in_channels: int, out_channels: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
    return [conv, nn.SyncBatchNorm(out_channels), nn.ReLU(inplace=True)]


class SpatialPriorModule(nn.Module):
    """A convolutional stem and three stages: images to maps at strides 4, 8, 16, 32.

    Args:
        inplanes: Channels after the stem.
        embed_dims: Channels D of each map.
        in_channels: Channels of the images.
    """

    def __init__(self, inplanes: int, embed_dims: int, in_channels: int = 3):
        super().__init__()
        widths = (inplanes, 2 * inplanes, 4 * inplanes, 4 * inplanes)
        self.stem = nn.Sequential(
            *_conv_bn_relu(in_channels, inplanes, 2),
            *_conv_bn_relu(inplanes, inplanes, 1),
            *_conv_bn_relu(inplanes, inplanes, 1),
            nn.MaxPool2d(3, 2, 1),
        )
        self.conv2 = nn.Sequential(*_conv_bn_relu(widths[0], widths[1], 2))
        self.conv3 = nn.Sequential(*_conv_bn_relu(widths[1], widths[2], 2))
        self.conv4 = nn.Sequential(*_conv_bn_relu(widths[2], widths[3], 2))
        self.fc1, self.fc2, self.fc3, self.fc4 = (nn.Conv2d(width, embed_dims, 1) for width in widths)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Map images (B, C, H, W) to [(B, D, H/4, W/4), ..., (B, D, H/32, W/32)], channels last in memory."""
        x = channels_last(x)
        maps = []
        for stage, project in zip(
            (self.stem, self.conv2, self.conv3, self.conv4), (self.fc1, self.fc2, self.fc3, self.fc4)
        ):
            x = stage(x)
            maps.append(project(x))
        return maps
