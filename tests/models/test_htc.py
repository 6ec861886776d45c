"""HTC++'s masks in a prediction: those of each stage as mmdetection trains it."""

import torch
from mmdet.registry import MODELS
from mmengine.config import ConfigDict
from mmengine.registry import init_default_scope
from model_helpers import randomise

from mmlape.lab.config.config_file import load_config

WIDTHS = {256: 8, 80: 3, 183: 5}


def narrow(value):
    """Return a config with few channels and classes."""
    if isinstance(value, dict):
        return {key: narrow(item) for key, item in value.items()}
    return [narrow(item) for item in value] if isinstance(value, list) else WIDTHS.get(value, value)


@torch.no_grad()
def test_a_prediction_has_the_masks_of_every_stage_as_it_is_trained():
    init_default_scope('mmdet')
    cfg = load_config('mmlape::htc/htc_beit-large-adapter_16xb1-3x_coco').model
    roi_head = narrow(dict(cfg.roi_head, train_cfg=cfg.train_cfg.rcnn, test_cfg=cfg.test_cfg.rcnn))
    head = randomise(MODELS.build(ConfigDict(roi_head))).eval()
    maps = [torch.randn(1, 8, side, side) for side in (32, 16, 8, 4)]
    semantic = torch.randn(1, 8, 16, 16)
    boxes = torch.tensor([[0.0, 3, 5, 40, 61], [0, 20, 10, 90, 77]])
    predicted = head._mask_forward(-1, maps, boxes, semantic, training=False)['mask_preds']
    trained = [head._mask_forward(stage, maps, boxes, semantic)['mask_preds'] for stage in range(3)]
    assert type(head).__module__.startswith('mmlape.') and all(masks.std() > 1e-3 for masks in trained)
    torch.testing.assert_close(predicted, trained)
