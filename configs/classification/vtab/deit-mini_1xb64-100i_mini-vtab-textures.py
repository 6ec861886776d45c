"""A small DeiT on the mini VTAB's textures: for the tests, some seconds on two CPU cores.

tools/train.py configs/classification/vtab/deit-mini_1xb64-100i_mini-vtab-textures.py
"""

_base_ = './deit-mini_1xb64-100i_mini-vtab-digits.py'

vtab = dict(name='mini-textures', group='specialized')
num_classes = 2
data_root = 'data/mini/vtab/textures/'
dataset = dict(data_root=data_root, metainfo=dict(classes=[str(label) for label in range(num_classes)]))
train_dataloader = dict(dataset=dataset)
val_dataloader = dict(dataset=dataset)
test_dataloader = dict(dataset=dataset)
model = dict(data_preprocessor=dict(num_classes=num_classes), head=dict(num_classes=num_classes))
