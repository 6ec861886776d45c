"""UperNet, Swin-S, default PE. Not run by us; no paper's figure.

tools/dist_train.sh configs/upernet/upernet_swin-small_4xb4-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/upernet_swin.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
    '../_base_/default_runtime.py',
]
model = dict(
    backbone=dict(arch='small', pe_type='learnable', init_cfg=dict(checkpoint='pretrained/swin_small_default.pth'))
)
train_dataloader = dict(batch_size=4)
optim_wrapper = dict(optimizer=dict(lr=6e-5, weight_decay=0.01), paramwise_cfg=dict(_base_.swin_decay, _delete_=True))
auto_scale_lr = dict(base_batch_size=16)
