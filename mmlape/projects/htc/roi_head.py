"""RoI head of Hybrid Task Cascade (CVPR 2019).

Mmdetection's, with the masks of all stages in a prediction. With the features r of a box, stage t's
mask head h_t and its convolution g_t,

    f_t, m_t = h_t(r + g_t(f_{t-1})),    mask = mean_t sigmoid(m_t)

The released models' figures are those of the mean (mmdetection 2); mmdetection 3 predicts
sigmoid(m_3).
"""

import torch.nn.functional as F
from mmdet.models.roi_heads import HybridTaskCascadeRoIHead as PlainHead
from torch import Tensor


class HybridTaskCascadeRoIHead(PlainHead):
    """mmdetection's head, whose predicted masks are the mean over its stages."""

    def _mask_forward(
        self,
        stage: int,
        x: tuple[Tensor, ...],
        rois: Tensor,
        semantic_feat: Tensor | None = None,
        training: bool = True,
    ) -> dict:
        """Return the mask logits of a stage, or of all where a prediction needs them, each (boxes, classes, H, W)."""
        if training:
            return super()._mask_forward(stage, x, rois, semantic_feat)
        pool = self.mask_roi_extractor[stage]
        regions = pool(x[: pool.num_inputs], rois)  # (boxes, C, h, w)
        if self.with_semantic and 'mask' in self.semantic_fusion:
            semantic = self.semantic_roi_extractor([semantic_feat], rois)
            regions = regions + F.adaptive_avg_pool2d(semantic, regions.shape[-2:])
        logits, features = [], None
        for head in self.mask_head:
            of_stage, features = head(regions, features if self.mask_info_flow else None)
            logits.append(of_stage)
        return dict(mask_preds=logits)
