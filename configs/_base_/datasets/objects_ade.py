"""Photographed objects in ADE20K's layout, on a canvas of 256: `mmlape make-mini-data data/objects --objects`."""

_base_ = 'segmentation.py'

data_root = 'data/objects/ade/'
mini_data_options = '--objects'
crop_size = (256, 256)
objects = ('mammal', 'bird', 'fish', 'insect', 'fruit', 'vegetable', 'flower', 'instrument', 'tool', 'coin')
classes = (*objects, 'background')
dataset = dict(type='BaseSegDataset', data_root=data_root, metainfo=dict(classes=classes), reduce_zero_label=True)
pipeline = [_base_.load_image, _base_.load_reduced, _base_.pack]
train_dataloader = dict(batch_size=16, num_workers=2, dataset=dict(pipeline=pipeline, **_base_.ade_train, **dataset))
val_dataloader = dict(num_workers=1, dataset=dict(pipeline=pipeline, **_base_.ade_val, **dataset))
test_dataloader = val_dataloader
