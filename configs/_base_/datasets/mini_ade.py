"""The mini data in ADE20K's layout: handwritten digits on photographs, at half their size."""

_base_ = 'segmentation.py'

data_root = 'data/mini/ade/'
crop_size = (128, 128)
classes = ('zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine', 'china', 'flower')
dataset = dict(type='BaseSegDataset', data_root=data_root, metainfo=dict(classes=classes), reduce_zero_label=True)

# no flips: a mirrored digit is no digit
resize = dict(type='Resize', scale=crop_size, keep_ratio=True)
train_pipeline = [_base_.load_image, _base_.load_reduced, resize, _base_.pack]
test_pipeline = [_base_.load_image, resize, _base_.load_reduced, _base_.pack]
train_dataloader = dict(
    batch_size=4, num_workers=2, dataset=dict(pipeline=train_pipeline, **_base_.ade_train, **dataset)
)
val_dataloader = dict(num_workers=1, dataset=dict(pipeline=test_pipeline, **_base_.ade_val, **dataset))
test_dataloader = val_dataloader
