"""ViT-B/32 on VTAB's Sun397. Expect 32.0 % top-1 (the DPN paper's); not run by us.

tools/train.py configs/classification/vtab/vit-base-p32_1xb512-2500i_vtab-sun397.py
"""

_base_ = [
    '../../_base_/models/vit_vtab.py',
    '../../_base_/datasets/vtab.py',
    '../../_base_/schedules/vtab_2500.py',
]
vtab = dict(name='sun397', group='natural')
num_classes = 397
data_root = 'data/vtab-1k/sun397/'
dataset = dict(data_root=data_root, metainfo=dict(classes=[str(label) for label in range(num_classes)]))
train_dataloader = dict(dataset=dataset)
val_dataloader = dict(dataset=dataset)
test_dataloader = dict(dataset=dataset)
model = dict(data_preprocessor=dict(num_classes=num_classes), head=dict(num_classes=num_classes))
