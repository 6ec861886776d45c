"""CIFAR-10 at 32 pixels with the augmentation of Compact Transformers, as CIFAR-100, without its random erasing."""

_base_ = 'cifar100_randaugment.py'

data_root = 'data/cifar10/'
dataset_type = 'CIFAR10'
mean = [125.307, 122.961, 113.8575]
std = [62.985, 62.0925, 66.708]

fill = [round(value) for value in mean]
hparams = [dict(pad_val=fill, interpolation=name) for name in _base_.both]
operation = dict(type='RandomChoice', transforms=[[dict(hparams=one, **_base_.augment)] for one in hparams])
erasing = dict(_base_.erasing, fill_color=mean, fill_std=std)
train_pipeline = [_base_.crops, _base_.flip, operation, operation, dict(type='PackInputs')]
# of the public code's two files of CIFAR-10, that of CCT-7/3x1 does not erase
erased_pipeline = [_base_.crops, _base_.flip, operation, operation, erasing, dict(type='PackInputs')]
train_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root, pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
test_dataloader = val_dataloader
# no mixup and no CutMix after 175 epochs, as in the public code
custom_hooks = [dict(type='SwitchRecipeHook', schedule=[dict(action_epoch=176, batch_augments=None)])]
