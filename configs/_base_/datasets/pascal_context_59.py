"""Pascal Context, 59 classes: side 520 scaled by 0.5 to 2, then a crop of 480; two images per GPU.

In tests sides are stretched to multiples of 32, as in ViT-Adapter's public code.

`data_root` is the only path: `--cfg-options data_root=DIR/` changes it everywhere.
"""

_base_ = 'segmentation.py'

data_root = 'data/VOCdevkit/VOC2010/'
crop_size = (480, 480)
stride = (320, 320)  # of the windows in tests
num_classes = 59

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='RandomResize', scale=(520, 520), ratio_range=(0.5, 2.0), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
# annotations are loaded after resizing: scores are computed at the image's original size
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(4096, 520), keep_ratio=True),
    dict(type='ResizeToMultiple', size_divisor=32),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(
    batch_size=2,
    dataset=dict(
        type='PascalContextDataset59',
        data_root=data_root,
        ann_file='ImageSets/SegmentationContext/train.txt',
        data_prefix=dict(img_path='JPEGImages', seg_map_path='SegmentationClassContext'),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    dataset=dict(
        type='PascalContextDataset59',
        data_root=data_root,
        ann_file='ImageSets/SegmentationContext/val.txt',
        data_prefix=dict(img_path='JPEGImages', seg_map_path='SegmentationClassContext'),
        pipeline=test_pipeline,
    )
)
test_dataloader = val_dataloader
