"""A neck without a pyramid: a convolution for each map, and coarser maps by max pooling."""

from mmdet.models.necks import ChannelMapper
from torch import Tensor, nn


class ChannelMapperWithPooling(ChannelMapper):
    """mmdetection's ``ChannelMapper`` whose further maps are its last one, pooled over 2 x 2 again and again.

    Args:
        in_channels: Channels of each map.
        out_channels: Channels of every output.
        kernel_size: Of the convolutions.
        num_outs: Number of outputs; by default as many as maps.
        **kwargs: Of ``ChannelMapper``.
    """

    def __init__(
        self, in_channels: list[int], out_channels: int, kernel_size: int = 1, num_outs: int | None = None, **kwargs
    ):
        super().__init__(list(in_channels), out_channels, kernel_size, **kwargs)
        self.num_outs = len(in_channels) if num_outs is None else num_outs
        self.pool = nn.MaxPool2d(2, 2)

    def forward(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Map (B, C_l, H_l, W_l) to (B, ``out_channels``, H_l, W_l) and coarser ones."""
        outs = list(super().forward(inputs))
        while len(outs) < self.num_outs:
            outs.append(self.pool(outs[-1]))
        return tuple(outs)
