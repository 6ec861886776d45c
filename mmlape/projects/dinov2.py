"""The linear segmentation head of DINOv2 (arXiv 2304.07193, section 7.4) and DINOv3.

A norm and a 1x1 convolution.

    logits = conv_seg(dropout(bn(x)))              DINOv2
    logits = conv_seg(bn(dropout(x)))              DINOv3

x are the maps of one layer ('linear') or of several, side by side ('ms').
"""

from collections.abc import Sequence

from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from torch import Tensor, nn


class BNHead(BaseDecodeHead):
    """A batch norm of the maps, and a linear map of each cell, with DINOv2's names ``bn`` and ``conv_seg``.

    Args:
        in_channels: Channels of each map that is read.
        in_index: Which maps of the backbone are read; by default as many as there are
            ``in_channels``, from the first.
        dropout_first: Whether dropout precedes the batch norm, as in DINOv3's head, or the
            convolution.
        **kwargs: Of mmsegmentation's ``BaseDecodeHead``: ``num_classes``, ``dropout_ratio``,
            ``loss_decode`` ...
    """

    def __init__(
        self, in_channels: Sequence[int], in_index: Sequence[int] | None = None, dropout_first: bool = False, **kwargs
    ):
        in_channels = list(in_channels)
        super().__init__(
            in_channels=in_channels,
            in_index=list(range(len(in_channels)) if in_index is None else in_index),
            channels=sum(in_channels),
            input_transform='resize_concat',
            **kwargs,
        )
        self.dropout_first = dropout_first
        self.bn = nn.SyncBatchNorm(self.channels)

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Map the backbone's maps (B, C, h, w) to logits (B, classes, h, w) of the first map's size."""
        x = self._transform_inputs(inputs)
        if self.dropout_first and self.dropout is not None:
            return self.conv_seg(self.bn(self.dropout(x)))
        return self.cls_seg(self.bn(x))
