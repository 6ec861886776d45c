"""ADE20K, 150 classes: short side 640 scaled by 0.5 to 2, then a crop of 640; two images per GPU.

In tests sides are stretched to multiples of 32, as in ViT-Adapter's public code.

`data_root` is the only path: `--cfg-options data_root=DIR/` changes it everywhere.
"""

_base_ = 'segmentation.py'

data_root = 'data/ade/ADEChallengeData2016/'
crop_size = (640, 640)
stride = (426, 426)  # of the windows in tests
num_classes = 150

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='RandomResize', scale=(2048, 640), ratio_range=(0.5, 2.0), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
# annotations are loaded after resizing: scores are computed at the image's original size
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(2048, 640), keep_ratio=True),
    dict(type='ResizeToMultiple', size_divisor=32),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(
    batch_size=2,
    dataset=dict(
        type='ADE20KDataset',
        data_root=data_root,
        reduce_zero_label=True,
        data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    dataset=dict(
        type='ADE20KDataset',
        data_root=data_root,
        reduce_zero_label=True,
        data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'),
        pipeline=test_pipeline,
    )
)
test_dataloader = val_dataloader
