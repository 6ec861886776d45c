"""MMPretrain's ResNet, made small, on the mini data."""

_base_ = 'mmpretrain::resnet/resnet18_8xb16_cifar10.py'

data_root = 'mini/digits/'
model = dict(backbone=dict(base_channels=8, stem_channels=8), head=dict(in_channels=64))
pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(32, 32)), dict(type='PackInputs')]
loader = dict(batch_size=16, num_workers=0, persistent_workers=False)
train_dataloader = dict(
    dataset=dict(_delete_=True, type='CustomDataset', data_root=data_root, data_prefix='train', pipeline=pipeline),
    **loader,
)
val_dataloader = dict(
    dataset=dict(_delete_=True, type='CustomDataset', data_root=data_root, data_prefix='val', pipeline=pipeline),
    **loader,
)
test_dataloader = val_dataloader
val_evaluator = dict(topk=(1,))
test_evaluator = val_evaluator
train_cfg = dict(max_epochs=2)
default_hooks = dict(logger=dict(interval=1), checkpoint=dict(interval=1))
auto_scale_lr = dict(base_batch_size=16)
