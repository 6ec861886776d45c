"""ViT-B/16 and a linear layer on ADE20K. Expect 45.6 mIoU (the DPN paper's, mean of ten seeds); not run by us.

tools/dist_train.sh configs/linear/linear_vit-base-p16_4xb4-161664i_ade20k.py 4
"""

_base_ = [
    '../_base_/models/linear_vit.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/linear_128e.py',
    '../_base_/default_runtime.py',
]
train_dataloader = dict(batch_size=4)
