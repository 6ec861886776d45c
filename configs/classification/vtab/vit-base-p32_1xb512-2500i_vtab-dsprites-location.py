"""ViT-B/32 on VTAB's dSprites, location. Expect 71.3 % top-1 (the DPN paper's); not run by us.

tools/train.py configs/classification/vtab/vit-base-p32_1xb512-2500i_vtab-dsprites-location.py
"""

_base_ = [
    '../../_base_/models/vit_vtab.py',
    '../../_base_/datasets/vtab.py',
    '../../_base_/schedules/vtab_2500.py',
]
vtab = dict(name='dsprites-location', group='structured')
num_classes = 16
data_root = 'data/vtab-1k/dsprites_loc/'
dataset = dict(data_root=data_root, metainfo=dict(classes=[str(label) for label in range(num_classes)]))
train_dataloader = dict(dataset=dataset)
val_dataloader = dict(dataset=dataset)
test_dataloader = dict(dataset=dataset)
model = dict(data_preprocessor=dict(num_classes=num_classes), head=dict(num_classes=num_classes))
