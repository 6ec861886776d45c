"""ViT-B/32 fine-tuned at 384 pixels. Expect 79.0 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/vit/vit-base-p32_4xb128-5k-ft384_in1k.py 4
"""

_base_ = [
    '../_base_/models/vit-base_big_vision.py',
    '../_base_/datasets/imagenet_big_vision.py',
    '../_base_/schedules/big_vision_ft5k.py',
    '../_base_/default_runtime.py',
]
load_from = 'pretrained/vit_base_p32.pth'
load_fresh = ['head.layers.head.']
img_size = 384
model = dict(
    backbone=dict(img_size=img_size, patch_size=32, interpolate_mode='bilinear-corners'),
    head=dict(init_cfg=dict(bias=0.0)),
)
train_dataloader = dict(batch_size=128, dataset=dict(pipeline=_base_.train_384))
val_dataloader = dict(dataset=dict(pipeline=_base_.test_384))
test_dataloader = val_dataloader
