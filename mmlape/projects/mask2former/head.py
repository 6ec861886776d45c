"""Mask2Former's semantic head (CVPR 2022).

Mmsegmentation's, with windows of padded images and a choice of order. With class logits c of the
queries, their mask logits m at stride 4, and up, a bilinear resize to the image,

    'masks':  sum_q softmax(c_q) sigmoid(up(m_q))        mmsegmentation, DINOv3
    'scores': up(sum_q softmax(c_q) sigmoid(m_q))        the released models of ViT-Adapter and DINOv2

The second resizes as many maps as there are classes instead of queries.
"""

import torch
import torch.nn.functional as F
from mmseg.models.decode_heads import Mask2FormerHead as PlainHead
from mmseg.structures import SegDataSample
from torch import Tensor

from mmlape.errors import ConfigError
from mmlape.models.grid import Grid
from mmlape.projects.mask2former.ffn import recompute_ffns

UPSAMPLED = ('masks', 'scores')


class Mask2FormerHead(PlainHead):
    """mmsegmentation's head, which also predicts sliding windows of images that were padded.

    Args:
        *args: Of mmsegmentation's head.
        upsampled: What is resized to the image: the 'masks' of the queries before their sigmoid, or
            the 'scores' of the classes, as for the released models.
        with_cp: Recompute the activations of the decoder's FFNs in the backward pass to save
            memory; those of the pixel decoder have a ``with_cp`` of their own.
        **kwargs: Of mmsegmentation's head.

    Raises:
        ConfigError: For another ``upsampled``, or class weights that do not fit ``num_classes``.
    """

    def __init__(self, *args, upsampled: str = 'masks', with_cp: bool = False, **kwargs):
        if upsampled not in UPSAMPLED:
            raise ConfigError(
                f'mmlape.Mask2FormerHead: upsampled={upsampled!r}; choose one of: {", ".join(UPSAMPLED)}'
            )
        super().__init__(*args, **kwargs)
        weights = len(self.class_weight)
        if weights != self.num_classes + 1:
            raise ConfigError(
                f'mmlape.Mask2FormerHead: loss_cls.class_weight has {weights} weights; '
                f'num_classes={self.num_classes} needs {self.num_classes + 1}, the last one for no '
                f'object: [1.0] * {self.num_classes} + [0.1]'
            )
        self.upsampled = upsampled
        if with_cp:
            recompute_ffns(self.transformer_decoder.layers)

    def predict(self, x: tuple[Tensor, ...], batch_img_metas: list[dict], test_cfg: dict) -> Tensor:
        """Return the scores of all classes, (B, classes, H, W), at the size of the window or of the padded image."""
        samples = [SegDataSample(metainfo=meta) for meta in batch_img_metas]
        classes, masks = (of_layers[-1] for of_layers in self(x, samples))
        size = input_size(batch_img_metas[0], test_cfg)
        if self.upsampled == 'masks':
            masks = _resize(masks, size)
        scores = torch.einsum('bqc, bqhw -> bchw', classes.softmax(-1)[..., :-1], masks.sigmoid())
        return scores if self.upsampled == 'masks' else _resize(scores, size)


def input_size(meta: dict, test_cfg: dict) -> Grid:
    """Return the height and width of what the backbone has seen.

    For a window, mmsegmentation changes ``img_shape`` alone, so ``pad_shape`` is that of the
    complete image.
    """
    window = (test_cfg or {}).get('mode') == 'slide'
    return tuple(meta['img_shape'] if window else meta.get('pad_shape') or meta['img_shape'])[:2]


def _resize(maps: Tensor, size: Grid) -> Tensor:
    return F.interpolate(maps, size, mode='bilinear', align_corners=False)
