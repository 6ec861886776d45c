"""Segmentors as graphs: the scores of all classes at the size of the image, or the class of each pixel."""

import copy

import torch
import torch.nn.functional as F
from mmengine import ConfigDict
from mmseg.models.segmentors import EncoderDecoder
from torch import Tensor, nn

from mmlape.lab.export.graphs import Exported, Outputs
from mmlape.lab.export.graphs.session import FLOAT, INTEGER, Graph, Input

SURE = 10.0
"""The logit of a pixel of which only the label is known."""


class ExportedSegmentor(Exported):
    """A segmentor of MMSegmentation up to its ``encode_decode``: what one sliding window goes through.

    ``labels`` chooses the class of each pixel, (B, H, W), int64; else the outputs are ``logits``,
    (B, classes, H, W).
    """

    task = 'segmentation'

    def __init__(self, model: nn.Module, given: Input, labels: bool = False) -> None:
        super().__init__(model, given)
        self.outputs = ('labels',) if labels else ('logits',)

    @staticmethod
    def fits(model: nn.Module) -> bool:
        """Return whether it is a segmentor."""
        return isinstance(model, EncoderDecoder)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the logits or the labels."""
        size = tuple(images.shape[2:])
        meta = dict(ori_shape=size, img_shape=size, pad_shape=size, padding_size=[0] * 4)
        logits = self.model.encode_decode(self.given.normalise(images), [meta])  # the first counts
        if self.outputs == ('logits',):
            return (logits,)
        if logits.shape[1] > 1:
            return (logits.argmax(1),)
        return ((logits[:, 0].sigmoid() > self.model.decode_head.threshold).long(),)

    def predicted(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return MMSegmentation's logits or labels, of one window."""
        model = copy.copy(self.model)
        model.test_cfg = ConfigDict(model.test_cfg or {}, mode='whole')
        samples = model.predict(self.given.normalise(images))
        if self.outputs == ('logits',):
            return (torch.stack([sample.seg_logits.data for sample in samples]),)
        return (torch.cat([sample.pred_sem_seg.data for sample in samples]),)

    @staticmethod
    def declared(model: nn.Module, graph: Graph) -> dict[str, tuple[str, tuple]]:
        """Return logits or labels."""
        if graph.outputs == ('labels',):
            return dict(labels=(INTEGER, graph.size))
        return dict(logits=(FLOAT, (model.out_channels, *graph.size)))

    @staticmethod
    def install(model: nn.Module, outputs: Outputs) -> None:
        """Replace ``encode_decode``; where windows overlap, labels vote."""

        def encode_decode(inputs: Tensor, batch_img_metas: list[dict]) -> Tensor:
            height, width = inputs.shape[2:]
            (scores,) = outputs(inputs)
            if scores.dtype == torch.long and model.out_channels > 1:  # labels
                scores = F.one_hot(scores, model.out_channels).permute(0, 3, 1, 2).to(inputs)
            elif scores.dtype == torch.long:  # of one class: its sign decides
                scores = (2 * scores[:, None] - 1).to(inputs) * SURE
            return scores[..., :height, :width]

        model.encode_decode = encode_decode


EXPORTED = (ExportedSegmentor,)
