"""Mask2Former, DINOv2's own adapter over its frozen ViT-g/14; no public score of its own: not run by us.

DINOv2's released segmentor loads into this model. Its config is not public as text: windows, stride and schedule are
our choice.

tools/dist_train.sh configs/mask2former/mask2former_vitg14-dinov2-adapter_16xb1-160k_ade20k.py 16
"""

_base_ = [
    '../_base_/models/mask2former_dinov2-adapter.py',
    '../_base_/datasets/ade20k_896_dinov2.py',
    '../_base_/schedules/mask2former_160k.py',
    '../_base_/default_runtime.py',
]
crop_size = _base_.crop_size
model = dict(
    data_preprocessor=dict(size=crop_size, test_cfg=dict(size=crop_size)),
    test_cfg=dict(crop_size=crop_size, stride=(512, 512)),
)
optim_wrapper = dict(optimizer=dict(lr=3e-5), paramwise_cfg=dict(layer_decay_rate=0.95))
