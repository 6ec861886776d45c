"""Mask2Former's 265,500 iterations on COCO: AdamW at 1e-4, a tenth of it after 191,750 and 236,000, 16 images."""

_base_ = ['adamw.py', 'iterations.py']

interval = 5000
train_cfg = dict(type='IterBasedTrainLoop', max_iters=265500, val_interval=interval)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(clip_grad=dict(max_norm=0.01, norm_type=2))
param_scheduler = [dict(type='MultiStepLR', milestones=[191750, 236000], gamma=0.1, by_epoch=False)]
# with the batch statistics of the same average
custom_hooks = [dict(type='EMAHook', ema_type='ExpMomentumEMA', momentum=0.0001, update_buffers=True, priority=49)]
default_hooks = dict(checkpoint=dict(interval=interval, max_keep_ckpts=3))
auto_scale_lr = dict(enable=False, base_batch_size=16)
