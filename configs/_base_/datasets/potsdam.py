"""Potsdam, 6 classes: short side 512 scaled by 0.5 to 2, then a crop of 512; one image per GPU.

In tests sides are stretched to multiples of 32, as in ViT-Adapter's public code.

`data_root` is the only path: `--cfg-options data_root=DIR/` changes it everywhere.
"""

_base_ = 'segmentation.py'

data_root = 'data/potsdam/'
crop_size = (512, 512)
stride = (341, 341)  # of the windows in tests
num_classes = 6

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='RandomResize', scale=(2048, 512), ratio_range=(0.5, 2.0), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
# annotations are loaded after resizing: scores are computed at the image's original size
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(2048, 512), keep_ratio=True),
    dict(type='ResizeToMultiple', size_divisor=32),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(
    batch_size=1,
    dataset=dict(
        type='PotsdamDataset',
        data_root=data_root,
        reduce_zero_label=True,
        data_prefix=dict(img_path='img_dir/train', seg_map_path='ann_dir/train'),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    dataset=dict(
        type='PotsdamDataset',
        data_root=data_root,
        reduce_zero_label=True,
        data_prefix=dict(img_path='img_dir/val', seg_map_path='ann_dir/val'),
        pipeline=test_pipeline,
    )
)
test_dataloader = val_dataloader
