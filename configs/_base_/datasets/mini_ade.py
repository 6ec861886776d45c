"""The mini data in ADE20K's layout: handwritten digits on photographs, at half their size."""

_base_ = 'segmentation.py'

data_root = 'data/mini/ade/'
crop_size = (128, 128)
classes = ('zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine', 'china', 'flower')
dataset = dict(type='BaseSegDataset', data_root=data_root, metainfo=dict(classes=classes), reduce_zero_label=True)

# no flips: a mirrored digit is no digit
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='Resize', scale=crop_size, keep_ratio=True),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=crop_size, keep_ratio=True),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(
    batch_size=4,
    num_workers=2,
    dataset=dict(
        data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
        pipeline=train_pipeline,
        **dataset,
    ),
)
val_dataloader = dict(
    num_workers=1,
    dataset=dict(
        data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'),
        pipeline=test_pipeline,
        **dataset,
    ),
)
test_dataloader = val_dataloader
