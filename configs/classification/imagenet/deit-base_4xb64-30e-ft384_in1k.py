"""DeiT-B fine-tuned at 384 pixels from 224, default PE: the PE is resized from 14x14 to 24x24; not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-base_4xb64-30e-ft384_in1k.py 4
"""

_base_ = './deit-base_4xb256-300e_in1k.py'

img_size = 384
batch_size = 256
pretrained = 'pretrained/deit_base_patch16_224-b5f2ef4d.pth'
model = dict(backbone=dict(img_size=img_size, init_cfg=dict(type='Pretrained', checkpoint=pretrained)))
train_pipeline = _base_.train_pipeline
train_pipeline[1].update(scale=img_size)
test_pipeline = _base_.test_pipeline
test_pipeline[1].update(scale=int(img_size / 0.875))
test_pipeline[2].update(crop_size=img_size)
custom_hooks = _base_.custom_hooks
custom_hooks[0]['changes']['ResizeEdge'].update(scale=img_size)
train_dataloader = dict(batch_size=batch_size // 4, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(batch_size=batch_size // 4, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
train_cfg = dict(max_epochs=30)
# DeiT's fine-tuning rate: 5e-6 for every 512 images, constant, with next to no weight decay
optim_wrapper = dict(optimizer=dict(lr=5e-6 * batch_size / 512, weight_decay=1e-8))
param_scheduler = []
auto_scale_lr = dict(base_batch_size=batch_size)
