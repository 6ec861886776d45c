"""ViT-B/32 fine-tuned at 384 pixels. Expect 79.0 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-base-p32_4xb128-5k-ft384_in1k.py 4
"""

_base_ = [
    '../../_base_/models/vit_big_vision.py',
    '../../_base_/datasets/imagenet_big_vision.py',
    '../../_base_/schedules/big_vision_ft5k.py',
]

# the complete model of 224 pixels but for its last layer, which starts at zeros; the PE is resized
load_from = 'pretrained/vit_base_p32.pth'
load_fresh = ['head.layers.head.']
img_size = 384
embed_dims = 768
model = dict(
    backbone=dict(
        arch='deit-base',
        img_size=img_size,
        patch_size=32,
        pe_type=dict(std=embed_dims**-0.5),
        interpolate_mode='bilinear-corners',
    ),
    head=dict(in_channels=embed_dims, hidden_dim=embed_dims, init_cfg=dict(bias=0.0)),
)
train_pipeline = _base_.train_pipeline
train_pipeline[1].update(scale=img_size)
train_pipeline.pop(3)  # no RandAugment
test_pipeline = _base_.test_pipeline
test_pipeline[1].update(scale=418)
test_pipeline[2].update(crop_size=img_size)
train_dataloader = dict(batch_size=128, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
