"""ImageNet-1K at 224 with DeiT's augmentation, each image once an epoch."""

_base_ = 'imagenet.py'

train_dataloader = dict(batch_size=128, sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True))
